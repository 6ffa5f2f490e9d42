"""The size of a transaction: index.partition.transaction_size, against brokers of any bandwidth."""

from dataclasses import dataclass
from random import Random

import pytest

from index.partition.transaction_size import (
    AIM_S,
    FORGET_AFTER_S,
    LEAST_BYTES,
    START_BYTES,
    UNDER_QUOTA,
    TransactionSize,
)

MOST = 64 * 1_048_576
TIMEOUT_S = 60.0
GIVES_UP_S = TIMEOUT_S / 3
"""Seconds that a transaction waits for the brokers to take its records."""


@dataclass
class Brokers:
    """Brokers with a bandwidth in bytes a second and a fixed duration for each transaction."""

    bytes_per_s: float
    beside_s: float
    now_s: float = 1_000.0
    wasted_bytes: int = 0

    def take(self, size: TransactionSize, size_bytes: int) -> bool:
        seconds = self.beside_s + size_bytes / self.bytes_per_s
        if seconds > GIVES_UP_S:
            self.now_s += GIVES_UP_S
            self.wasted_bytes += size_bytes
            size.abandoned(size_bytes)
        else:
            self.now_s += seconds
            size.committed(size_bytes, seconds, self.now_s)
        size.check()
        return seconds <= GIVES_UP_S


def drained(brokers: Brokers, size: TransactionSize, backlog: list[int]) -> tuple[int, float]:
    """Write records of these sizes in order; return the most attempts in vain in a row, and the longest success."""
    at, vain, most_vain, longest_s = 0, 0, 0, 0.0
    while at < len(backlog):
        limit, end, size_bytes = size.limit_bytes(brokers.now_s), at + 1, backlog[at]
        while end < len(backlog) and size_bytes + backlog[end] <= limit:
            size_bytes += backlog[end]
            end += 1
        began_s = brokers.now_s
        if brokers.take(size, size_bytes):
            at, vain = end, 0
            longest_s = max(longest_s, brokers.now_s - began_s)
        else:
            vain += 1
            most_vain = max(most_vain, vain)
    return most_vain, longest_s


def test_a_backlog_leaves_at_any_bandwidth_that_carries_one_record(rng: Random) -> None:
    for _ in range(300):
        record_bytes = int(10 ** rng.uniform(2, 6))
        beside_s = rng.choice([0.003, 0.02, 0.5])
        least = record_bytes / (GIVES_UP_S - beside_s)
        brokers = Brokers(least * 10 ** rng.uniform(0.01, 5), beside_s)
        size = TransactionSize(MOST, TIMEOUT_S)
        count = min(2_000, max(5, int(brokers.bytes_per_s * 3_600 / record_bytes)))
        backlog = [rng.randint(1, record_bytes) for _ in range(count)]
        vain, _ = drained(brokers, size, backlog)
        # Halving from the start size down to one record.
        assert vain <= START_BYTES.bit_length(), brokers
        assert brokers.wasted_bytes <= 2 * START_BYTES, brokers


