"""Conclusions of a new owner from its reads, one after the other, while another owner may go on writing."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from pyroaring import FrozenBitMap64
from structlog.testing import capture_logs

from index.errors import FormatError, RefusedError, StateLostError
from index.named.series_in_log import SeriesInLog
from index.named.transit import Transit
from index.pending.progress import BEFORE_ALL, Position, Progress, start_of
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.clock import SystemClock
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.context import PartitionContext
from sidecar.engine.ownership import takeover
from sidecar.engine.ownership.origin import Origin, tell_of_origin, write_origin
from sidecar.engine.ownership.restored import Restored
from sidecar.engine.ownership.takeover import read_origin
from sidecar.engine.ports import Stored
from sidecar.engine.release.aside import Doubts
from sidecar.engine.release.transaction import Outcome, Refusals, Result, Transaction
from sidecar.kafka.writing.transactions import FENCE_WITHIN_S, fence
from sidecar.metrics import Metrics
from snapshots.segments.manifest import manifest_key
from snapshots.state.ending import Ending
from snapshots.state.held import held_key
from snapshots.state.inventory import NOTHING_STORED, Inventory
from snapshots.state.lane import LaneName
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, StoredState, fold_state
from tests.support.stored import MANIFEST, golden

TOPIC = DelayTopicConfig(name="d", default_target="out")
SERIES_KEY = b"k" * 16
RULES = Rules("d", default_target="out")
STORED = StoredState(Progress(15, Position(7, 3), 4), "id", RuleHistory.beginning(0, RULES))


class Stands:
    """A partition whose facts the test sets."""

    def __init__(self, stored: StoredState | FormatError | None, ends: Sequence[int] = (20,)) -> None:
        self._stored = stored
        self.later: list[StoredState] = []
        """The state after the fence of each lane."""
        self.ended: list[LaneName] = []
        self._ends = iter(ends)
        self.log_start = 0
        self.uncommitted = 20
        self.committed_offset = -1
        self.starts_at = 0
        self.keys: set[bytes] = set()
        self.in_log = SeriesInLog()
        self.named: set[str] = set()
        self.named_meanwhile: list[str] = []
        """The groups with a claim, and those that write one at the moment of ours."""
        self.steps: list[str] = []

    def delay_topic_id(self) -> str:
        return "id"

    def log_range(self) -> tuple[int, int]:
        return self.log_start, next(self._ends, 20)

    def uncommitted_end(self) -> int:
        return self.uncommitted

    def snapshots_range(self) -> tuple[int, int]:
        return 0, 20

    def lane(self) -> LaneName | None:
        return self._stored.lane if isinstance(self._stored, StoredState) else None

    def end(self, lane: LaneName) -> None:
        if self.later:
            self.ended.append(lane)
            self._stored = self.later.pop(0)

    def groups(self) -> frozenset[str]:
        return frozenset(self.named)

    def claim(self, group: str) -> None:
        self.steps.append(f"claims for {group}")
        self.named |= {group} | set(self.named_meanwhile)

    def end_group(self, group: str) -> None:
        self.steps.append(f"fences {group}")

    def stored(self) -> StoredState | None:
        if isinstance(self._stored, FormatError):
            raise self._stored
        return self._stored

    def state_starts_at(self) -> int:
        return self.starts_at

    def state_keys(self) -> set[bytes]:
        return self.keys

    def staged(self) -> list[Stored]:
        return []

    def may_be_staged(self) -> bool:
        return False

    def series_key(self) -> bytes:
        return SERIES_KEY

    def series(self, key: bytes) -> SeriesInLog:
        assert key == SERIES_KEY
        return self.in_log

    def group_offset(self) -> int:
        return self.committed_offset

    def doubts(self, _: StoredState) -> Doubts:
        return {}


CONTEXT = PartitionContext(TOPIC, 0, "g", Metrics(), SystemClock())


def origin(ends: list[int]) -> Origin:
    """Return the origin when the log of the delay topic has these ends, one at each question."""
    return read_origin(CONTEXT, Stands(STORED, ends), RULES)


def test_each_lane_that_the_state_names_is_fenced_and_the_state_is_read_again() -> None:
    first, second = LaneName("g.lane.a.0", 1), LaneName("g.lane.b.0", 3)
    stands = Stands(replace(STORED, lane=first))
    # The transaction that was on its way gave the state to another lane, which went on.
    stands.later = [replace(STORED, lane=second), replace(STORED, progress=Progress(17, Position(9, 3), 4))]
    found = read_origin(CONTEXT, stands, RULES)
    assert stands.ended == [first, second]
    assert (found.progress.cursor, found.lane) == (17, None)


def test_a_lane_that_cannot_write_any_more_stays_named_until_the_first_transaction() -> None:
    lane = LaneName("g.lane.a.0", 1)
    assert read_origin(CONTEXT, Stands(replace(STORED, lane=lane)), RULES).lane == lane


def test_a_log_that_ends_behind_the_cursor_is_whole_and_asked_about_once() -> None:
    assert origin([15]).progress == STORED.progress


def test_a_cursor_that_somebody_has_moved_meanwhile_is_no_truncated_log() -> None:
    """tests/faults/test_zombies.py meets this case: the old owner stopped after fencing, and goes on beside the new
    one.
    """
    assert origin([10, 20]).progress == STORED.progress


def test_a_truncated_log_is_refused() -> None:
    with pytest.raises(RefusedError, match="ends at offset 11, before the cursor 15: its log was truncated"):
        origin([10, 11])


def test_who_gets_no_answer_begins_with_the_bootstrap_servers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client may know only addresses that no longer exist."""
    now_s = [0.0]

    class Unanswered:
        def init_transactions(self, timeout_s: float) -> None:
            now_s[0] += timeout_s
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))

    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    producer: Any = Unanswered()
    with pytest.raises(KafkaException, match="no answer"):
        fence(producer, lambda: False, "set it")
    assert FENCE_WITHIN_S < now_s[0] < 2 * FENCE_WITHIN_S


