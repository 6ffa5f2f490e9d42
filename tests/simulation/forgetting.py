"""Models brokers that lose markers, partitions without a leader, and applications that forward released records.

A log is modelled as far as a look can see it: its open transactions in the order in which they began, each with the
leader epoch of its first record. A transaction of a router that stays open because its marker is lost must not be
touched by routers of its group: it would end together with the transaction that touches it, and in the same way.
Routers of another group have other transactional ids. An application writes released records, with their headers, in
its own transactions.
"""

import random
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from sidecar.engine.ports import Place
from sidecar.engine.release.aside import Doubt, Doubts, PlaceEnds, doubt_of
from tests.simulation.violation import Violation

SHARE = 0.35
"""The share of runs in which brokers lose markers."""

LOSS_CHANCE = 0.05
RARE_LOSS_CHANCE = 0.005
"""The chance of a loss for places that every transaction writes to."""

FREQUENT_LOSS_CHANCE = 0.6
"""The chance of a loss for places that few transactions write to."""

OFTEN = 0.95
"""The share of events that happen to places whose outage leaves the others served."""


@dataclass(frozen=True, slots=True)
class Open:
    """An open transaction: its first offset, the leader then, and whether its headers are those of a router.

    ``group`` is the group of the router that has written it; empty: an application has.
    """

    offset: int
    leader_epoch: int
    group: str
    names_us: bool


@dataclass
class Log:
    """A partition as a look sees it."""

    end: int = 0
    leader_epoch: int = 0
    is_led: bool = True
    opened: list[Open] = field(default_factory=list)

    @property
    def ends(self) -> PlaceEnds:
        """The last stable offset, the end and the leader epoch."""
        return PlaceEnds(self.opened[0].offset if self.opened else self.end, self.end, self.leader_epoch)

    def begin(self, group: str, *, names_us: bool) -> None:
        """Open a transaction that writes its first record and some more."""
        self.opened.append(Open(self.end, self.leader_epoch, group, names_us))
        self.end += 3

    def elect(self) -> None:
        """Give the partition another leader."""
        self.leader_epoch += 1

    @property
    def doubt(self) -> Doubt | None:
        """The doubt that the shipped rule finds."""
        return doubt_of(self.ends, self.opened[0].leader_epoch if self.opened else None)


class Brokers:
    """All places that one delay partition writes to."""

    def __init__(
        self, rng: random.Random, *, forget: bool, often: Collection[Place] = (), seldom: Collection[Place] = ()
    ) -> None:
        self._rng = rng
        self.forgets = forget
        self._chances = dict.fromkeys(often, FREQUENT_LOSS_CHANCE) | dict.fromkeys(seldom, RARE_LOSS_CHANCE)
        self.logs: dict[Place, Log] = {}

    def log(self, place: Place) -> Log:
        return self.logs.setdefault(place, Log())

    def written(self, places: Iterable[Place], group: str) -> bool:
        """Let a transaction of a group write to these places and say whether each has a leader.

        Raise Violation if a transaction of the same group is open there.
        """
        touched = [self.log(place) for place in dict.fromkeys(places)]
        if any(each.group == group for log in touched for each in log.opened):
            raise Violation("a transaction that the brokers have forgotten was ended by another one")
        for log in touched:
            log.end += 2
        return all(log.is_led for log in touched)

    def ended(self, places: Iterable[Place], group: str) -> bool:
        """Write the markers of a group's transaction to these places.

        Say whether some were lost, with the connection to a broker.
        """
        if not self.forgets:
            return False
        lost = [place for place in dict.fromkeys(places) if self._rng.random() < self._chances.get(place, LOSS_CHANCE)]
        for place in lost:
            self.log(place).begin(group, names_us=True)
            self.log(place).elect()
        return bool(lost)

    def doubts(self, places: Iterable[Place]) -> Doubts:
        """Return the doubts that a look finds."""
        return dict(self._doubts(places))

    def _doubts(self, places: Iterable[Place]) -> Iterator[tuple[Place, Doubt | None]]:
        for place in places:
            log = self.log(place)
            if not log.is_led:
                yield place, None
            elif (doubt := log.doubt) is not None:
                yield place, doubt

    def doubts_again(self, doubts: Doubts) -> Doubts:
        """Return these doubts without the settled ones."""
        unknown = [place for place, doubt in doubts.items() if doubt is None]
        settled = {place: self.log(place).ends.settled for place in doubts}
        left = {
            place: doubt
            for place, doubt in doubts.items()
            if doubt is not None and (settled[place] < doubt.until_offset or not self.log(place).is_led)
        }
        return {**left, **self.doubts(unknown)}

    def happen(self, places: list[Place], seldom: list[Place]) -> str:
        """Let an event happen to one of these places, or seldom to another, and describe it."""
        if not self.forgets:
            return "nothing"
        for each in seldom:
            self.log(each).opened.clear()
            self.log(each).is_led = True
        place = self._rng.choice(places if self._rng.random() < OFTEN else seldom)
        log, luck = self.log(place), self._rng.random()
        if luck < 0.3:
            log.begin("", names_us=self._rng.random() < 0.6)
            return f"an application has a transaction open on {place}"
        if luck < 0.45:
            log.elect()
            return f"{place} has another leader"
        if luck < 0.55:
            log.is_led = False
            log.elect()
            return f"{place} has no leader"
        log.is_led = True
        if luck < 0.75:
            log.opened = [each for each in log.opened if each.group]
            return f"applications have ended their transactions on {place}"
        log.opened = [each for each in log.opened if not each.group]
        return f"an operator has ended what was forgotten on {place}"

    def settle(self) -> None:
        """Give everything a leader, end every transaction, and let no more events happen."""
        self.forgets = False
        for log in self.logs.values():
            log.is_led = True
            log.opened.clear()


def some_brokers(seed: int, *, often: Collection[Place], seldom: Collection[Place]) -> Brokers:
    """Return brokers, which lose markers in some runs."""
    # A random generator of its own, so that the rest of the run stays the same without it.
    luck = random.Random(f"{seed}, forgets")
    return Brokers(luck, forget=luck.random() < SHARE, often=often, seldom=seldom)
