"""The places that a look finds in doubt, and that remain when it looks again; the test answers for the brokers."""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import IsolationLevel, KafkaError
from confluent_kafka.admin import AdminClient, OffsetSpec

from index.errors import NotYetError
from index.pending.progress import BEFORE_ALL, Progress
from index.rules.rule_history import RuleHistory
from sidecar.config.model import Config
from sidecar.engine.ports import Place
from sidecar.engine.release.aside import Doubt, PlaceEnds
from sidecar.kafka.client.admin import LogOffset
from sidecar.kafka.doubts import look
from sidecar.kafka.doubts.look import DoubtFinder
from snapshots.state.state import StoredState

OUT, OUT1 = ("a.out", 0), ("a.out", 1)
STATE, SNAPSHOTS, REJECTED = ("d.delay-state", 0), ("d.delay-snapshots", 0), ("d.rejected", 0)
SETTLED = PlaceEnds(9, 9, 3)


class Brokers:
    """The ends of each partition, the epoch of its first open record, and the partitions without a leader.

    ``silent`` partitions never answer, and ``slow`` ones not before the longest wait of a look. ``out_of_sync`` ones
    have one in-sync replica of two. ``demands`` is ``min.insync.replicas`` of all topics, None if it is hidden.
    """

    def __init__(self) -> None:
        places = [OUT, OUT1, ("b.other", 0), STATE, SNAPSHOTS, REJECTED, ("d", 0), ("d.receipts", 0)]
        self.ends: dict[Place, PlaceEnds] = dict.fromkeys(places, SETTLED)
        self.first_epochs: dict[Place, int] = {}
        self.leaderless: set[Place] = set()
        self.out_of_sync: set[Place] = set()
        self.demands: int | None = 2
        self.described: list[list[str]] = []
        self.silent: set[Place] = set()
        self.slow: set[Place] = set()
        self.read: list[Place] = []

    def list_topics(self, timeout: float) -> object:
        del timeout
        topics: dict[str, Any] = {}
        for name, number in self.ends:
            leader = -1 if (name, number) in self.leaderless else 1
            found = topics.setdefault(name, SimpleNamespace(error=None, partitions={}))
            isrs = [1] if (name, number) in self.out_of_sync else [1, 2]
            found.partitions[number] = SimpleNamespace(leader=leader, replicas=[1, 2], isrs=isrs)
        return SimpleNamespace(topics=topics)

    def settings(self, _: object, names: Iterable[str]) -> dict[str, dict[str, str]]:
        self.described.append([*names])
        if self.demands is None:
            return {}
        return {name: {"min.insync.replicas": f"{self.demands}"} for name in self.described[-1]}

    def offsets(
        self, _: object, wanted: Mapping[Place, OffsetSpec], isolation: IsolationLevel, timeout_s: float
    ) -> dict[Place, LogOffset | KafkaError]:
        assert not self.leaderless & wanted.keys(), "a partition that nobody leads was asked"
        silent = self.silent | (self.slow if timeout_s <= look.ANSWER_WITHIN_S else set())
        return {place: self._told(place, isolation, silent) for place in wanted}

    def _told(self, place: Place, isolation: IsolationLevel, silent: set[Place]) -> LogOffset | KafkaError:
        if place in silent:
            return KafkaError(KafkaError._TIMED_OUT)
        if place not in self.ends:
            return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        ends = self.ends[place]
        return LogOffset(
            ends.settled if isolation is IsolationLevel.READ_COMMITTED else ends.written, ends.leader_epoch
        )

    def first(self, _: object, opened: Iterable[Place]) -> dict[Place, int]:
        self.read += opened
        return {place: self.first_epochs[place] for place in opened if place in self.first_epochs}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr(look, "offsets", made.offsets)
    monkeypatch.setattr(look, "visible_settings", made.settings)
    monkeypatch.setattr(look, "_first_epochs", made.first)
    monkeypatch.setattr(look, "SETTLED_WITHIN_S", 0.05)
    monkeypatch.setattr(look, "LOG_SETTLED_WITHIN_S", 0.05)
    return made


@pytest.fixture
def cluster(brokers: Brokers) -> DoubtFinder:
    config = Config.model_validate(
        {
            "kafka": {"bootstrap.servers": "nobody:1"},
            "delay_topics": [{"name": "d", "default_target": "a.out", "allowed_targets": ["a.*"]}],
        }
    )
    return DoubtFinder(config, config.delay_topics[0], 0, cast("AdminClient", brokers))


