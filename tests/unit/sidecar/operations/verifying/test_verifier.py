"""The check of a delay topic: each partition is read once, and damage counts if the state still needs the part."""

from collections.abc import Iterator

import pytest

from index.buckets.bucket import Manifest, Placement
from index.errors import ClusterError, ClusterTrouble, ConfigError
from index.pending.progress import BEFORE_ALL, Position, Progress
from index.protocol.record import Record
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.cluster.topics import reach
from sidecar.cluster.topics.findings import Level
from sidecar.config.model import Config
from sidecar.engine.ports import Stored
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import TopicFacts
from sidecar.operations.verifying import verifier
from sidecar.operations.verifying.damage import Damage
from sidecar.operations.verifying.verifier import PartitionReport, StoredAmounts, verify
from snapshots.segments.manifest import encode_manifest, manifest_key
from snapshots.segments.writing import SegmentWriter
from snapshots.state.inventory import Inventory
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, encode_history, encode_progress

DAMAGE = Damage("segment 3 of bucket 7", "it is gone", "restore it")
STORED = StoredAmounts(buckets=1, segments=2, entries=3_000, id_pages=4)


def test_a_whole_partition_has_one_line_with_its_amounts() -> None:
    (finding,) = PartitionReport("d/0", STORED).findings()
    assert (finding.level, finding.thing) == (Level.OK, "d/0")
    assert finding.message == "whole: 1 bucket, 2 segments, 4 pages of ids, 3,000 entries"
    (finding,) = PartitionReport("d/0").findings()
    assert (finding.level, finding.message) == (Level.OK, "nothing is stored yet")


def test_each_damage_and_a_failed_check_have_a_line() -> None:
    damaged, unread = PartitionReport("d/0", STORED, (DAMAGE,), "Kafka: timed out").findings()
    assert (damaged.level, damaged.message) == (Level.ERROR, "segment 3 of bucket 7: it is gone")
    assert damaged.remedy == "restore it"
    assert (unread.level, unread.message) == (Level.WARN, "could not be checked: Kafka: timed out")


def test_a_script_gets_the_same() -> None:
    assert PartitionReport("d/0", STORED, (DAMAGE,)).as_json() == {
        "partition": "d/0",
        "stored": {"buckets": 1, "segments": 2, "entries": 3_000, "id_pages": 4},
        "damages": [{"thing": "segment 3 of bucket 7", "why": "it is gone", "remedy": "restore it"}],
        "unread": "",
    }
    assert PartitionReport("d/0", unread="x").as_json()["stored"] is None


RULES = encode_history(RuleHistory.beginning(0, Rules(topic="d", default_target="out")))
PROGRESS = Progress(cursor=30, watermark=BEFORE_ALL, sealed_to=20, number=2, next_bucket=8)


def whole() -> tuple[Manifest, bytes]:
    """Return a bucket of one segment, and the value of that segment."""
    writer = SegmentWriter(bucket_id=7, from_offset=10, to_offset=20)
    (made,) = writer.encode(Placement.INLINE, [(5_000, 12, Record(b"k", b"v", [], 1))])
    writer.written([made.ref], record_offsets=[3])
    return writer.manifest(), made.value


MANIFEST, VALUE = whole()


