"""The fate of a record that has left, by its copy, the receipts and the rejected topic; some of them have expired."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from index.pending.progress import Position, Progress
from index.protocol.record import Record
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.config.model import Config
from sidecar.engine.ports import Place, Stored
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import LogOffset
from sidecar.operations.status import lookup, released_search, searching
from sidecar.operations.status.answers import Fate, LookupAnswer
from sidecar.operations.status.lookup import CLOCKS_MS, PRODUCER_CLOCK_MS, Lookup
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, encode_history, encode_progress

DUE_MS: Final = 1_800_000_000_000
WRITTEN_MS: Final = DUE_MS - 60_000
CONFIG: Final = Config.model_validate(
    {"kafka": {"bootstrap.servers": "b:1"}, "delay_topics": [{"name": "d", "default_target": "out"}]}
)
RULES: Final = Rules(topic="d", default_target="out", max_delay_ms=3_600_000)
PROGRESS: Final = Progress(cursor=100, watermark=Position(DUE_MS, 50), sealed_to=100, next_bucket=9)
PLAIN: Final = Record(b"k", b"v", [("deliver-at", b"%d" % DUE_MS)], WRITTEN_MS)
NAMED: Final = PLAIN._replace(headers=[*PLAIN.headers, ("deliver-id", b"a")])
KNOWN: Final = RuleHistory.beginning(0, RULES)
FORGOTTEN: Final = RuleHistory.beginning(90, RULES)
DENIED: Final = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
RECEIPTS_EXPIRED: Final = {"d.receipts": 40}
REJECTED_EXPIRED: Final = {"d.rejected": 70}
PLACE: Final = "d/3/50"
QUERY: Final = [("deliver-cancel-where", b'{"target": "out"}'), ("delay-source", b"d/3/60")]


def message(headers: list[tuple[str, bytes]], value: bytes = b"", at_ms: int = DUE_MS) -> Any:
    """Return a record of any of the topics, as the client hands it over."""
    return SimpleNamespace(
        topic=lambda: "out",
        partition=lambda: 0,
        offset=lambda: 17,
        headers=lambda: headers,
        value=lambda: value,
        timestamp=lambda: (1, at_ms),
    )


COPY: Final = message([("delay-due", b"1"), ("delay-source", PLACE.encode()), ("delay-source-timestamp", b"1")])
REJECTED: Final = message(
    [("delay-error", b"EXPIRED"), ("delay-error-message", b"late"), ("delay-source", PLACE.encode())]
)


@dataclass
class Topics:
    """The topics beside the delay topic, each with records that are late enough for a search, and their consumer.

    ``begins`` has the first offset that still exists, ``asked`` the time from which a topic was searched.
    """

    record: Record = PLAIN
    history: RuleHistory = KNOWN
    progress: Progress = PROGRESS
    records: dict[str, list[Any]] = field(default_factory=dict)
    begins: dict[str, int] = field(default_factory=dict)
    failures: dict[str, Exception] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)

    def list_topics(self, topic: str, _: float) -> Any:
        if topic in self.failures:
            raise self.failures[topic]
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=[3])})

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        [at] = asked
        self.asked[at.topic] = at.offset
        return [TopicPartition(at.topic, 3, self.begins.get(at.topic, 0) if self.records.get(at.topic) else -1)]

    def offsets(self, _: object, wanted: dict[Place, OffsetSpec], __: object) -> dict[Place, LogOffset]:
        [(place, spec)] = wanted.items()
        records = [] if spec is OffsetSpec.earliest() else self.records.get(place[0], [])
        return {place: LogOffset(self.begins.get(place[0], 0) + len(records), None)}

    def scan(self, _: object, ranges: dict[Place, range]) -> Any:
        found = [each for topic, _ in ranges for each in self.records.get(topic, [])]
        return SimpleNamespace(left={}, records=lambda _: iter(found))

    def close(self) -> None:
        """Do nothing."""

    def read_settled(self, *_: Any) -> list[Stored]:
        values = {PROGRESS_KEY: encode_progress(self.progress, "id"), RULES_KEY: encode_history(self.history)}
        return [Stored(number, key, value) for number, (key, value) in enumerate(values.items())]

    def __call__(self) -> LookupAnswer:
        topic = CONFIG.delay_topic("d")
        assert topic is not None
        client: Any = None
        return Lookup(CONFIG, client, lambda: DUE_MS + 5_000).of(topic, 3, 50)


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Topics:
    """Make empty topics that reach back, beside a delay topic whose record 50 has left."""
    made = Topics()
    monkeypatch.setattr(clients, "bulk_reader", lambda _: made)
    monkeypatch.setattr(searching, "offsets", made.offsets)
    monkeypatch.setattr(searching, "PartitionScan", made.scan)
    monkeypatch.setattr(lookup, "log_range", lambda *_: (10, 200))
    monkeypatch.setattr(lookup, "topic_id", lambda *_: "id")
    monkeypatch.setattr(lookup, "read_settled", made.read_settled)
    monkeypatch.setattr(lookup._One, "_read", lambda _: made.record)
    return made


each_kind = pytest.mark.parametrize(
    ("record", "history"), [(NAMED, KNOWN), (PLAIN, KNOWN), (PLAIN, FORGOTTEN)], ids=["named", "plain", "forgotten"]
)


@each_kind
def test_without_a_copy_it_is_released_only_as_long_as_both_reach_back(
    topics: Topics, record: Record, history: RuleHistory
) -> None:
    topics.record, topics.history = record, history
    assert topics().fate is Fate.RELEASED
    for expired in (RECEIPTS_EXPIRED, REJECTED_EXPIRED, RECEIPTS_EXPIRED | REJECTED_EXPIRED):
        topics.begins = expired
        found = topics()
        assert found.fate is Fate.UNKNOWN
        assert " no longer reaches back to 2027-01-15T" in found.why


@each_kind
def test_a_copy_is_certain_also_when_the_others_have_expired(
    topics: Topics, record: Record, history: RuleHistory
) -> None:
    topics.record, topics.history = record, history
    topics.begins = RECEIPTS_EXPIRED | REJECTED_EXPIRED
    topics.records["out"] = [COPY]
    found = topics()
    assert (found.fate, found.released_to, found.released_ms) == (Fate.RELEASED, "out/0/17", DUE_MS)
    assert topics.asked == {"out": DUE_MS - released_search.LEAD_MS}


def test_a_record_that_somebody_copied_from_the_rejected_topic_was_not_released(topics: Topics) -> None:
    topics.records = {"out": [REJECTED], "d.rejected": [REJECTED]}
    assert (topics().fate, topics().code) == (Fate.REJECTED, "EXPIRED")


def test_where_the_receipts_may_not_be_read_a_query_may_have_cancelled_it(topics: Topics) -> None:
    topics.failures["d.receipts"] = DENIED
    assert (topics().fate, topics().why) == (
        Fate.UNKNOWN,
        "released, or cancelled by a query: d.receipts may not be read",
    )
    topics.failures["d.receipts"] = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    with pytest.raises(KafkaException):
        topics()


def test_a_query_may_have_cancelled_a_record_whose_rules_are_kept_no_more(topics: Topics) -> None:
    topics.history = FORGOTTEN
    topics.records["d.receipts"] = [message(QUERY, b'{"outcome": "cancelled-where"}', WRITTEN_MS)]
    assert (topics().fate, topics().why) == (Fate.UNKNOWN, "released, or cancelled by the query d/3/60")


def test_the_rejected_topic_need_not_reach_back_further_than_the_record(topics: Topics) -> None:
    topics()
    assert topics.asked["d.rejected"] == DUE_MS - CLOCKS_MS
    late = DUE_MS + 10 * PRODUCER_CLOCK_MS
    topics.record = PLAIN._replace(timestamp_ms=late)
    topics()
    assert topics.asked["d.rejected"] == late - PRODUCER_CLOCK_MS


def test_what_is_known_of_a_record_is_told_without_the_receipts(topics: Topics) -> None:
    topics.record = PLAIN._replace(headers=[("deliver-cancel", b"a")])
    topics.begins = RECEIPTS_EXPIRED
    gone = "d.receipts no longer reaches back to 2027-01-15T06:59:00Z"
    assert (topics().fate, topics().why) == (Fate.UNKNOWN, f"it cancels others: {gone}")
    # It would be pending, but no bucket has it.
    topics.record, topics.progress = NAMED, PROGRESS._replace(watermark=Position(DUE_MS, 49))
    assert (topics().fate, topics().why) == (Fate.UNKNOWN, f"cancelled or replaced: {gone}")
