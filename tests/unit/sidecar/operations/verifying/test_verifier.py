"""The result of a partition, for a person and for a script."""

from sidecar.cluster.topics.findings import Level
from sidecar.operations.verifying.damage import Damage
from sidecar.operations.verifying.verifier import PartitionReport, StoredAmounts

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
