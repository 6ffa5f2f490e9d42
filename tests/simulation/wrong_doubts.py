"""Routers with one mistake each about partitions in doubt; see ``wrong``."""

from collections.abc import Iterable
from typing import ClassVar

from index.pending.pending import Entry
from sidecar.engine.payload.records import Scheduled
from sidecar.engine.ports import Place
from sidecar.engine.release.aside import Aside, Doubt, Doubts, doubt_of
from tests.simulation.forgetting import Brokers, Log
from tests.simulation.replacing import OWNED, Wrong

_BROKERS = "tests.simulation.forgetting."


class _HoldsNothing(Aside):
    def blocking(self, entry: Entry[Scheduled]) -> tuple[str, ...]:
        return ()

    def routed(self, entries: list[Entry[Scheduled]]) -> list[Entry[Scheduled]]:
        return entries


class DoubtIgnored(Wrong):
    """Writes to a target in doubt, behind its own transaction that the brokers have forgotten."""

    replaces: ClassVar = {OWNED + "Aside": _HoldsNothing}


class _TakesIn(Aside):
    @property
    def stops_intake(self) -> bool:
        return False


class ControlsInDoubt(Wrong):
    """Answers controls while the delay partition or its receipts are in doubt."""

    replaces: ClassVar = {OWNED + "Aside": _TakesIn}


class _SeriesGoOn(Aside):
    def blocking(self, entry: Entry[Scheduled]) -> tuple[str, ...]:
        return tuple(name for name in super().blocking(entry) if name != "/".join(map(str, self._own[0])))


class SeriesInDoubt(Wrong):
    """Writes the next occurrence of a series while the delay partition is in doubt."""

    replaces: ClassVar = {OWNED + "Aside": _SeriesGoOn}


class DoubtEndsUnseen(Wrong):
    """Ends a doubt at the next look, even if a transaction is still open."""

    replaces: ClassVar = {_BROKERS + "Brokers.doubts_again": lambda *_: {}}


def _by_headers(log: Log) -> Doubt | None:
    first = next(iter(log.opened), None)
    return None if first is None or not first.names_us else doubt_of(log.ends, first.leader_epoch)


class GoesByHeaders(Wrong):
    """Attributes the first open transaction, and all others behind it, to another producer because of its headers."""

    replaces: ClassVar = {_BROKERS + "Log.doubt": property(_by_headers)}


def _of_the_led(brokers: Brokers, places: Iterable[Place]) -> Doubts:
    logs = {place: brokers.log(place) for place in places}
    return {place: log.doubt for place, log in logs.items() if log.is_led and log.doubt is not None}


class SilenceTrusted(Wrong):
    """Treats a partition that does not answer as one without an open transaction, and writes there once it answers."""

    replaces: ClassVar = {_BROKERS + "Brokers.doubts": _of_the_led}


ALL: tuple[type[Wrong], ...] = (
    DoubtIgnored,
    ControlsInDoubt,
    SeriesInDoubt,
    DoubtEndsUnseen,
    GoesByHeaders,
    SilenceTrusted,
)