def test_a_new_partition_begins_at_the_start_of_its_empty_log() -> None:
    standing = Stands(None, [0])
    standing.uncommitted = standing.committed_offset = 0
    origin = read_origin(CONTEXT, standing, RULES)
    assert origin == Origin(start_of(0), RuleHistory.beginning(0, RULES), "id", lost=0, is_stored=False)


def test_a_log_with_records_but_without_a_state_is_refused() -> None:
    standing = Stands(None, [7])
    with pytest.raises(RefusedError, match=r"d.delay-state/0 is empty, but d/0 holds, or has held, records \(its log "):
        read_origin(CONTEXT, standing, RULES)
    standing = Stands(None, [0])
    standing.uncommitted = 1
    with pytest.raises(RefusedError, match="its log ends at offset 1"):
        read_origin(CONTEXT, standing, RULES)


def test_a_partition_that_the_group_has_served_is_refused_without_its_state() -> None:
    standing = Stands(None, [0])
    standing.uncommitted, standing.committed_offset = 0, 1
    with pytest.raises(RefusedError, match="is empty, but group g has offset 1 for d/0: the state was lost"):
        read_origin(CONTEXT, standing, RULES)


def test_an_empty_state_is_made_anew_where_a_job_has_staged_one(monkeypatch: pytest.MonkeyPatch) -> None:
    restored = Restored(start_of(20), RuleHistory.beginning(0, RULES), (MANIFEST,), ((b"bucket/job/0", 5),))
    monkeypatch.setattr(takeover, "restored_from", lambda *_: (restored, ""))
    origin = read_origin(CONTEXT, Stands(None), RULES)
    assert (origin.progress.cursor, origin.buckets, origin.restored) == (20, (MANIFEST,), restored.withdrawn)