class Cluster:
    """A cluster with one delay topic; each look at the state takes the next of ``states``, and the last one stays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *states: dict[bytes, bytes], partitions: int = 1) -> None:
        self.states = [*states]
        self.snapshots: dict[int, bytes] = {3: VALUE}
        self.end = 4
        self.failure: Exception | None = None
        self.read: list[int] = []
        facts = {
            name: TopicFacts(name, "the id", count, 1, frozenset(), {})
            for name, count in (("d", partitions), ("d.delay-state", 1), ("d.delay-snapshots", 1))
        }
        monkeypatch.setattr(reach, "connect", lambda _: None)
        monkeypatch.setattr(reach, "require_rights", lambda *_: None)
        monkeypatch.setattr(clients, "state_reader", lambda _: self)
        for name, value in (
            ("topic_facts", lambda *_: facts),
            ("log_range", lambda _client, name, _partition: (0, 30) if name == "d" else (0, 9)),
            ("uncommitted_end", lambda *_: self.end),
            ("each_of_part", lambda *_: self.look()),
            ("OffsetReader", lambda *_: self),
        ):
            monkeypatch.setattr(verifier, name, value)

    def look(self) -> Iterator[Stored]:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return iter(Stored(number, key, value) for number, (key, value) in enumerate(state.items()))

    def read_large(self, topic: str, partition: int, offsets: list[int]) -> dict[int, Record | None]:
        assert (topic, partition) == ("d.delay-snapshots", 0)
        self.read += offsets
        if self.failure is not None:
            raise self.failure
        found = {offset: self.snapshots.get(offset) for offset in offsets}
        return {offset: None if value is None else Record(None, value, [], 0) for offset, value in found.items()}

    def close(self) -> None:
        """Do nothing."""


def stored(*buckets: Manifest, progress: Progress = PROGRESS) -> dict[bytes, bytes]:
    inventory = Inventory(tuple(each.bucket_id for each in buckets))
    manifests = {manifest_key(each.bucket_id): encode_manifest(each) for each in buckets}
    return {PROGRESS_KEY: encode_progress(progress, "the id", inventory), RULES_KEY: RULES, **manifests}


def reports(asked: str = "d") -> list[PartitionReport]:
    kafka = {"bootstrap.servers": "b:1"}
    config = Config.model_validate({"kafka": kafka, "delay_topics": [{"name": "d", "default_target": "out"}]})
    return [*verify(config, asked, lambda *_: None)]


def test_a_partition_that_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, stored(MANIFEST))
    assert reports() == [PartitionReport("d/0", StoredAmounts(1, 1, 1, 0))]
    assert cluster.read == [3]


def test_a_missing_segment_is_damage_and_one_that_was_merged_meanwhile_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    Cluster(monkeypatch, stored(MANIFEST)).snapshots.clear()
    (damaged,) = reports()
    assert [each.thing for each in damaged.damages] == ["segment 0 of bucket 7 (d.delay-snapshots/0 offset 3)"]
    Cluster(monkeypatch, stored(MANIFEST), stored()).snapshots.clear()
    assert reports()[0].damages == ()


def test_nothing_is_read_behind_the_end_of_an_incomplete_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, stored(MANIFEST))
    cluster.end = 3
    assert len(reports()[0].damages) == 1
    assert cluster.read == []


def test_what_has_left_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, stored(MANIFEST, progress=PROGRESS._replace(watermark=Position(5_000, 12))))
    assert reports() == [PartitionReport("d/0", StoredAmounts(1, 0, 0, 0))]
    assert cluster.read == []


def test_a_request_that_fails_ends_the_check_of_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, stored(MANIFEST), partitions=2)
    cluster.failure = ClusterError(ClusterTrouble.UNANSWERED, "timed out")
    unread, missing = reports()
    assert (unread.unread, unread.damages) == ("Kafka: timed out", ())
    assert [each.why for each in missing.damages] == ["there is no partition 1 of d.delay-state, d.delay-snapshots"]


def test_a_state_that_is_damaged_or_about_another_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    Cluster(monkeypatch, stored(MANIFEST) | {RULES_KEY: b"garbage"})
    (damaged,) = reports("d/0")
    assert damaged.stored is None
    assert [each.thing for each in damaged.damages] == ["state d.delay-state/0"]
    Cluster(monkeypatch, {**stored(MANIFEST), PROGRESS_KEY: encode_progress(PROGRESS, "another", Inventory((7,)))})
    assert "another topic of the name d" in reports()[0].damages[0].why
    Cluster(monkeypatch, {})
    assert "it is empty" in reports()[0].damages[0].why


@pytest.mark.parametrize(("asked", "message"), [("d/1", "has partitions 0 to 0"), ("d/x", "write TOPIC/PARTITION")])
def test_a_partition_that_does_not_exist(monkeypatch: pytest.MonkeyPatch, asked: str, message: str) -> None:
    Cluster(monkeypatch, stored(MANIFEST))
    with pytest.raises(ConfigError, match=message):
        reports(asked)
