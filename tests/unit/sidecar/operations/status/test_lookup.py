"""The fate of a record, from a record and a state made for the test; no Kafka."""

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.named.mask import Mask
from index.named.queries import Query
from index.named.receipts import ControlOutcome
from index.pending.progress import BEFORE_ALL, Behind, Position, Progress
from index.protocol.record import Record
from index.protocol.schedule import Attempted, Reason, Schedule
from index.protocol.where import CancelWhere
from index.rules.retrying import Retry
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.config.model import Config
from sidecar.engine.ports import Stored
from sidecar.operations.status import lookup
from sidecar.operations.status.answers import AttemptAnswer, Fate, LookupAnswer
from sidecar.operations.status.lookup import WHY, Lookup
from sidecar.operations.status.receipt_search import FoundQuery, ReceiptContent
from sidecar.operations.status.rejected_search import FoundRejection
from sidecar.operations.status.released_search import Copy
from sidecar.operations.status.searching import NotFinished
from snapshots.segments.manifest import encode_manifest, manifest_key
from snapshots.state.held import HeldEntry, encode_held
from snapshots.state.mask import mask_records
from snapshots.state.queries import encode_query, query_key
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, StoredState, encode_history, encode_progress

DUE_MS = 1_800_000_000_000
RULES = Rules(topic="d", default_target="out", max_delay_ms=3_600_000)
STRICT = replace(RULES, max_delay_ms=1_000)
CONFIG = Config.model_validate(
    {"kafka": {"bootstrap.servers": "b:1"}, "delay_topics": [{"name": "d", "default_target": "out"}]}
)
RECORD = Record(b"canary-key", b"canary-value", [("deliver-at", b"%d" % DUE_MS)], DUE_MS - 60_000)
WRONG = RECORD._replace(headers=[("deliver-at", b"canary")])
STATE = StoredState(
    Progress(cursor=100, watermark=Position(DUE_MS, 50), sealed_to=100, next_bucket=9),
    "id",
    RuleHistory.beginning(0, RULES),
)


class World:
    """The cluster, as the lookup finds it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = (10, 200)
        self.record: Record | None = RECORD
        self.state: StoredState | None = STATE
        self.more: dict[bytes, bytes] = {}
        self.rejected: FoundRejection | Exception | None = None
        self.receipt: ReceiptContent | Exception | None = None
        self.copy: Copy | None = None
        self.query: tuple[CancelWhere, FoundQuery] | None = None
        self.searched: list[tuple[Any, ...]] = []
        self.searched_targets: list[tuple[Any, ...]] = []
        monkeypatch.setattr(lookup, "log_range", lambda *_: self.log)
        monkeypatch.setattr(lookup, "topic_id", lambda *_: "id")
        monkeypatch.setattr(lookup, "read_settled", lambda *_: self._stored())
        monkeypatch.setattr(lookup, "rejected_code", self._search)
        monkeypatch.setattr(lookup, "released_copy", self._released)
        monkeypatch.setattr(lookup, "receipt_about", self._receipt)
        monkeypatch.setattr(lookup, "query_about", self._query)
        monkeypatch.setattr(lookup._One, "_read", lambda _: self.record)

    def __call__(self, offset: int) -> LookupAnswer:
        topic = CONFIG.delay_topic("d")
        assert topic is not None
        client: Any = None
        answer = Lookup(CONFIG, client, lambda: DUE_MS).of(topic, 3, offset)
        assert "canary" not in answer.model_dump_json()
        assert (answer.topic, answer.partition, answer.offset) == ("d", 3, offset)
        return answer

    def _stored(self) -> list[Stored]:
        if self.state is None:
            return []
        state = self.state
        values = {
            PROGRESS_KEY: encode_progress(state.progress, state.delay_topic_id),
            RULES_KEY: encode_history(state.history),
            **{manifest_key(each.bucket_id): encode_manifest(each) for each in state.buckets},
            **{key: value for each in state.held for key, value in encode_held(each)},
            **self.more,
        }
        return [Stored(number, key, value) for number, (key, value) in enumerate(values.items())]

    def _search(self, *arguments: Any) -> FoundRejection | None:
        self.searched.append(arguments[2:])
        if isinstance(self.rejected, Exception):
            raise self.rejected
        return self.rejected

    def _released(self, *arguments: Any) -> Copy | None:
        self.searched_targets.append(arguments[2:])
        return self.copy

    def _receipt(self, *arguments: Any) -> ReceiptContent | None:
        assert arguments[2:4] == ("d.receipts", 3)
        if isinstance(self.receipt, Exception):
            raise self.receipt
        return self.receipt

    def _query(self, *arguments: Any) -> FoundQuery | None:
        assert arguments[2:4] == ("d.receipts", 3)
        return self.query[1] if self.query is not None and arguments[-1](self.query[0]) else None


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Make a world in which everything exists, and the watermark is at (DUE_MS, 50)."""
    return World(monkeypatch)