@pytest.mark.parametrize(
    ("log_start", "progress", "lost"),
    [
        (3, STORED.progress, 0),
        (4, STORED.progress, 0),
        (5, STORED.progress._replace(sealed_to=5), 1),
        (16, STORED.progress._replace(cursor=16, sealed_to=16), 12),
    ],
)
def test_records_beyond_s_that_retention_has_removed_are_lost(log_start: int, progress: Progress, lost: int) -> None:
    standing = Stands(STORED)
    standing.log_start = log_start
    origin = read_origin(CONTEXT, standing, RULES)
    assert (origin.progress, origin.lost, origin.is_stored) == (progress, lost, not lost)
    metrics = Metrics()
    with capture_logs() as logs:
        tell_of_origin(PartitionContext(TOPIC, 0, "g", metrics, SystemClock()), origin)
    assert metrics.registry.get_sample_value("delay_router_records_lost_total", {"topic": "d"}) == (lost or None)
    assert [(each["needed_from"], each["log_starts_at"]) for each in logs] == [(4, log_start)] * bool(lost)


def test_other_rules_than_the_last_ones_begin_at_the_cursor_unless_they_may_be_out_of_date() -> None:
    other = replace(RULES, max_delay_ms=5_000)
    origin = read_origin(CONTEXT, Stands(STORED), other)
    assert (origin.history.in_force, origin.history.last.from_offset, origin.is_stored) == (other, 15, False)
    with capture_logs() as logs:
        tell_of_origin(PartitionContext(TOPIC, 0, "g", Metrics(), SystemClock()), origin)
    ((event, by, from_offset),) = [(each["event"], each["by"], each["from_offset"]) for each in logs]
    assert (event, by, from_offset) == ("rules_differ", ["max_delay_ms"], 15)
    origin = read_origin(CONTEXT, Stands(STORED), other, stored_rules_hold=True)
    assert (origin.history.in_force, origin.is_stored, origin.changed) == (RULES, True, ())


def test_a_state_that_cannot_be_read_or_is_of_another_topic_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"state topic d\.delay-state/0 cannot be trusted: damaged"):
        read_origin(CONTEXT, Stands(FormatError("damaged")), RULES)
    with pytest.raises(RefusedError, match=r"was deleted and created again \(id id, the state of group g is about old"):
        read_origin(CONTEXT, Stands(replace(STORED, delay_topic_id="old")), RULES)


def test_a_state_that_an_operator_is_changing_is_refused_with_the_command_that_goes_on() -> None:
    ending = Ending("out", 2, 40, 44, committed=True, producer_id=7)
    with pytest.raises(RefusedError, match="delay-router end-transaction d/0 out/2"):
        read_origin(CONTEXT, Stands(replace(STORED, ending=ending)), RULES)


LOST = StateLostError("the state topic lacks buckets 3: part of the state was lost")


WAITED = ((b"bucket/job/0", 5),)


class Writes:
    """Commits each transaction."""

    def commit(self, transaction: Transaction) -> Result:
        self.written = transaction.state_records("id")
        return Result(Outcome.COMMITTED)

    def find_refused(self, *_: object) -> Refusals:
        raise AssertionError


def _of_lost_state(
    monkeypatch: pytest.MonkeyPatch, restored: Restored | None, why_not: str = "", in_log: SeriesInLog | None = None
) -> Origin:
    standing = Stands(LOST)
    standing.in_log = in_log or SeriesInLog()
    standing.keys = {PROGRESS_KEY, RULES_KEY, manifest_key(0), manifest_key(4), b"held/7/0", b"owed/t/0/3/0/1"}
    monkeypatch.setattr(takeover, "restored_from", lambda *_: (restored, why_not))
    return read_origin(CONTEXT, standing, RULES)


