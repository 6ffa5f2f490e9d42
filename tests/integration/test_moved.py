"""Tests of moves of pending schedules to another due time: in any place, across crashes, and more than once."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from sidecar.dev.audit import AuditedRecord
from tests.integration.scenario import Header, Stage, header, now_ms, released_due_ms, wait_until
from tests.integration.stored_buckets import state

HOUR_MS = 3_600_000
MOST_BYTES = 2_000
OVERHEAD_BYTES = 150
"""More than a batch of one schedule has beside the value, and less than a batch of a moved one has."""


def at(due_ms: int) -> Header:
    return "deliver-at", b"%d" % due_ms


def answers_of(records: list[AuditedRecord]) -> dict[bytes, list[dict[str, Any]]]:
    """Return the contents of the receipts, by id and in their order."""
    found: dict[bytes, list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault(record.key or b"", []).append(json.loads(record.value or b""))
    return found


def test_what_is_moved_leaves_at_its_new_time_as_it_was_sent(stage: Stage) -> None:
    out, other = stage.target(), stage.target("other", partitions=3)
    delay = stage.delay(default_target=out, allowed_targets=[other], seal_age="1s", seal_beyond="0ms", seal_records=600)
    with stage.router() as router:
        router.start_and_wait()
        far_ms = now_ms() + HOUR_MS
        asks: list[Header] = [("deliver-to", other.encode()), ("deliver-key", b"own"), ("deliver-partition", b"2")]
        stage.send(delay, ("deliver-id", b"sealed"), ("trace", b"1"), *asks, at(far_ms), ("trace", b"2"), value=b"s")
        stage.send(delay, ("deliver-id", b"spared"), at(far_ms), value=b"never")
        wait_until(lambda: any(state(stage, delay).buckets), "they are in a bucket")
        router.kill()
        router.start_and_wait()
        for value in (b"first", b"last"):
            stage.send(delay, ("deliver-id", b"memory"), at(far_ms + 1), value=value)
        soon_ms = now_ms() + 5_000
        move = stage.send(delay, ("deliver-move", b"memory"), at(far_ms + 2), ("correlation", b"7"))
        # This control lies in front of the record that the first move appends, and holds for that record.
        stage.send(delay, ("deliver-move", b"memory"), at(soon_ms), ("deliver-if-due", b"%d" % (far_ms + 2)))
        stage.send(delay, ("deliver-move", b"spared"), at(soon_ms), ("deliver-if-due", b"%d" % (far_ms + 1)))
        stage.send(delay, ("deliver-move", b"nobody"), at(soon_ms))
        stage.send(delay, ("deliver-move", b"sealed"), at(soon_ms))
        receipts = stage.wait_records(f"{delay}.receipts", 5)
        router.kill()
        router.start_and_wait()
        (sealed,), (last,) = stage.wait_records(other, 1), stage.wait_records(out, 1)
        stage.send(delay, ("deliver-cancel", b"memory"))
        assert answers_of(stage.wait_records(f"{delay}.receipts", 6))[b"memory"][-1]["outcome"] == "not-pending"
        assert router.stop() == 0
    told = answers_of(receipts)
    assert {name: [each["outcome"] for each in said] for name, said in told.items()} == {
        b"memory": ["moved", "moved"],
        b"spared": ["changed"],
        b"nobody": ["not-pending"],
        b"sealed": ["moved"],
    }
    first, second = told[b"memory"]
    assert ([each["due"] for each in first["cancelled"]], first["due"]) == ([far_ms + 1] * 2, far_ms + 2)
    assert ([each["due"] for each in second["cancelled"]], second["due"]) == ([far_ms + 2], soon_ms)
    assert header(receipts[0], "correlation") == b"7"
    assert (last.value, header(last, "delay-id"), header(last, "delay-due")) == (b"last", b"memory", b"%d" % soon_ms)
    assert (sealed.partition, sealed.key, sealed.value) == (2, b"own", b"s")
    assert [raw for name, raw in sealed.headers if name == "trace"] == [b"1", b"2"]
    report = stage.audit()
    assert report.ok, report.samples
    # If both moves of one schedule leave in one transaction, no record is written for the first.
    is_unwritten = move == f"{delay}/0/{second['cancelled'][0]['offset']}"
    assert (report.released_once, report.pending, report.moved, report.answered) == (2, 1, 4 - is_unwritten, 6)


@pytest.mark.parametrize("placement", ["inline", "pointer"])
def test_what_is_in_a_bucket_is_moved_whether_the_delay_topic_still_has_it_or_not(
    stage: Stage, kafka_admin: AdminClient, placement: str
) -> None:
    out = stage.target()
    options: dict[str, Any] = {"seal_age": "1s", "seal_beyond": "0ms", "seal_records": 600, "segment_records": 2}
    delay = stage.delay(default_target=out, placement=placement, **options)
    with stage.router() as router:
        router.start_and_wait()
        far_ms = now_ms() + HOUR_MS
        for number in range(7):
            name = b"order-%d" % number
            stage.send(delay, ("deliver-id", name), at(far_ms + number), value=name)
        wait_until(lambda: any(state(stage, delay).buckets), "they are in a bucket")
        router.kill()
        if placement == "inline":
            _trim(kafka_admin, delay, 7)
        router.start_and_wait()
        soon_ms = now_ms() + 3_000
        for number in (6, 3, 0):
            stage.send(delay, ("deliver-move", b"order-%d" % number), at(soon_ms + number))
        released = stage.wait_records(out, 3)
        assert [each.value for each in released] == [b"order-0", b"order-3", b"order-6"]
        assert router.stop() == 0
    told = answers_of(stage.records(f"{delay}.receipts"))
    assert told[b"order-3"][0]["cancelled"] == [{"offset": 3, "due": far_ms + 3}]


def test_an_occurrence_that_is_moved_keeps_its_number_and_its_series_goes_on_from_there(stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out, recurring=True, min_period="50ms", max_delay="2h")
    with stage.router() as router:
        router.start_and_wait()
        series: list[Header] = [("deliver-id", b"s"), ("deliver-every", b"1s"), ("deliver-times", b"3")]
        stage.send(delay, *series, at(now_ms() + HOUR_MS), value=b"v")
        soon_ms = now_ms() + 3_000
        stage.send(delay, ("deliver-move", b"s"), at(soon_ms))
        released = stage.wait_records(out, 3)
        assert router.stop() == 0
    assert [header(each, "delay-occurrence") for each in released] == [b"1", b"2", b"3"]
    dues_ms = [released_due_ms(each) for each in released]
    assert dues_ms == [soon_ms, soon_ms + 1_000, soon_ms + 2_000]
    report = stage.audit()
    assert report.ok, report.samples
    assert (report.released_once, report.moved, report.answered) == (3, 1, 1)


def _trim(admin: AdminClient, topic: str, to_offset: int) -> None:
    """Remove the records below an offset, as retention does."""
    done: Callable[[], object] = admin.delete_records([TopicPartition(topic, 0, to_offset)])[
        TopicPartition(topic, 0)
    ].result
    done()


@pytest.mark.parametrize("lanes", [0, 1])
def test_a_move_that_the_delay_topic_refuses_leaves_the_schedule_where_it_was(
    lanes: int, stage: Stage, rng: Random
) -> None:
    """The moved record has more headers, and so it is too large; the first one still leaves when it was due."""
    out = stage.target()
    delay = stage.delay("delay", 1 + lanes, default_target=out, config={"max.message.bytes": str(MOST_BYTES)})
    with stage.router(lanes=lanes) as router:
        router.start_and_wait()
        due_ms = now_ms() + 6_000
        value = rng.randbytes(MOST_BYTES - OVERHEAD_BYTES)
        stage.send(delay, ("deliver-id", b"large"), at(due_ms), value=value)
        stage.send(delay, ("deliver-move", b"large"), at(due_ms + HOUR_MS))
        (told,) = answers_of(stage.wait_records(f"{delay}.receipts", 1))[b"large"]
        assert told["outcome"] == "not-moved"
        assert delay in told["why"]
        (released,) = stage.wait_records(out, 1)
        assert (released.value, header(released, "delay-due")) == (value, b"%d" % due_ms)
        assert router.stop() == 0
    report = stage.audit()
    assert report.ok, report.samples