@pytest.fixture
def known(cluster: DoubtFinder) -> StoredState:
    rules = cluster._config.rules_for(cluster._topic)
    return StoredState(Progress(0, BEFORE_ALL, 0), "id", RuleHistory.beginning(0, rules))


def test_where_everything_is_settled_no_record_is_read(
    brokers: Brokers, cluster: DoubtFinder, known: StoredState
) -> None:
    assert cluster.look(known) == {}
    assert brokers.read == []


def test_only_open_places_that_may_be_written_to_are_read(
    brokers: Brokers, cluster: DoubtFinder, known: StoredState
) -> None:
    brokers.ends |= {OUT: PlaceEnds(5, 9, 3), OUT1: PlaceEnds(6, 9, 3), ("b.other", 0): PlaceEnds(1, 9, 3)}
    brokers.first_epochs = {OUT: 3, OUT1: 2}
    assert cluster.look(known) == {OUT1: Doubt(6, 9, 2)}
    assert brokers.read == [OUT, OUT1]


def test_a_place_with_too_few_in_sync_replicas_is_in_doubt_until_it_has_enough(
    brokers: Brokers, cluster: DoubtFinder, known: StoredState
) -> None:
    brokers.out_of_sync = {OUT, ("b.other", 0)}
    doubts = cluster.look(known)
    assert doubts == {OUT: None}
    assert brokers.described == [["a.out"]]
    assert cluster.look_again(doubts) == doubts
    brokers.out_of_sync = set()
    assert cluster.look_again(doubts) == {}


@pytest.mark.parametrize("demands", [1, None])
def test_a_place_with_fewer_in_sync_replicas_that_takes_records_or_may_not_be_described_is_used(
    brokers: Brokers, cluster: DoubtFinder, known: StoredState, demands: int | None
) -> None:
    brokers.out_of_sync, brokers.demands = {OUT}, demands
    assert cluster.look(known) == {}


