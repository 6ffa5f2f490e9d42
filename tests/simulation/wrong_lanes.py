"""Routers with one mistake each about lanes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from sidecar.engine.ownership.origin import Origin, write_origin
from sidecar.engine.release.releaser import Releaser
from sidecar.engine.release.transaction import Transaction, Transactions
from snapshots.state.lane import LaneName
from tests.simulation.host import Host, SimulatedStanding
from tests.simulation.replacing import OWNED, Wrong

_END_FORMER = "sidecar.engine.ownership.takeover.end_former"


class LaneNotFenced(Wrong):
    """Takes over by the own id alone, though the state names a lane that may still write."""

    replaces: ClassVar = {_END_FORMER: lambda standing: standing.lane()}


def _read_once(standing: SimulatedStanding) -> None:
    if (lane := standing.lane()) is not None:
        standing.end(lane)


class StateNotReadAgain(Wrong):
    """Goes on with the state that it read before it fenced the lane."""

    replaces: ClassVar = {_END_FORMER: _read_once}


def _until_known_to_have_ended(standing: SimulatedStanding) -> None:
    while (lane := standing.lane()) is not None:
        standing.end(lane)
        if not standing.has_fenced:
            return


class EndedByAnother(Wrong):
    """Does not read the state again if another partition of its process has fenced the lane after the first read."""

    replaces: ClassVar = {_END_FORMER: _until_known_to_have_ended}


class _Nameless(Releaser):
    def _transaction(self, attempt: Any) -> Transaction:
        return replace(super()._transaction(attempt), lane=None)


def _without_lane(transactions: Transactions, origin: Origin, _: LaneName | None) -> None:
    write_origin(transactions, origin, None)


class LaneNotNoted(Wrong):
    """Writes in transactions of a lane that the state does not name."""

    replaces: ClassVar = {OWNED + "Releaser": _Nameless, OWNED + "write_origin": _without_lane}


class _NotesByLane(Host):
    def transactions(self, origin: Origin) -> Transactions:
        own = super().transactions(origin)
        return own if self.lane is None else self.lane.transactions(origin)


class NotedByLane(Wrong):
    """Notes its lane in a transaction of that lane, which no other take-over has fenced."""

    replaces: ClassVar[dict[str, Callable[..., object]]] = {"tests.simulation.serving.Host": _NotesByLane}


ALL: tuple[type[Wrong], ...] = (LaneNotFenced, StateNotReadAgain, EndedByAnother, LaneNotNoted, NotedByLane)
