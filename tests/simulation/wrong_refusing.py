"""Wrong routers: mistakes with records that brokers refuse, and with batches that nobody can read."""

from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from index.partition.partition import PartitionIndex
from sidecar.engine.payload.records import Payload, Refused
from sidecar.engine.release.releaser import Releaser
from sidecar.engine.release.shortening import shortened_where
from tests.simulation.replacing import OWNED, Wrong

T = TypeVar("T")


class _Drops(Releaser):
    def _take_out_records(self, attempt: Any, *given: Any) -> None:
        before = attempt.screened.rejected
        super()._take_out_records(attempt, *given)
        attempt.screened.rejected[:] = [each for each in attempt.screened.rejected if each in before]


class RefusedDropped(Wrong):
    """Leaves out a record that a broker refuses, and does not reject it."""

    replaces: ClassVar = {OWNED + "Releaser": _Drops}


class _SetsAsideNowhere(Releaser):
    def _set_aside(self, attempt: Any, refusals: Any) -> None:
        left = [each for each in attempt.screened.released if each[1] in refusals.undecided]
        attempt.screened = attempt.screened.holding(left)


class SetAsideNowhere(Wrong):
    """Takes the undecided records out of the transaction, and does not write down that they are held."""

    replaces: ClassVar = {OWNED + "Releaser": _SetsAsideNowhere}


class _SuspectsAll(Releaser):
    def _refusals(self, screened: Any, transaction: Any) -> Any:
        found = super()._refusals(screened, transaction)
        why = next(iter(found.refused.values()), None)
        targets = {each[2].schedule.targets for each in screened.released if each[1] in found.refused}
        suspects = [each[1] for each in screened.released if each[2].schedule.targets in targets]
        return found if why is None else replace(found, refused={**dict.fromkeys(suspects, why), **found.refused})


class AllRefusedForOne(Wrong):
    """Rejects every record of a transaction for a target that refuses one of them."""

    replaces: ClassVar = {OWNED + "Releaser": _SuspectsAll}


def _shortened_all(
    written: Iterable[tuple[int, T]], refused: Container[int], shorten: Callable[[T], T | None]
) -> dict[int, T] | None:
    each_one = [*written]
    some = any(offset in refused for offset, _ in each_one)
    return shortened_where(each_one, [offset for offset, _ in each_one] if some else (), shorten)


class AllShortened(Wrong):
    """Shortens every rejected record of a transaction, though the rejected topic refuses only some."""

    replaces: ClassVar = {"sidecar.engine.release.releaser.shortened_where": _shortened_all}


class _StepsOver(PartitionIndex[Payload, Refused]):
    def skip(self, from_offset: int, to_offset: int, rejected: Refused) -> None:
        self.advance(to_offset)


class UnreadableSteppedOver(Wrong):
    """Steps over a batch that nobody can read, and rejects nothing in its place."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _StepsOver}


ALL: tuple[type[Wrong], ...] = (RefusedDropped, SetAsideNowhere, AllRefusedForOne, AllShortened, UnreadableSteppedOver)