def test_before_and_behind_the_watermark(world: World) -> None:
    found = world(51)
    assert (found.fate, found.due_ms, found.targets) == (Fate.PENDING, DUE_MS, ("out",))
    assert not world.searched
    found = world(50)
    assert (found.fate, found.due_ms, found.targets, found.code) == (Fate.RELEASED, DUE_MS, ("out",), "")
    assert world.searched == [("d.rejected", "d/3/50", DUE_MS - 60_000)]


def test_the_id_is_told_where_there_is_one(world: World) -> None:
    assert world(51).id is None
    world.record = NAMED
    assert (world(51).id, world(50).id) == ("a", "a")


def test_of_a_released_record_its_copy_says_when(world: World) -> None:
    world.copy = Copy("out/0/17", DUE_MS + 3)
    assert (world(51).released_to, world(51).released_ms) == ("", None)
    assert world.searched_targets == []
    assert (world(50).released_to, world(50).released_ms) == ("out/0/17", DUE_MS + 3)
    assert set(world.searched_targets) == {("out", "d/3/50", DUE_MS)}
    world.copy = None
    assert (world(50).fate, world(50).released_to, world(50).released_ms) == (Fate.RELEASED, "", None)


TO_OUT = CancelWhere("out")


def test_what_a_query_has_cancelled_is_not_told_as_pending(world: World) -> None:
    query = Query(60, TO_OUT, 1)
    world.state = replace(STATE, queries=(query,))
    world.more = {query_key(60): encode_query(query)}
    found = world(51)
    assert (found.fate, found.due_ms, found.why) == (Fate.CANCELLED, DUE_MS, "by the query d/3/60")
    assert world(61).fate is Fate.PENDING


def test_what_no_target_has_may_have_been_cancelled_by_a_query(world: World) -> None:
    world.query = TO_OUT, FoundQuery(60, DUE_MS - 5_000)
    found = world(50)
    assert (found.fate, found.why) == (Fate.CANCELLED, "by the query d/3/60")
    world.query = TO_OUT, FoundQuery(60, DUE_MS + 5_000)
    found = world(50)
    assert (found.fate, found.why) == (Fate.UNKNOWN, "released, or cancelled by the query d/3/60")
    world.copy = Copy("out/0/17", DUE_MS + 3)
    assert world(50).fate is Fate.RELEASED
    world.copy, world.query = None, (CancelWhere("x"), FoundQuery(60, DUE_MS - 5_000))
    assert world(50).fate is Fate.RELEASED


NAMED = RECORD._replace(headers=[*RECORD.headers, ("deliver-id", b"a")])


def test_what_was_cancelled_is_not_told_as_pending_or_released(world: World) -> None:
    world.record = NAMED
    assert world(50).fate is Fate.RELEASED
    forgotten = world(51)
    mask = Mask()
    mask.add([50])
    world.more = {key: value for key, value in mask_records(mask) if value is not None}
    for found in (forgotten, world(50)):
        assert found.fate is Fate.UNKNOWN
        assert found.why == "cancelled or replaced, and d.receipts has the receipt no more"


def test_the_receipt_that_names_it_says_what_became_of_it(world: World) -> None:
    world.record, world.receipt = NAMED, ReceiptContent(77, ControlOutcome.CANCELLED, 2, is_schedule=False)
    for offset in (50, 51):
        found = world(offset)
        assert (found.fate, found.why, found.due_ms) == (Fate.CANCELLED, "by d/3/77", DUE_MS)
    world.receipt = ReceiptContent(77, ControlOutcome.REPLACED, 1, is_schedule=True)
    assert world(50).fate is Fate.REPLACED
    # The rules of its offset are no longer kept, so it is unknown whether the record had an id.
    world.state = replace(STATE, history=RuleHistory.beginning(100, STRICT))
    assert world(50).fate is Fate.REPLACED
    world.state, world.record = STATE, RECORD
    assert world(50).fate is Fate.RELEASED