def test_a_place_without_all_replicas_that_may_not_be_described_is_in_doubt_for_a_while_after_a_silence(
    brokers: Brokers, cluster: DoubtFinder, known: StoredState, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.out_of_sync, brokers.demands = {OUT}, None
    cluster._looks.suspect()
    doubts = cluster.look(known)
    assert doubts == cluster.look_again(doubts) == {OUT: None}
    later_s = time.monotonic() + look.SUSPECTS_FOR_S
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    assert cluster.look_again(doubts) == {}


def test_nothing_is_released_while_the_snapshots_have_too_few_in_sync_replicas(
    brokers: Brokers, cluster: DoubtFinder, known: StoredState
) -> None:
    brokers.out_of_sync = {SNAPSHOTS}
    with pytest.raises(NotYetError, match=r"d\.delay-snapshots/0 has no leader, too few in-sync replicas"):
        cluster.look(known)


@pytest.mark.parametrize("how", ["leaderless", "silent"])
def test_a_place_without_an_answer_is_in_doubt_until_it_answers(
    brokers: Brokers, cluster: DoubtFinder, known: StoredState, how: str
) -> None:
    getattr(brokers, how).add(OUT)
    doubts = cluster.look(known)
    assert doubts == {OUT: None}
    assert cluster.look_again(doubts) == doubts
    getattr(brokers, how).clear()
    assert cluster.look_again(doubts) == {}
    # The transaction that is open there now began under an earlier leader.
    brokers.ends[OUT], brokers.first_epochs[OUT] = PlaceEnds(5, 9, 3), 2
    assert cluster.look_again(doubts) == {OUT: Doubt(5, 9, 2)}


def test_a_doubt_ends_once_the_records_of_the_first_look_are_settled(brokers: Brokers, cluster: DoubtFinder) -> None:
    brokers.ends[OUT] = PlaceEnds(7, 30, 3)
    assert cluster.look_again({OUT: Doubt(5, 9, 2)}) == {OUT: Doubt(7, 9, 2)}
    brokers.ends[OUT] = PlaceEnds(9, 30, 3)
    assert cluster.look_again({OUT: Doubt(5, 9, 2)}) == {}
    assert brokers.read == []


def test_a_first_record_that_could_not_be_read_is_read_again(
    brokers: Brokers, cluster: DoubtFinder, known: StoredState
) -> None:
    brokers.ends[OUT] = PlaceEnds(5, 9, 3)
    doubts = cluster.look(known)
    assert doubts == {OUT: Doubt(5, 9, None)}
    brokers.ends[OUT] = PlaceEnds(5, 30, 3)
    assert cluster.look_again(doubts) == doubts
    brokers.first_epochs[OUT] = 3
    assert cluster.look_again(doubts) == {}
    brokers.first_epochs.clear()
    brokers.ends[OUT] = PlaceEnds(9, 30, 3)
    assert cluster.look_again(doubts) == {}


def test_only_a_place_that_the_router_cannot_do_without_has_time_to_answer(
    brokers: Brokers, cluster: DoubtFinder, known: StoredState
) -> None:
    brokers.slow = {OUT, SNAPSHOTS}
    assert cluster.look(known) == {OUT: None}
    brokers.silent = {SNAPSHOTS}
    with pytest.raises(NotYetError, match=r"d\.delay-snapshots/0 has no leader, .* or gives no answer"):
        cluster.look(known)


def test_a_topic_that_is_gone_is_no_reason_to_wait(brokers: Brokers, cluster: DoubtFinder) -> None:
    del brokers.ends[OUT]
    assert cluster.look_again({OUT: None, OUT1: Doubt(5, 10, 2)}) == {OUT1: Doubt(9, 10, 2)}


@pytest.mark.parametrize("place", [SNAPSHOTS, REJECTED])
def test_a_place_that_the_router_cannot_do_without_is_waited_for(
    brokers: Brokers, cluster: DoubtFinder, known: StoredState, place: Place
) -> None:
    brokers.ends[place], brokers.first_epochs[place] = PlaceEnds(5, 9, 3), 2
    with pytest.raises(NotYetError, match=f"{place[0]}/0: the transaction that is open .* describe-producers"):
        cluster.look(known)


def test_the_state_is_waited_for_whoever_has_it_open(brokers: Brokers, cluster: DoubtFinder) -> None:
    cluster.wait_for_state()
    brokers.ends[STATE] = PlaceEnds(5, 9, 3)
    with pytest.raises(NotYetError, match=r"hides the end of d\.delay-state/0 from offset 5 on.* end-transaction d/0"):
        cluster.wait_for_state()
    brokers.silent.add(STATE)
    with pytest.raises(NotYetError, match="gives no answer"):
        cluster.wait_for_state()


def test_the_log_is_waited_for_where_schedules_recur(brokers: Brokers, cluster: DoubtFinder) -> None:
    cluster.wait_for_log()
    brokers.ends["d", 0] = PlaceEnds(5, 9, 3)
    with pytest.raises(NotYetError, match=r"hides the end of d/0 from offset 5 on, and recurring schedules"):
        cluster.wait_for_log()


def test_partitions_that_look_together_hear_of_their_own_places_alone(
    brokers: Brokers, cluster: DoubtFinder, known: StoredState
) -> None:
    other = ("d.delay-snapshots", 1)
    brokers.ends |= {("d", 1): SETTLED, ("d.receipts", 1): SETTLED, other: PlaceEnds(5, 9, 3)}
    brokers.first_epochs = {other: 2}
    asked: list[set[Place]] = []
    answer = brokers.offsets

    def offsets(*args: Any) -> dict[Place, LogOffset | KafkaError]:
        asked.append(set(args[1]))
        return answer(*args)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as threads:
        patch.setattr(look, "offsets", offsets)
        config, topic, admin, looks = cluster._config, cluster._topic, cluster._admin, cluster._looks
        second = DoubtFinder(config, topic, 1, admin, looks)
        with looks.ends._looking:
            found = [threads.submit(each.look, known) for each in (cluster, second)]
            while looks.ends._next is None or not {SNAPSHOTS, other} <= looks.ends._next.keys.keys():
                time.sleep(0.001)
        assert found[0].result() == {}
        with pytest.raises(NotYetError, match=r"d\.delay-snapshots/1"):
            found[1].result()
    # One request for each isolation level, for both partitions.
    assert len(asked) == 2
    assert asked[0] == asked[1] >= {SNAPSHOTS, other, OUT, OUT1}
