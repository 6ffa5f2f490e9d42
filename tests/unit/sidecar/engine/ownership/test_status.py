"""The status of a partition for callers on other threads than its worker's."""

import pytest

from sidecar.engine.ownership.status import SILENT_AFTER_S, PartitionState, PartitionStatus, ToldStatus
from sidecar.process.partition_collector import PartitionCollector
from tests.support.hand_clock import HandClock

READY = [PartitionState.ACTIVE, PartitionState.PAUSED, PartitionState.DRAINED]


@pytest.mark.parametrize("state", READY)
def test_a_worker_that_is_silent_for_long_waits_for_the_brokers_or_is_at_work(state: PartitionState) -> None:
    clock, said = HandClock(), PartitionStatus("d", 3, state, pending=5)
    told = ToldStatus(clock, PartitionStatus("d", 3, PartitionState.FENCING))
    clock.go_on(60)
    told.tell(said)
    clock.set_back(3_600)
    clock.go_on(SILENT_AFTER_S - 0.5)
    assert told.now() is said
    clock.go_on(2.2)
    assert told.last is said
    with told.asking():
        assert (told.now().state, told.now().pending) == (PartitionState.WAITING, 5)
        assert told.now().why == "the brokers have not answered for 7 s"
    assert (told.now().state, told.now().pending) == (PartitionState.WAITING, 5)
    assert told.now().why == "the router has been at work for 7 s: it waits for no broker, and goes on by itself"
    with pytest.raises(RuntimeError), told.asking():
        raise RuntimeError
    assert "at work" in told.now().why, "an error ends waiting, too"
    told.tell(said)
    assert told.now() is said, "it has spoken since"


def test_silence_is_told_from_its_fifth_second_on() -> None:
    clock, said = HandClock(), PartitionStatus("d", 3, PartitionState.ACTIVE)
    told = ToldStatus(clock, said)
    clock.go_on(SILENT_AFTER_S)
    assert told.now().state is PartitionState.WAITING


def test_a_partition_of_which_nothing_is_known_yet_shows_nothing() -> None:
    status = PartitionStatus("d", 3, PartitionState.FENCING)
    shown = {name: value for name, value in status.as_json().items() if value}
    assert shown == {"state": "fencing"}
    assert (status.snapshot_bytes, status.hidden_s, status.in_doubt, status.masked) == (0, 0.0, 0, 0)


def test_trouble_of_the_topics_is_shown_beside_that_of_the_partition() -> None:
    status = PartitionStatus("d", 3, PartitionState.ACTIVE)
    assert status.beside("") is status
    assert status.beside("no snapshots topic").why == "no snapshots topic"
    assert status.beside("one").beside("two").why == "one; two"


def test_a_drained_partition_is_ready_and_not_served() -> None:
    shown = {state: PartitionStatus("d", 3, state) for state in PartitionState}
    assert [state for state, status in shown.items() if status.ready] == READY
    assert [state for state, status in shown.items() if status.is_served] == READY[:2]


@pytest.mark.parametrize("state", [state for state in PartitionState if state not in READY])
def test_a_worker_that_is_not_ready_may_be_silent(state: PartitionState) -> None:
    clock, said = HandClock(), PartitionStatus("d", 3, state, "its reason")
    told = ToldStatus(clock, said)
    clock.go_on(3_600)
    assert told.now() is said


def test_what_is_held_is_shown_by_target_over_all_partitions_of_a_topic() -> None:
    held: list[dict[str, int]] = [{"a": 3, "b": 1}, {"a": 2}, {}]
    statuses = [PartitionStatus("d", n, PartitionState.ACTIVE, held_by_target=each) for n, each in enumerate(held)]
    (family,) = (
        each
        for each in PartitionCollector(lambda: statuses, lambda: 0).collect()
        if each.name == "delay_router_held_records_by_target"
    )
    assert {sample.labels["target"]: sample.value for sample in family.samples} == {"a": 5, "b": 1}