def test_a_control_is_answered(world: World) -> None:
    world.record = RECORD._replace(headers=[("deliver-cancel", b"a")])
    assert (world(40).fate, world(40).why) == (Fate.UNKNOWN, "it cancels others")
    world.receipt = ReceiptContent(40, ControlOutcome.CANCELLED, 2, is_schedule=False)
    assert (world(40).fate, world(40).why) == (Fate.ANSWERED, "its receipt says cancelled: 2 schedules cancelled")
    world.record, world.receipt = NAMED, ReceiptContent(40, ControlOutcome.CHANGED, 0, is_schedule=False)
    assert (world(40).fate, world(40).why) == (Fate.ANSWERED, "its receipt says changed: 0 schedules cancelled")


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (NotFinished("9 records"), "it may have been cancelled: 9 records"),
        (
            KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),
            "it may have been cancelled: d.receipts may not be read",
        ),
    ],
)
def test_receipts_that_cannot_be_looked_through_leave_it_open(world: World, failure: Exception, why: str) -> None:
    world.record, world.receipt = NAMED, failure
    assert (world(50).fate, world(50).why) == (Fate.UNKNOWN, why)


def test_what_is_not_indexed_yet(world: World) -> None:
    assert (world(100).fate, world(100).why) == (Fate.PENDING, "not indexed yet")
    world.record = WRONG
    found = world(100)
    assert (found.fate, found.code) == (Fate.PENDING, "INVALID_SCHEDULE")
    assert found.why == "not indexed yet; to be rejected: a control header cannot be read"
    world.state = None
    assert (world(100).fate, world(100).why) == (Fate.PENDING, "no router has served the partition yet")


def test_when_it_was_sent_and_whether_it_is_indexed(world: World) -> None:
    sent_ms = RECORD.timestamp_ms
    assert [(world(offset).sent_ms, world(offset).indexed) for offset in (50, 99, 100)] == [
        (sent_ms, True),
        (sent_ms, True),
        (sent_ms, False),
    ]
    world.record = RECORD._replace(timestamp_ms=-1)
    assert (world(50).sent_ms, world(50).indexed) == (None, True)
    world.record = None
    assert (world(50).sent_ms, world(50).indexed) == (None, None)


def test_rejected_by_the_rules_that_held_at_its_offset(world: World) -> None:
    world.state = replace(STATE, history=STATE.history.with_epoch(60, STRICT))
    assert world(59).fate is Fate.PENDING
    found = world(60)
    assert (found.fate, found.code, found.due_ms) == (Fate.REJECTED, "MAX_DELAY_EXCEEDED", None)


def test_rejected_at_release(world: World) -> None:
    world.rejected = FoundRejection(Reason.EXPIRED)
    found = world(50)
    assert (found.fate, found.code, found.targets) == (Fate.REJECTED, "EXPIRED", ("out",))


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (NotFinished("9 records"), "released, or rejected at release: 9 records"),
        (
            KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),
            "released, or rejected at release: d.rejected may not be read",
        ),
    ],
)
def test_what_cannot_be_told_is_not_guessed(world: World, failure: Exception, why: str) -> None:
    world.rejected = failure
    assert (world(50).fate, world(50).why) == (Fate.UNKNOWN, why)


def test_a_cluster_that_does_not_answer_is_no_answer(world: World) -> None:
    world.rejected = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    with pytest.raises(KafkaException):
        world(50)


def test_due_at_once_is_due_when_it_was_sent(world: World) -> None:
    world.record = RECORD._replace(headers=[])
    assert (world(99).fate, world(99).due_ms) == (Fate.RELEASED, RECORD.timestamp_ms)
    assert world.searched[0][2] == RECORD.timestamp_ms - 3_600_000


def test_held_even_when_the_delay_topic_has_let_it_go(world: World) -> None:
    schedule = Schedule(DUE_MS, ("gated",), -1, b"canary", b"an-id", both_times=False)
    world.state = replace(STATE, held=(HeldEntry(5, schedule, RECORD, 1),))
    for record in (RECORD, None):
        world.record = record
        found = world(5)
        assert (found.fate, found.targets) == (Fate.PENDING, ("gated",))
        assert "waits for its target" in found.why


def test_what_is_not_there(world: World) -> None:
    assert world(200).why == "there is no such record yet: the partition ends at offset 200"
    assert world(9).why == "it is gone from the delay topic, which begins at offset 10"
    world.record = None
    assert world(70).why == "there is no record at this offset, but a mark of a transaction"
    assert {world(each).fate for each in (200, 9, 70)} == {Fate.UNKNOWN}


def test_a_state_that_cannot_be_believed(world: World) -> None:
    world.more = {b"news": b"x"}
    assert world(50).fate is Fate.UNKNOWN
    assert "is not known here; upgrade the router" in world(50).why
    world.more = {}
    world.state = replace(STATE, delay_topic_id="other")
    assert world(50).why == "the delay topic was created again, and the state is about the old one"


