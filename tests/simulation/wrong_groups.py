"""Routers with one mistake each about other groups of routers."""

from typing import Any, ClassVar

from sidecar.engine.ownership.lanes import Claims, StateWriters
from tests.simulation.host import SimulatedStanding
from tests.simulation.replacing import SERVING, Wrong


class _ReadsOnce(Claims):
    def settle(self, standing: StateWriters) -> bool:
        while super().settle(standing):
            pass
        return False


class _Remembers(SimulatedStanding):
    def claim(self, group: str) -> None:
        super().claim(group)
        self._groups |= {group}


class ClaimedAfterReading(Wrong):
    """Goes on with the state that it read before it wrote the claim of its group."""

    replaces: ClassVar[dict[str, Any]] = {
        SERVING + "Claims": _ReadsOnce,
        "tests.simulation.host.SimulatedStanding": _Remembers,
    }


class _Spares(SimulatedStanding):
    def end_group(self, group: str) -> None:
        pass


class OtherGroupNotFenced(Wrong):
    """Takes over by the id of its own group alone, though the state names another group."""

    replaces: ClassVar = {"tests.simulation.host.SimulatedStanding": _Spares}


class _CountsAll(Claims):
    def settle(self, standing: StateWriters) -> bool:
        before = standing.groups() - {self._context.group_id}
        changed = super().settle(standing)
        self.fenced |= before
        return changed


class FencedBeforeClaim(Wrong):
    """Does not fence another group again that it has fenced before it wrote the claim of its own group."""

    replaces: ClassVar = {SERVING + "Claims": _CountsAll}


ALL: tuple[type[Wrong], ...] = (ClaimedAfterReading, OtherGroupNotFenced, FencedBeforeClaim)