def test_a_transaction_is_planned_to_take_about_as_long_as_is_aimed_at() -> None:
    """The first few transactions measure the bandwidth; they are not judged."""
    for bytes_per_s in (100_000, 1_000_000, 5_000_000):
        brokers, size = Brokers(bytes_per_s, 0.02), TransactionSize(MOST, TIMEOUT_S)
        drained(brokers, size, [1_000] * (bytes_per_s // 40))
        _, longest_s = drained(brokers, size, [1_000] * (bytes_per_s // 20))
        assert AIM_S / 4 < longest_s < 2.5 * AIM_S


def test_fast_brokers_are_given_all_that_may_be_in_one_after_a_few() -> None:
    brokers, size = Brokers(100e6, 0.01), TransactionSize(MOST, TIMEOUT_S)
    drained(brokers, size, [1_000] * 70_000)
    assert size.limit_bytes(brokers.now_s) == MOST


def test_what_is_small_goes_on_small_transactions_until_one_is_full(rng: Random) -> None:
    size = TransactionSize(MOST, TIMEOUT_S)
    for _ in range(100):
        size.committed(rng.randrange(2_000), 0.01, 1_000.0)
    assert size.limit_bytes(1_000.0) == START_BYTES


def test_it_grows_again_when_the_brokers_are_fast_again() -> None:
    brokers, size = Brokers(2_000, 0.01), TransactionSize(MOST, TIMEOUT_S)
    drained(brokers, size, [1_000] * 200)
    assert size.limit_bytes(brokers.now_s) <= LEAST_BYTES
    brokers.bytes_per_s = 50e6
    began_s = brokers.now_s
    drained(brokers, size, [1_000] * 50_000)
    assert brokers.now_s - began_s < 3.0


def test_a_hiccup_of_a_small_transaction_costs_a_few_more_of_them() -> None:
    size = TransactionSize(MOST, TIMEOUT_S)
    size.committed(300, 9.0, 1_000.0)
    assert size.limit_bytes(1_000.0) == START_BYTES // 4
    for _ in range(2):
        size.committed(300, 0.005, 1_000.0)
    assert size.limit_bytes(1_000.0) == START_BYTES


def test_a_backlog_of_a_few_bytes_leaves_in_one_transaction_however_long_the_brokers_hold_it_back() -> None:
    """Another partition may use up the quota of the client."""
    size = TransactionSize(MOST, TIMEOUT_S)
    for _ in range(50):
        size.throttled(1_000.0)
        size.committed(300, 4.0, 1_000.0)
        size.check()
    assert size.limit_bytes(1_000.0) == LEAST_BYTES


def test_transactions_take_a_part_of_the_time_while_a_quota_is_used_up() -> None:
    brokers, size = Brokers(1_000_000, 0.02), TransactionSize(MOST, TIMEOUT_S)
    size.throttled(brokers.now_s)
    drained(brokers, size, [1_000] * 30_000)
    size.throttled(brokers.now_s)
    rate = size.carries(5_000_000, brokers.now_s), size.carries(20_000_000, brokers.now_s)
    _, longest_s = drained(brokers, size, [1_000] * 30_000)
    assert 0.5 < longest_s * UNDER_QUOTA / AIM_S < 1.5
    assert rate == (True, False), "segments go by the speed of the brokers, as without a quota"
    brokers.now_s += FORGET_AFTER_S
    _, longest_s = drained(brokers, size, [1_000] * 30_000)
    assert 0.5 < longest_s / AIM_S < 2.5


def test_a_quota_by_itself_does_not_change_which_segments_go_along() -> None:
    size = TransactionSize(MOST, TIMEOUT_S)
    for _ in range(20):
        size.committed(LEAST_BYTES, 60.0, 1_000.0)
    assert (size.carries(400_000, 1_000.0), size.carries(600_000, 1_000.0)) == (True, False)
    size.throttled(1_000.0)
    assert (size.carries(400_000, 1_000.0), size.carries(600_000, 1_000.0)) == (True, False)


def test_after_an_outage_it_is_back_within_some_twenty_transactions() -> None:
    size = TransactionSize(MOST, TIMEOUT_S)
    for _ in range(50):
        size.abandoned(900)
    assert size.limit_bytes(1_000.0) == 1
    for _ in range(20):
        size.committed(max(size.limit_bytes(1_000.0), 900), 0.01, 1_000.0)
    assert size.limit_bytes(1_000.0) == MOST


def test_what_was_learned_is_forgotten_when_nothing_has_shown_it_for_a_while() -> None:
    size = TransactionSize(MOST, TIMEOUT_S)
    for _ in range(10):
        size.committed(size.limit_bytes(1_000.0), 0.1, 1_000.0)
    assert size.limit_bytes(1_000.0 + FORGET_AFTER_S) == MOST
    assert size.limit_bytes(1_001.0 + FORGET_AFTER_S) == START_BYTES


@pytest.mark.parametrize("timeout_s", [1.0, 15.0, 60.0, 900.0])
def test_segments_go_along_while_they_leave_room_in_the_timeout(timeout_s: float) -> None:
    size = TransactionSize(MOST, timeout_s)
    assert size.carries(2 << 20, 0.0)
    while size.carries(2 << 20, 0.0):
        size.abandoned(size.limit_bytes(0.0))
    assert size.carries(0, 0.0)
    # The first transaction that is large enough by itself shows that segments fit again.
    while not size.carries(2 << 20, 0.0):
        before = size.limit_bytes(0.0)
        size.committed(100, 0.01, 0.0)
        assert size.limit_bytes(0.0) > before