def test_rules_that_are_kept_no_more(world: World) -> None:
    world.state = replace(STATE, history=RuleHistory.beginning(100, STRICT))
    found = world(20)
    assert (found.fate, found.due_ms, found.targets) == (Fate.RELEASED, None, ())
    world.rejected = FoundRejection(Reason.MAX_DELAY_EXCEEDED)
    assert (world(20).fate, world(20).code) == (Fate.REJECTED, "MAX_DELAY_EXCEEDED")


def test_a_segment_may_have_what_the_delay_topic_has_no_more(world: World) -> None:
    segment = SegmentRef(Position(0, 5), Position(DUE_MS, 8), 2, 10, 0, Placement.INLINE)
    world.state = replace(STATE, buckets=(Manifest(4, 4, 9, None, (segment,)),))
    assert world(8).fate is Fate.UNKNOWN
    assert world(8).why.endswith("a segment has it, and this lists it: delay-router schedules d")
    assert world(9).why.endswith("begins at offset 10")


def test_an_adopted_bucket_has_a_watermark_of_its_own(world: World) -> None:
    segment = SegmentRef(Position(0, 25), Position(DUE_MS, 30), 2, 10, 0, Placement.INLINE)
    adopted = Manifest(4, 20, 40, None, (segment,), built_from=15)
    behind = STATE.progress._replace(catching_up=(Behind(4, BEFORE_ALL),))
    world.state = replace(STATE, progress=behind, buckets=(adopted,))
    assert world(30).fate is Fate.PENDING
    world.record = WRONG
    assert (world(25).fate, world(25).code) == (Fate.PENDING, "INVALID_SCHEDULE")
    assert world(41).fate is Fate.REJECTED
    world.state = replace(STATE, buckets=(adopted,))
    assert world(25).fate is Fate.REJECTED
    world.record = RECORD
    assert world(30).fate is Fate.RELEASED


def test_every_reason_has_words_of_its_own() -> None:
    assert WHY.keys() == set(Reason)
    assert len(set(WHY.values())) == len(WHY)


RETRY = Retry(1_000, 2_000, 60_000, 0, 4, "dead")
COUNTING = Rules(topic="d", default_target="out", max_delay_ms=3_600_000, retry=RETRY)


def test_the_attempt_of_a_record_is_told_with_the_waits_that_may_follow(world: World) -> None:
    world.state = replace(STATE, history=RuleHistory.beginning(0, COUNTING))
    world.record = RECORD._replace(headers=[("delay-attempt", b"2")])
    third = AttemptAnswer(number=3, most=4, exhausted=False, next_waits_ms=(8_000,), dead_letter="dead")
    assert [(each.fate, each.attempt) for each in (world(99), world(100))] == [
        (Fate.RELEASED, third),
        (Fate.PENDING, third),
    ]
    world.record = RECORD._replace(headers=[("Deliver-Attempts-Max", b"20")])
    first = world(99).attempt
    assert first is not None
    assert (first.number, first.most) == (1, 20)
    assert first.next_waits_ms == (2_000, 4_000, 8_000, 16_000, 32_000, *(60_000,) * 3)
    world.record = RECORD._replace(headers=[("delay-attempt", b"4")])
    spent = world(99)
    assert (spent.targets, spent.attempt) == (
        ("dead",),
        AttemptAnswer(number=4, most=4, exhausted=True, dead_letter="dead"),
    )
    world.record, world.rejected = RECORD, FoundRejection(Reason.EXPIRED)
    assert world(50).attempt is None, "no consumer has it"
    world.state, world.rejected = STATE, None
    assert world(50).attempt is None, "nothing is counted"


def test_a_held_attempt_is_told_even_by_rules_that_are_kept_no_more(world: World) -> None:
    schedule = Schedule(DUE_MS, ("out",), -1, b"canary", None, both_times=False, attempt=Attempted(2))
    held = (HeldEntry(5, schedule, RECORD, 1),)
    world.state = replace(STATE, held=held, history=RuleHistory.beginning(0, COUNTING))
    assert world(5).attempt == AttemptAnswer(
        number=2, most=4, exhausted=False, next_waits_ms=(4_000, 8_000), dead_letter="dead"
    )
    world.state = replace(STATE, held=held, history=RuleHistory.beginning(100, COUNTING))
    assert world(5).attempt == AttemptAnswer(number=2, most=None, exhausted=False)
