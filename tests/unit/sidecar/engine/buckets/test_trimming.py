"""Trim requests: never too much, never two at once, and a failure reported once with its remedy."""

from concurrent.futures import Future
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from structlog.testing import capture_logs

from index.buckets.bucket import Bucket, Manifest, Placement, SegmentRef
from index.buckets.retention import Kept
from index.errors import ClusterError, ClusterTrouble, FormatError, NotYetError
from index.named.id_pages import IdPageRef
from index.partition.partition import PartitionIndex
from index.pending.progress import BEFORE_ALL, Position, Progress
from sidecar.cluster.topics.removal import Removal
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.buckets.trimming import Tombstones, Trimming
from sidecar.engine.context import PartitionContext
from sidecar.engine.limits import LIMITS
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.records import scheduled_size
from sidecar.engine.release.transaction import Request
from sidecar.metrics import Metrics
from snapshots.segments.id_pages import id_page_key
from snapshots.segments.manifest import manifest_key, segment_key
from snapshots.state.series_key import COPY_KEY, decode_copy
from tests.support.hand_clock import HandClock
from tests.support.manifests import manifest

SEGMENTS = (
    SegmentRef(Position(5, 100), Position(9, 110), 9, 10, 40, Placement.INLINE),
    SegmentRef(Position(10, 111), Position(20, 120), 9, 10, 41, Placement.POINTER),
)


@pytest.fixture
def buckets() -> list[Bucket]:
    return [Bucket(Manifest(1, 100, 200, 120, SEGMENTS), BEFORE_ALL)]


NUMBERS = count()
EVERY_S = LIMITS.trim_every_s


def progress(due_ms: int) -> Progress:
    """Return the progress of the next transaction."""
    return Progress(cursor=400, watermark=Position(due_ms, 1 << 40), sealed_to=300, number=next(NUMBERS))


def turn(trims: Trimming, now_s: float, due_ms: int, held: list[Bucket], being_read: tuple[int, ...] = ()) -> None:
    """Take a turn, and another one after the next transaction."""
    trims.turn(now_s, progress(due_ms), held, being_read)
    trims.turn(now_s, progress(due_ms), held, being_read)


