"""The records that wait for a partition in doubt, and the partitions that the others go to."""

import random

import pytest

from index.pending.pending import Entry
from index.protocol.partitioner import partition_of_key
from index.protocol.record import Record
from index.protocol.schedule import BY_KEY, KEEP_KEY, Reason, Rejection, Schedule
from sidecar.engine.payload.records import Refused, Scheduled
from sidecar.engine.ports import Place
from sidecar.engine.release.aside import Aside, Doubt, Doubts, PlaceEnds, doubt_of

DOUBT = Doubt(40, 44, 7)
DELAY, RECEIPTS, REJECTED = ("d", 0), ("d.receipts", 0), "d.rejected"
PARTITIONS = {"out": 3, "other": 5, "small": 1, REJECTED: 2}


def aside(*places: Place, doubt: Doubt | None = DOUBT) -> Aside:
    made = Aside(DELAY, RECEIPTS, REJECTED, PARTITIONS.__getitem__)
    made.use(dict.fromkeys(places, doubt))
    return made


def entry(
    key: bytes | None, *targets: str, partition: int = BY_KEY, own_key: bytes | None = b"", recurs: bool = False
) -> Entry[Scheduled]:
    headers = [("deliver-every", b"PT1S")] if recurs else []
    schedule = Schedule(5_000, targets or ("out",), partition, own_key or KEEP_KEY, None, both_times=False)
    return 5_000, 7, Scheduled(schedule, 10, Record(key, b"v", headers, 1))


@pytest.mark.parametrize(
    ("ends", "first_epoch", "expected"),
    [
        (PlaceEnds(44, 44, 8), None, None),
        (PlaceEnds(40, 44, 8), 8, None),
        (PlaceEnds(40, 44, 8), 7, DOUBT),
        (PlaceEnds(40, 44, 8), None, DOUBT._replace(first_epoch=None)),
        (PlaceEnds(40, 44, None), 7, DOUBT),
        (PlaceEnds(40, 44, None), None, DOUBT._replace(first_epoch=None)),
    ],
)
def test_a_transaction_is_in_doubt_unless_it_began_under_the_leader_of_now(
    ends: PlaceEnds, first_epoch: int | None, expected: Doubt | None
) -> None:
    assert doubt_of(ends, first_epoch) == expected


def test_nothing_waits_without_a_doubt() -> None:
    made = aside()
    one = entry(b"k")
    assert (made.blocking(one), made.routed([one]), made.stops_intake, made.why("b")) == ((), [one], False, "")


def test_a_record_waits_for_its_own_partition_only() -> None:
    """Random keys, partitions and doubts, checked against the definition: a record waits if and only if it would be
    written to a partition in doubt.
    """
    rng = random.Random(7)
    for _ in range(2_000):
        doubted = {each for each in range(3) if rng.random() < 0.4}
        made = aside(*(("out", each) for each in doubted))
        key = rng.choice([None, b"", rng.randbytes(3)])
        partition = rng.choice([BY_KEY, BY_KEY, 0, 1, 2])
        one = entry(key, partition=partition)
        own = partition if partition != BY_KEY else None if key is None else partition_of_key(key, 3)
        waits = len(doubted) == 3 if own is None else own in doubted
        assert bool(made.blocking(one)) is waits
        if not waits:
            (written,) = made.routed([one])
            chosen = written[2].schedule.partition
            assert chosen not in doubted
            assert own is None or not doubted or chosen == own


def test_the_key_that_is_written_decides() -> None:
    doubted = partition_of_key(b"other", 3)
    assert aside(("out", doubted)).blocking(entry(None, own_key=b"other")) == (f"out/{doubted}",)


def test_a_record_with_several_targets_by_key_waits_while_one_of_them_has_a_doubt() -> None:
    """The schedule can name only one partition, and the targets may have different numbers of partitions."""
    made = aside(("other", 4))
    assert made.blocking(entry(b"k", "out", "other")) == ("other/4",)
    assert made.blocking(entry(b"k", "out", "other", partition=1)) == ()
    assert made.blocking(entry(b"k", "out", "small")) == ()


def test_a_doubt_about_the_delay_partition_holds_series_and_controls() -> None:
    made = aside(DELAY)
    assert (made.blocking(entry(b"k", recurs=True)), made.blocking(entry(b"k"))) == (("d/0",), ())
    assert made.stops_intake
    assert aside(RECEIPTS).stops_intake
    assert not aside(("out", 0)).stops_intake


def test_rejections_go_to_another_partition_of_the_rejected_topic() -> None:
    refused = Refused(Rejection(Reason.EXPIRED, "late"), Record(b"k", b"v", (), 1))
    assert [each.partition for _, each in aside((REJECTED, 1)).rejected([(7, refused), (8, refused)])] == [0, 0]
    assert aside(("out", 1)).rejected([(7, refused)]) == [(7, refused)]


@pytest.mark.parametrize(
    ("doubts", "told"),
    [
        ({("out", 0): None}, "records for out/0 wait: these partitions have no leader, or too few in-sync replicas"),
        ({("out", 1): None, ("out", 0): DOUBT}, "records for out/0, out/1 wait: the transaction that is open on out/0"),
        ({("out", each): None for each in range(9)}, "and 4 more wait"),
    ],
)
def test_a_person_is_told_which_records_wait_and_why(doubts: Doubts, told: str) -> None:
    made = aside()
    made.use(doubts)
    assert told in made.why("localhost:9092")
