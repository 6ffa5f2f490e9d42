"""Brokers that lose markers, partitions without a leader, and applications that forward what they have read.

A log is modelled as far as a look can see it: the transactions that are open there, in the order in which they began,
each with the leader epoch of its first record. A transaction of the router that stays open because its marker is lost
must not be touched: its end would be that of the transaction that touches it. An application writes released records,
with their headers, in transactions of its own.
"""

import random
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from sidecar.doubts.aside import Doubt, Doubts, Ends, doubt_of
from sidecar.ports import Place
from tests.simulation.violation import Violation

SHARE = 0.35
"""Of runs in which brokers lose markers."""

LOSS_CHANCE = 0.05
RARE_LOSS_CHANCE = 0.005
"""Of places that every transaction writes to."""

FREQUENT_LOSS_CHANCE = 0.6
"""Of places that few transactions write to."""

OFTEN = 0.95
"""Of events, those that happen to places without which others are still served."""


@dataclass(frozen=True, slots=True)
class Open:
    """An open transaction: where and under which leader it begins, and whether it, or its headers, are the router's."""

    offset: int
    leader_epoch: int
    is_ours: bool
    names_us: bool


@dataclass
class Log:
    """A partition, as a look sees it."""

    end: int = 0
    leader_epoch: int = 0
    is_led: bool = True
    opened: list[Open] = field(default_factory=list)

    @property
    def ends(self) -> Ends:
        """The last stable offset, the end and the leader epoch."""
        return Ends(self.opened[0].offset if self.opened else self.end, self.end, self.leader_epoch)

    def begin(self, *, is_ours: bool, names_us: bool) -> None:
        """A transaction writes its first record, and some more."""
        self.opened.append(Open(self.end, self.leader_epoch, is_ours, names_us))
        self.end += 3

    def elect(self) -> None:
        """The partition gets another leader."""
        self.leader_epoch += 1

    @property
    def doubt(self) -> Doubt | None:
        """The doubt of the shipped rule."""
        return doubt_of(self.ends, self.opened[0].leader_epoch if self.opened else None)


class Brokers:
    """All places that one delay partition writes to."""

    def __init__(
        self, rng: random.Random, *, forget: bool, often: Collection[Place] = (), seldom: Collection[Place] = ()
    ) -> None:
        self._rng = rng
        self._forgets = forget
        self._chances = dict.fromkeys(often, FREQUENT_LOSS_CHANCE) | dict.fromkeys(seldom, RARE_LOSS_CHANCE)
        self.logs: dict[Place, Log] = {}

    def log(self, place: Place) -> Log:
        """The log of a place."""
        return self.logs.setdefault(place, Log())

    def written(self, places: Iterable[Place]) -> bool:
        """A transaction has written to these places; whether each has a leader. Violation where ours is open."""
        touched = [self.log(place) for place in dict.fromkeys(places)]
        if any(each.is_ours for log in touched for each in log.opened):
            raise Violation("a transaction that the brokers have forgotten was ended by another one")
        for log in touched:
            log.end += 2
        return all(log.is_led for log in touched)

    def ended(self, places: Iterable[Place]) -> bool:
        """Markers are written to these places; whether some were lost, with the connection to a broker."""
        if not self._forgets:
            return False
        lost = [place for place in dict.fromkeys(places) if self._rng.random() < self._chances.get(place, LOSS_CHANCE)]
        for place in lost:
            self.log(place).begin(is_ours=True, names_us=True)
            self.log(place).elect()
        return bool(lost)

    def doubts(self, places: Iterable[Place]) -> Doubts:
        """What a look finds."""
        return dict(self._doubts(places))

    def _doubts(self, places: Iterable[Place]) -> Iterator[tuple[Place, Doubt | None]]:
        for place in places:
            log = self.log(place)
            if not log.is_led:
                yield place, None
            elif (doubt := log.doubt) is not None:
                yield place, doubt

    def doubts_again(self, doubts: Doubts) -> Doubts:
        """What is left of these doubts."""
        unknown = [place for place, doubt in doubts.items() if doubt is None]
        settled = {place: self.log(place).ends.settled for place in doubts}
        left = {
            place: doubt
            for place, doubt in doubts.items()
            if doubt is not None and (settled[place] < doubt.until_offset or not self.log(place).is_led)
        }
        return {**left, **self.doubts(unknown)}

    def happen(self, places: list[Place], seldom: list[Place]) -> str:
        """Let something happen to one of these places, or seldom to another, and say what."""
        if not self._forgets:
            return "nothing"
        for each in seldom:
            self.log(each).opened.clear()
            self.log(each).is_led = True
        place = self._rng.choice(places if self._rng.random() < OFTEN else seldom)
        log, luck = self.log(place), self._rng.random()
        if luck < 0.3:
            log.begin(is_ours=False, names_us=self._rng.random() < 0.6)
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
            log.opened = [each for each in log.opened if each.is_ours]
            return f"applications have ended their transactions on {place}"
        log.opened = [each for each in log.opened if not each.is_ours]
        return f"an operator has ended what was forgotten on {place}"

    def settle(self) -> None:
        """Everything has a leader, everything is ended, and nothing more happens."""
        self._forgets = False
        for log in self.logs.values():
            log.is_led = True
            log.opened.clear()