def test_a_state_that_has_lost_a_part_is_refused_with_the_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match=f"^state topic d.delay-state/0: {LOST}") as refused:
        _of_lost_state(monkeypatch, None, "it is of another topic")
    for way_out in (
        "Restore the state topic",
        "python -m spark_backfill rebuild",
        "delay-router start-over d/0",
        "(There is something to restore the state from, but it is of another topic.)",
    ):
        assert way_out in str(refused.value)


def test_what_is_left_of_a_lost_state_is_removed_where_a_job_has_made_it_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    restored = Restored(
        Progress(10_000, BEFORE_ALL, 10_000, 0, 43),
        RuleHistory.beginning(0, RULES),
        (MANIFEST,),
        WAITED,
    )
    origin = _of_lost_state(monkeypatch, restored)
    with_key = restored.progress._replace(series_key=SERIES_KEY)
    assert (origin.progress, origin.is_stored, origin.held) == (with_key, False, ())
    assert sorted(origin.stale) == [manifest_key(0), manifest_key(4), b"held/7/0", b"owed/t/0/3/0/1"]

    transactions = Writes()
    write_origin(transactions, origin, None)
    left = [(manifest_key(0), b""), (b"held/7/0", b""), (b"owed/t/0/3/0/1", b""), (manifest_key(4), b"")]
    found = fold_state([*left, *transactions.written])
    assert found is not None
    assert (found.progress, found.buckets, found.held) == (with_key, (MANIFEST,), ())
    assert found.inventory == Inventory((MANIFEST.bucket_id,))


@pytest.mark.parametrize(("gone", "transit_keys"), [([7, 9_000], 0), ([7, 70_000], 1)])
def test_of_a_state_that_was_made_anew_no_occurrence_is_released_that_another_has_followed(
    monkeypatch: pytest.MonkeyPatch, gone: list[int], transit_keys: int
) -> None:
    restored = Restored(
        Progress(10_000, BEFORE_ALL, 10_000, 0, 43), RuleHistory.beginning(0, RULES), (MANIFEST,), WAITED
    )
    origin = _of_lost_state(monkeypatch, restored, in_log=SeriesInLog(FrozenBitMap64(gone), 1))
    transactions = Writes()
    write_origin(transactions, origin, None)
    found = fold_state(transactions.written)
    assert found is not None
    assert (list(found.mask), found.progress.series_key) == (gone, SERIES_KEY)
    # Records from C on are dropped as well.
    assert Transit(found.transit).reaches == (70_001 if transit_keys else 0)
    assert found.inventory == Inventory((MANIFEST.bucket_id,), 0, 1 + transit_keys, transit_keys)


@pytest.mark.parametrize(("inventory", "starts_at"), [(None, 9), (NOTHING_STORED, 0)])
def test_only_of_a_state_that_does_not_say_what_belongs_to_it_the_beginning_is_asked_for(
    inventory: Inventory | None, starts_at: int
) -> None:
    standing = Stands(replace(STORED, inventory=inventory))
    standing.starts_at = 9
    assert read_origin(CONTEXT, standing, RULES).state_starts_at == starts_at


def test_the_state_of_version_0_1_0_is_taken_over_as_it_is() -> None:
    """The files are from that version, whose progress has no inventory."""
    files = {
        PROGRESS_KEY: "progress-v1.bin",
        RULES_KEY: "rules-v1.bin",
        held_key(4711, 0): "held-v1.bin",
    }
    stored = fold_state([(key, golden(name)) for key, name in files.items()])
    assert stored is not None
    assert stored.inventory is None
    standing = Stands(stored, [stored.progress.cursor])
    standing.delay_topic_id = lambda: stored.delay_topic_id  # type: ignore[method-assign]
    origin = read_origin(CONTEXT, standing, stored.history.in_force)
    assert (origin.progress, origin.history) == (stored.progress, stored.history)
    assert len(origin.held) == 1
    assert origin.held == stored.held
    assert origin.changed == ()
