"""Which consumers are kept from one page to the next, how many at most, and that all are closed in the end."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Lock
from typing import Final

import pytest
from confluent_kafka import KafkaError, KafkaException

from index.errors import FormatError
from sidecar.operations.finding.cache import Incarnation
from sidecar.operations.finding.store import KEPT_FOR_S, ReaderPool, Readers
from tests.support.hand_clock import HandClock

MOST: Final = 2
ONE: Final = Incarnation("one", "its id", "that of its state")
ONE_AGAIN: Final = Incarnation("one", "another id", "that of its state")
OTHER: Final = Incarnation("other", "its id", "that of its state")
THIRD: Final = Incarnation("third", "its id", "that of its state")


class Fake(Readers):
    """Knows whether it was closed; broken ones fail whoever reads with them."""

    def __init__(self) -> None:
        self.is_closed = False
        self.is_broken = False

    def close(self) -> None:
        assert not self.is_closed, "twice"
        self.is_closed = True

    def read(self) -> "Fake":
        assert not self.is_closed
        if self.is_broken:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return self


class Kept(ReaderPool[Fake]):
    """With a clock that is moved by hand, and all that was ever made."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.made: list[Fake] = []
        super().__init__(self._new, MOST, self.clock.running_s)

    def _new(self) -> Fake:
        self.made.append(Fake())
        return self.made[-1]

    @property
    def open(self) -> list[Fake]:
        return [each for each in self.made if not each.is_closed]

    def ask(self, incarnation: Incarnation) -> Fake:
        return self.read(incarnation, Fake.read)


def test_who_asks_about_the_same_again_gets_the_same() -> None:
    kept = Kept()
    one, other = kept.ask(ONE), kept.ask(OTHER)
    assert one is not other
    assert (kept.ask(ONE), kept.ask(OTHER), kept.ask(ONE)) == (one, other, one)
    assert kept.open == [one, other]


def test_there_are_never_more_than_pages_at_a_time() -> None:
    kept = Kept()
    one, other = kept.ask(ONE), kept.ask(OTHER)
    third = kept.ask(THIRD)
    assert kept.open == [other, third], "the one that was used longest ago went"
    assert one.is_closed


@pytest.mark.parametrize(
    "incarnation", [ONE_AGAIN, Incarnation("one", "its id", None)], ids=["created again", "without a state"]
)
def test_of_a_topic_that_is_another_one_now_nothing_is_kept(incarnation: Incarnation) -> None:
    kept = Kept()
    one, other = kept.ask(ONE), kept.ask(OTHER)
    again = kept.ask(incarnation)
    assert again is not one
    assert kept.open == [other, again]


def test_what_was_not_used_for_long_is_not_used_again() -> None:
    kept = Kept()
    one, other = kept.ask(ONE), kept.ask(OTHER)
    kept.clock.go_on(KEPT_FOR_S)
    assert kept.ask(OTHER) is other
    kept.clock.go_on(1)
    assert kept.ask(OTHER) is other
    assert one.is_closed


def test_kept_ones_that_fail_are_replaced_and_asked_in_vain_no_more() -> None:
    kept = Kept()
    kept.ask(ONE).is_broken = True
    new = kept.ask(ONE)
    assert kept.made == [kept.made[0], new]
    assert kept.open == [new]
    assert kept.ask(ONE) is new


def test_new_ones_that_fail_are_closed_and_the_error_goes_to_the_caller() -> None:
    kept = Kept()

    def fail(fake: Fake) -> None:
        fake.is_broken = True
        fake.read()

    with pytest.raises(KafkaException):
        kept.read(ONE, fail)
    assert (len(kept.made), kept.open) == (1, [])
    with pytest.raises(KafkaException):
        kept.read(ONE, fail)
    assert kept.ask(ONE).read() in kept.open, "there is room again"


def test_what_is_no_fault_of_the_cluster_is_not_done_again() -> None:
    kept, done = Kept(), list[Fake]()

    def fail(fake: Fake) -> None:
        done.append(fake)
        raise FormatError("damaged")

    kept.ask(ONE)
    with pytest.raises(FormatError, match="damaged"):
        kept.read(ONE, fail)
    assert done == kept.made
    assert kept.open == []


def test_all_are_closed_in_the_end_also_those_that_are_lent_then() -> None:
    kept = Kept()

    def close(fake: Fake) -> None:
        kept.close()
        assert not fake.is_closed, "while it is used"

    kept.ask(OTHER)
    kept.read(ONE, close)
    assert kept.open == []
    kept.ask(ONE)
    assert kept.open == []


@pytest.mark.parametrize("seed", range(20))
def test_threads_that_ask_at_once_share_none_and_have_no_more_than_that(seed: int) -> None:
    kept, used, lock, most_open = Kept(), set[Fake](), Lock(), list[int]()

    def work(fails: bool) -> Callable[[Fake], None]:
        def use(fake: Fake) -> None:
            with lock:
                assert fake not in used
                used.add(fake)
            most_open.append(len(kept.open))
            with lock:
                used.remove(fake)
            if fails:
                fake.is_broken = True
                fake.read()

        return use

    def ask(number: int) -> None:
        rng = Random(seed * 1_000 + number)
        for _ in range(20):
            incarnation, fails = rng.choice([ONE, ONE_AGAIN, OTHER, THIRD]), rng.random() < 0.2
            if fails:
                with pytest.raises(KafkaException):
                    kept.read(incarnation, work(fails))
            else:
                kept.read(incarnation, work(fails))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(4)))
    assert max(most_open) <= MOST
    kept.close()
    assert kept.open == []