class Admin:
    """Notes the removals it is asked for; answers when the test calls it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int]] = []
        self.futures: list[Future[Any]] = []

    def delete_records(self, places: list[TopicPartition], **_: float) -> dict[TopicPartition, Future[Any]]:
        self.asked += [(place.topic, place.partition, place.offset) for place in places]
        self.futures += [Future() for _ in places]
        return dict(zip(places, self.futures[-len(places) :], strict=True))

    def answer(self, code: int | None = None) -> None:
        for future in self.futures:
            if not future.done():
                if code is None:
                    future.set_result(None)
                else:
                    future.set_exception(KafkaException(KafkaError(code)))


class Look:
    """Looks at the backfill topic, and finds the result of the test, at once or later."""

    def __init__(self, *found: Kept | Exception) -> None:
        self._found = found or (Kept(),)
        self.futures: list[Future[Kept]] = []

    def __call__(self) -> Future[Kept]:
        self.futures.append(Future())
        self.answer()
        return self.futures[-1]

    def answer(self) -> None:
        found = self._found[min(len(self.futures), len(self._found)) - 1]
        if isinstance(found, Exception):
            self.futures[-1].set_exception(found)
        else:
            self.futures[-1].set_result(found)


class SlowLook(Look):
    """Answers when the test calls it."""

    def __call__(self) -> Future[Kept]:
        self.futures.append(Future())
        return self.futures[-1]


def trimming(admin: Any, *, trim: bool, look: Look | None = None, key: bytes = b"") -> tuple[Trimming, Metrics]:
    config = DelayTopicConfig.model_validate({"name": "d", "trim": trim})
    metrics = Metrics()
    context = PartitionContext(config, 3, "g", metrics, HandClock())
    return Trimming(context, Removal(admin, "b:1", 3).below, look or Look(), key), metrics


def failures(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("delay_router_trim_failures_total", {"topic": "d"})


def tombstones(*manifests: Manifest, watermark: Position, most: int = 3) -> Tombstones:
    """Return the tombstones of a partition with these buckets; at most ``most`` keys are in a transaction."""
    ledger: PartitionLedger = PartitionIndex(Progress(900, watermark, 900), scheduled_size, manifests)
    return Tombstones(ledger, replace(LIMITS, tombstones=most))


def next_keys(found: Tombstones, *being_read: int, ids_are_read: bool = False) -> tuple[list[bytes], list[bytes]]:
    reclaimed, removed = found.next(being_read, ids_are_read=ids_are_read)
    return [*reclaimed], [*removed]


def commit(found: Tombstones) -> tuple[int, int]:
    """Commit the next tombstones; return how many keys of segments and of manifests they are of."""
    reclaimed, removed = found.next((), ids_are_read=False)
    owner: Any = None
    found.committed(Request(owner, reclaimed=reclaimed, removed=removed))
    return len(reclaimed), len(removed)


def spaced(bucket_id: int, segments: int) -> Manifest:
    """Return a bucket with a segment for each millisecond from 1 on."""
    places = [[(1 + number, 10 * bucket_id + number)] for number in range(segments)]
    return manifest(bucket_id, *places, offsets=(10 * bucket_id, 10 * bucket_id + 10))


def test_segments_that_w_has_passed_get_tombstones_and_the_last_ones_the_manifest_too() -> None:
    found = tombstones(spaced(1, 3), spaced(2, 3), watermark=Position(2, 1 << 40), most=9)
    assert next_keys(found) == ([segment_key(1, 0), segment_key(1, 1), segment_key(2, 0), segment_key(2, 1)], [])
    found = tombstones(spaced(1, 2), spaced(2, 3), watermark=Position(2, 1 << 40), most=9)
    assert next_keys(found, 2) == ([segment_key(1, 0), segment_key(1, 1)], [manifest_key(1)])


def test_a_transaction_has_no_more_tombstones_than_it_may_have() -> None:
    found = tombstones(spaced(1, 6), spaced(2, 6), watermark=Position(5, 1 << 40), most=3)
    assert [commit(found) for _ in range(4)] == [(3, 0), (5, 0), (2, 0), (0, 0)], "but those of a bucket it has begun"


def test_a_bucket_that_is_read_and_pages_while_ids_are_looked_for_stay() -> None:
    with_pages = replace(spaced(1, 1), id_pages=(IdPageRef(b"a" * 16, 1, 9, 40),) * 2)
    found = tombstones(with_pages, spaced(2, 1), watermark=Position(9, 0), most=9)
    assert next_keys(found, 1) == ([segment_key(2, 0)], [manifest_key(2)])
    commit(found)
    assert [*found.orphaned] == [id_page_key(1, 0), id_page_key(1, 1)], "its manifest is gone, and nothing names them"
    assert next_keys(found, ids_are_read=True) == ([], [])
    assert next_keys(found) == ([id_page_key(1, 0), id_page_key(1, 1)], [])
    owner: Any = None
    found.committed(Request(owner, reclaimed=(id_page_key(1, 0), b"another")))
    assert [*found.orphaned] == [id_page_key(1, 1)]
    found.committed(Request(owner, reclaimed=(id_page_key(1, 1), b"another")))
    assert next_keys(found) == ([], [])


def test_the_keys_of_an_adopted_bucket_are_those_of_its_job() -> None:
    adopted = replace(spaced(1, 2), built_from=10, id_pages=(IdPageRef(b"a" * 16, 1, 9, 40),))
    found = tombstones(adopted, watermark=Position(9, 0))
    assert next_keys(found) == ([], [manifest_key(1)])
    commit(found)
    assert not found.orphaned


def test_only_what_is_committed_and_only_once_a_minute(buckets: list[Bucket]) -> None:
    admin = Admin()
    trims, _ = trimming(admin, trim=True)
    turn(trims, 100.0, 0, buckets)
    turn(trims, 100.0 + EVERY_S - 1, 9, buckets)
    assert admin.asked == []
    turn(trims, 100.0 + EVERY_S, 9, buckets)
    # The first segment has left, the second has not; the records it points to are still needed.
    assert admin.asked == [("d.delay-snapshots", 3, 41), ("d", 3, 120)]


def test_the_copy_of_the_key_is_never_removed_before_another_is_written(buckets: list[Bucket]) -> None:
    admin = Admin()
    trims, _ = trimming(admin, trim=False, key=b"k" * 16)
    first = trims.key_copy.request()
    assert first is not None
    [(key, value)] = first.segments
    assert (key, decode_copy(value)) == (COPY_KEY, b"k" * 16)
    turn(trims, 0.0, 9, buckets)
    turn(trims, EVERY_S, 9, buckets)
    # The place where the last owner wrote its copy is not known yet.
    assert admin.asked == []
    first.owner.committed(first, [39])
    assert trims.key_copy.request() is None

    turn(trims, 2 * EVERY_S, 9, buckets)
    assert admin.asked == [("d.delay-snapshots", 3, 39)]
    admin.answer()
    again = trims.key_copy.request()
    assert again is not None
    again.owner.refused(again, "too large")
    assert trims.key_copy.request() is None
    trims.turn(3 * EVERY_S, progress(9), buckets, ())
    again = trims.key_copy.request()
    assert again is not None
    again.owner.committed(again, [57])
    turn(trims, 3 * EVERY_S, 9, buckets)
    assert admin.asked == [("d.delay-snapshots", 3, 39), ("d.delay-snapshots", 3, 41)]
    assert trims.key_copy.request() is None


def test_nothing_while_somebody_reads_what_was_merged_meanwhile(buckets: list[Bucket]) -> None:
    admin = Admin()
    trims, _ = trimming(admin, trim=False)
    turn(trims, 0.0, 9, buckets)
    turn(trims, EVERY_S, 9, buckets, being_read=(0, 1))
    assert admin.asked == []
    assert not trims.wants_commit
    turn(trims, EVERY_S + 1, 9, buckets)
    assert admin.asked == [("d.delay-snapshots", 3, 41)]


def test_the_delay_topic_is_left_alone_unless_configured(buckets: list[Bucket]) -> None:
    admin = Admin()
    trims, _ = trimming(admin, trim=False)
    turn(trims, 0.0, 20, buckets)
    turn(trims, EVERY_S, 20, buckets)
    assert admin.asked == [("d.delay-snapshots", 3, 42)]


def test_without_a_live_segment_up_to_what_was_ever_known(buckets: list[Bucket]) -> None:
    admin = Admin()
    trims, _ = trimming(admin, trim=True)
    for number, (due_ms, held) in enumerate([(0, buckets), (0, buckets), (20, buckets), (20, []), (20, [])]):
        turn(trims, EVERY_S * number, due_ms, held)
        admin.answer()
    # Segments of a seal under way lie from 42 on.
    assert admin.asked == [("d.delay-snapshots", 3, 40), ("d", 3, 120), ("d.delay-snapshots", 3, 42), ("d", 3, 300)]


def test_nothing_known_nothing_removed() -> None:
    admin = Admin()
    trims, _ = trimming(admin, trim=True)
    for number in range(3):
        trims.turn(EVERY_S * number, Progress(0, BEFORE_ALL, 0), [], ())
    assert admin.asked == []


def test_what_a_merge_still_reads_stays(buckets: list[Bucket]) -> None:
    admin = Admin()
    trims, _ = trimming(admin, trim=False)
    turn(trims, 0.0, 20, buckets, (1,))
    turn(trims, EVERY_S, 20, buckets, (1,))
    assert admin.asked == [("d.delay-snapshots", 3, 40)]


def test_nothing_is_asked_while_an_answer_is_out(buckets: list[Bucket]) -> None:
    admin = Admin()
    trims, _ = trimming(admin, trim=False)
    for number in range(4):
        turn(trims, EVERY_S * number, 0 if number < 2 else 9, buckets)
    assert admin.asked == [("d.delay-snapshots", 3, 40)]
    admin.answer()
    turn(trims, EVERY_S * 4, 9, buckets)
    assert admin.asked[1:] == [("d.delay-snapshots", 3, 41)]


def test_what_a_backfill_needs_stays(buckets: list[Bucket]) -> None:
    admin = Admin()
    found = [Kept(snapshots_from=41, delay_topic_from=110), Kept(snapshots_from=42), Kept(delay_topic_from=300)]
    trims, _ = trimming(admin, trim=True, look=Look(*found))
    turn(trims, 0.0, 20, buckets)
    for number in range(1, 4):
        turn(trims, EVERY_S * number, 20, buckets)
        admin.answer()
    assert admin.asked == [("d.delay-snapshots", 3, 41), ("d", 3, 110), ("d.delay-snapshots", 3, 42), ("d", 3, 300)]


def test_it_is_decided_up_to_where_before_a_backfill_is_asked(buckets: list[Bucket]) -> None:
    admin, look = Admin(), SlowLook()
    trims, _ = trimming(admin, trim=False, look=look)
    turn(trims, 0.0, 0, buckets)
    turn(trims, EVERY_S, 0, buckets)
    # Every record has left meanwhile. A job may have announced since then that it writes behind 40.
    turn(trims, EVERY_S + 1, 20, buckets)
    assert admin.asked == []
    look.answer()
    turn(trims, EVERY_S + 2, 20, buckets)
    assert admin.asked == [("d.delay-snapshots", 3, 40)]


@pytest.mark.parametrize("why", [FormatError("of a newer program"), NotYetError("an open transaction")])
def test_nothing_is_trimmed_while_it_cannot_be_told_what_a_backfill_needs(
    why: Exception, buckets: list[Bucket]
) -> None:
    admin = Admin()
    trims, metrics = trimming(admin, trim=True, look=Look(why, why, Kept()))
    for number in range(3):
        turn(trims, EVERY_S * number, 9, buckets)
    assert admin.asked == []
    assert not failures(metrics)
    turn(trims, EVERY_S * 3, 9, buckets)
    assert len(admin.asked) == 2


def test_a_backfill_topic_that_may_not_be_read_is_told_with_its_remedy(buckets: list[Bucket]) -> None:
    admin = Admin()
    denied = ClusterError(ClusterTrouble.OTHER, "denied", remedy="READ is missing: kafka-acls.sh")
    trims, metrics = trimming(admin, trim=False, look=Look(denied))
    with capture_logs() as logs:
        for number in range(3):
            turn(trims, EVERY_S * number, 9, buckets)
    assert admin.asked == []
    assert failures(metrics) == 2
    (line,) = [line for line in logs if line["event"] == "trim_failed"]
    assert line["remedy"] == "READ is missing: kafka-acls.sh"
    assert denied.__traceback__ is None, "the error keeps no frame, and so no index"


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            "DELETE is missing: kafka-acls.sh --bootstrap-server b:1 --add --allow-principal 'User:<router>'",
        ),
        (KafkaError.POLICY_VIOLATION, "--add-config cleanup.policy=[compact,delete],retention.ms=-1,"),
        (KafkaError.REQUEST_TIMED_OUT, ""),
    ],
)
def test_a_failure_is_told_once_counted_and_tried_again(code: int, remedy: str, buckets: list[Bucket]) -> None:
    admin = Admin()
    trims, metrics = trimming(admin, trim=False)
    with capture_logs() as logs:
        for number in range(4):
            turn(trims, EVERY_S * number, 0, buckets)
            admin.answer(code)
        admin.answer(code)
        turn(trims, EVERY_S * 3 + 1, 0, buckets)
    assert admin.asked == [("d.delay-snapshots", 3, 40)] * 3
    assert failures(metrics) == 3
    (line,) = [line for line in logs if line["event"] == "trim_failed"]
    assert (line["topic"], line["partition"]) == ("d.delay-snapshots", 3)
    assert remedy in line["remedy"]
    assert bool(line["remedy"]) == bool(remedy)
    # After a success, a failure is news again.
    with capture_logs() as logs:
        for number, answer in enumerate([None, code, code], start=4):
            turn(trims, EVERY_S * number, 0 if number == 4 else 9, buckets)
            admin.answer(answer)
        turn(trims, EVERY_S * 7, 9, buckets)
    assert len([line for line in logs if line["event"] == "trim_failed"]) == 1


def test_nothing_is_removed_before_a_transaction_shows_that_nobody_else_owns_it(buckets: list[Bucket]) -> None:
    admin = Admin()
    trims, _ = trimming(admin, trim=True)
    turn(trims, 0.0, 20, buckets)
    last = progress(20)
    for more_s in range(3):
        trims.turn(EVERY_S + more_s, last, buckets, ())
        assert trims.wants_commit
    assert admin.asked == []
    trims.turn(EVERY_S + 3, progress(20), buckets, ())
    assert admin.asked == [("d.delay-snapshots", 3, 42), ("d", 3, 300)]
    assert not trims.wants_commit


def test_what_is_adopted_meanwhile_stays(buckets: list[Bucket]) -> None:
    admin = Admin()
    trims, _ = trimming(admin, trim=False)
    turn(trims, 0.0, 20, buckets)
    trims.turn(EVERY_S, progress(20), buckets, ())
    written_before = tuple(
        each._replace(last=Position(99, 1), record_offset=17 + at) for at, each in enumerate(SEGMENTS)
    )
    adopted = Bucket(Manifest(2, 200, 300, None, written_before), BEFORE_ALL)
    trims.turn(EVERY_S, progress(20), [*buckets, adopted], ())
    assert admin.asked == [("d.delay-snapshots", 3, 17)]
