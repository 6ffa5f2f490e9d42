"""Tests of ``rebuild``: the pending records after a loss of the state, and a router that goes on from them."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from sidecar.kafka.client.admin import log_range
from snapshots.segments.manifest import encode_manifest, manifest_key
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, encode_history, encode_progress
from spark_backfill.build import rebuild_job
from spark_backfill.build.index_job import Options
from spark_backfill.build.scope import Asked
from spark_backfill.errors import JobError
from tests.integration.scenario import TIMEOUT_S, Header, Stage, now_ms, wait_until
from tests.integration.stored_buckets import delete_records, state, truncate
from tests.spark.backfill import (
    delay_topic,
    lose_state,
    pending_offsets,
    rebuild,
    settings_of,
    staged,
    wait_for_end_of_session,
)

HOUR_MS = 3_600_000


def test_a_router_goes_on_after_its_state_was_lost(
    spark: SparkSession, stage: Stage, tmp_path: Path, rng: Random
) -> None:
    out, other = stage.target(), stage.target("other")
    delay = delay_topic(stage, default_target=out, allowed_targets=[other], seal_age="1s", seal_records=100)
    later_ms = now_ms() + 60_000
    for number in range(600):
        headers: list[Header] = [("n", b"%d" % number)]
        match rng.randrange(4):
            case 0:
                headers.append(("deliver-after", b"never"))  # to be rejected
            case 1:
                headers.append(("deliver-at", b"%d" % (later_ms + rng.randrange(1_000))))
            case 2:
                headers += [("deliver-to", other.encode()), ("deliver-after", b"%d" % rng.randrange(1_500))]
            case _:
                headers.append(("deliver-after", b"%d" % rng.randrange(1_500)))
        stage.post(delay, *headers, value=b"%d" % number)
    stage.flush()
    with stage.router() as router:
        router.start_and_wait()
        gone = (
            stage.wait_records(out, 100) + stage.wait_records(other, 100) + stage.wait_records(f"{delay}.rejected", 90)
        )
        assert len(gone) < 600
        with pytest.raises(JobError, match="has members"):
            rebuild(spark, stage, tmp_path, delay)
        router.stop()
    wait_for_end_of_session(stage, tmp_path)
    with pytest.raises(JobError, match="it is not lost"):
        rebuild(spark, stage, tmp_path, delay)
    left = {
        int(dict(record.headers)["delay-source"].decode().split("/")[2])  # type: ignore[union-attr]
        for topic in (out, other, f"{delay}.rejected")
        for record in stage.records(topic)
    }
    lose_state(stage, delay)

    outcome = rebuild(spark, stage, tmp_path, delay)

    pending = pending_offsets(stage, delay)
    assert pending == sorted(set(range(600)) - left)
    assert outcome.entries == len(pending) > 100
    with stage.router() as router:
        router.start_and_wait()
        stage.settle(timeout_s=120)


def test_what_the_targets_no_longer_hold_must_be_spoken_for(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    out = stage.target()
    delay = delay_topic(stage, default_target=out, begun=False)
    moment_ms = now_ms()
    for offset in range(20):
        stage.send(delay, ("deliver-at", b"%d" % (moment_ms + offset * 1_000)))
    for each in stage.records(delay)[:10]:
        stage.send(out, *provenance(delay, each.offset, each.timestamp_ms))
    (future,) = stage.admin.delete_records([TopicPartition(out, 0, 5)]).values()
    future.result(TIMEOUT_S)

    with pytest.raises(JobError, match=rf"{out}/0 begins at offset 5.*--released-before"):
        rebuild(spark, stage, tmp_path, delay)
    assert stage.records(f"{delay}.delay-backfill") == []
    written_ms = max(each.timestamp_ms for each in stage.records(delay))
    rebuild(spark, stage, tmp_path, delay, released_before_ms=max(written_ms, moment_ms + 4_000))
    due_by_then = {offset for offset in range(20) if moment_ms + offset * 1_000 <= written_ms}
    assert pending_offsets(stage, delay) == sorted(set(range(10, 20)) - due_by_then)


def test_without_the_rejected_topic_no_rejected_record_is_rejected_again(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    delay = delay_topic(stage, default_target=stage.target(), begun=False)
    stage.send(delay, ("deliver-at", b"soon"))
    stage.delete(f"{delay}.rejected")
    with pytest.raises(
        JobError, match=rf"{delay}\.rejected does not exist, or the job may not see it.*--released-before"
    ):
        rebuild(spark, stage, tmp_path, delay)
    assert staged(stage, delay) == ([], [])


@pytest.mark.parametrize("header", ["deliver-to", "delay-target", ""])
def test_a_target_that_is_gone_must_be_spoken_for(
    spark: SparkSession, stage: Stage, tmp_path: Path, header: str
) -> None:
    out, other = stage.target(), stage.target("other")
    retry = {"retry": {"first": "1m", "attempts": 2, "dead_letter": stage.target("dead")}}
    rules: dict[str, Any] = retry if header == "delay-target" else {}
    delay = delay_topic(stage, default_target=out, allowed_targets=[f"{other}*"], begun=False, **rules)
    to: list[Header] = [(header, other.encode())] if header else []
    stage.send(delay, ("deliver-at", b"1"), *to)
    stage.send(delay, ("deliver-at", b"1"), ("deliver-to", b"forbidden"))
    (sent_ms, _) = [each.timestamp_ms for each in stage.records(delay)]
    stage.send(other if header else out, *provenance(delay, 0, sent_ms))
    assert rebuild(spark, stage, tmp_path, delay).entries == 1
    gone = other if header else out
    stage.delete(gone)
    with pytest.raises(JobError, match=rf"{gone} does not exist, or the job may not see it.*--released-before.*create"):
        rebuild(spark, stage, tmp_path, delay)
    rebuild(spark, stage, tmp_path, delay, released_before_ms=now_ms())
    assert pending_offsets(stage, delay) == []


def named(name: bytes, due_ms: int, *more: Header) -> list[Header]:
    """Return the headers of a schedule with that id."""
    return [("deliver-id", name), ("deliver-at", b"%d" % due_ms), *more]


def test_what_controls_have_cancelled_is_not_pending_again(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    delay = delay_topic(stage, default_target=stage.target())
    far_ms = now_ms() + 90_000
    with stage.router() as router:
        router.start_and_wait()
        for name in (b"kept", b"cancelled", b"replaced", b"moved"):
            stage.send(delay, *named(name, far_ms), value=name)
        # Not due before a slow machine reads the open control.
        stage.send(delay, *named(b"open", far_ms + HOUR_MS), value=b"open")
        stage.send(delay, ("deliver-cancel", b"cancelled"))
        stage.send(delay, *named(b"replaced", far_ms + 1, ("deliver-replace", b"true")), value=b"instead")
        no_more: Header = ("deliver-if-due", b"7")
        stage.send(delay, *named(b"kept", far_ms, ("deliver-replace", b"true"), no_more), value=b"never")
        stage.send(delay, ("deliver-move", b"moved"), ("deliver-at", b"%d" % (far_ms + 2)))
        stage.send(delay, ("deliver-cancel", b"nobody"))
        stage.wait_records(f"{delay}.receipts", 5)
        wait_until(lambda: len(stage.records(delay)) == 11, "what was moved is written again")
        assert router.stop() == 0
    stage.send(delay, ("deliver-cancel", b"open"))
    stage.send(delay, *named(b"later", far_ms), value=b"later")
    wait_for_end_of_session(stage, tmp_path)
    lose_state(stage, delay)

    rebuild(spark, stage, tmp_path, delay)

    by_value = {each.value: each.offset for each in stage.records(delay)}
    # The last record with a value is the one that was appended by a move.
    pending = {by_value[name] for name in (b"kept", b"instead", b"moved", b"open")}
    assert pending_offsets(stage, delay) == sorted(pending)
    with stage.router() as router:
        router.start_and_wait()
        (told,) = [each for each in stage.wait_records(f"{delay}.receipts", 6) if each.key == b"open"]
        assert b'"outcome": "cancelled"' in (told.value or b"")
        report = stage.settle(timeout_s=150)
    assert sorted(each.value or b"" for each in stage.records(stage.targets[0])) == [
        b"instead",
        b"kept",
        b"later",
        b"moved",
    ]
    assert (report.cancelled, report.replaced, report.moved, report.answered) == (2, 1, 1, 5)


def test_receipts_that_are_gone_must_be_spoken_for(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    delay = delay_topic(stage, default_target=stage.target(), begun=False)
    far_ms = now_ms() + HOUR_MS
    stage.send(delay, *named(b"a", far_ms))
    stage.send(delay, ("deliver-cancel", b"a"))
    stage.send(delay, *named(b"b", far_ms, ("deliver-replace", b"true")))
    stage.send(delay, *named(b"c", far_ms, ("deliver-replace", b"true"), ("deliver-if-due", b"7")))
    stage.send(f"{delay}.receipts", ("delay-source", b"elsewhere/0/1"), value=b"{}")
    delete_records(stage, f"{delay}.receipts", 0, 1)
    with pytest.raises(JobError, match=rf"{delay}.receipts/0 begins at offset 1.*{delay}/0/1 .*--released-before"):
        rebuild(spark, stage, tmp_path, delay)
    assert staged(stage, delay) == ([], [])
    rebuild(spark, stage, tmp_path, delay, released_before_ms=max(each.timestamp_ms for each in stage.records(delay)))
    assert pending_offsets(stage, delay) == [0, 2, 3]


@pytest.mark.parametrize("is_there", [True, False])
def test_without_the_receipts_no_released_record_leaves_again(
    spark: SparkSession, stage: Stage, tmp_path: Path, *, is_there: bool
) -> None:
    out = stage.target()
    delay = delay_topic(stage, default_target=out, begun=False)
    stage.send(delay, ("deliver-at", b"1"))
    stage.send(delay, ("deliver-cancel", b"a"))
    for _ in range(3):
        stage.send(delay, ("deliver-at", b"1"))
    for each in stage.records(delay):
        if each.offset != 1:
            stage.send(out, *provenance(delay, each.offset, each.timestamp_ms))
    stage.delete(f"{delay}.receipts")
    if is_there:
        stage.create([NewTopic(f"{delay}.receipts", 1, 1)])
    told = rf"has read the control at {delay}/0/1, of which" if is_there else rf"{delay}\.receipts does not exist,"
    with pytest.raises(JobError, match=rf"{told}.*--released-before INSTANT"):
        rebuild(spark, stage, tmp_path, delay)
    assert staged(stage, delay) == ([], [])
    written_ms = max(each.timestamp_ms for each in stage.records(delay))
    assert rebuild(spark, stage, tmp_path, delay, released_before_ms=written_ms).entries == 0


@pytest.mark.parametrize("trace", ["receipt", "moved"])
def test_traces_of_a_router_behind_a_control_without_a_receipt(
    spark: SparkSession, stage: Stage, tmp_path: Path, trace: str
) -> None:
    delay = delay_topic(stage, default_target=stage.target(), begun=False)
    far_ms = now_ms() + HOUR_MS
    stage.send(delay, *named(b"a", far_ms))
    stage.send(delay, ("deliver-move", b"a"), ("deliver-at", b"%d" % (far_ms + 1)))
    stage.send(delay, ("deliver-cancel", b"b"))
    if trace == "receipt":
        said = b'{"action": "cancel", "outcome": "not-pending", "cancelled": [], "due": null}'
        stage.send(f"{delay}.receipts", ("delay-source", f"{delay}/0/2".encode()), value=said)
    else:
        stage.send(delay, *named(b"a", far_ms + 1, ("delay-source", f"{delay}/0/1".encode())))
    acted_on = 2 if trace == "receipt" else 1
    with pytest.raises(JobError, match=rf"acted on {delay}/0/{acted_on}, so it has read the control at {delay}/0/1,"):
        rebuild(spark, stage, tmp_path, delay)
    assert staged(stage, delay) == ([], [])


def test_committed_copies_behind_an_open_transaction_are_waited_for(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    out = stage.target()
    delay = delay_topic(stage, default_target=out, begun=False)
    far_ms = now_ms() + HOUR_MS
    for _ in range(5):
        stage.send(delay, ("deliver-at", b"%d" % far_ms))
    settings = settings_of(stage, tmp_path)
    go = partial(rebuild_job.rebuild, spark, settings, settings.delay_topic(delay), Asked(), Options("rebuild"), print)
    stranger = Producer({**stage.kafka, "transactional.id": stage.word})
    stranger.init_transactions()
    for topic in (f"{delay}.receipts", f"{delay}.rejected", out):
        stranger.begin_transaction()
        stranger.produce(topic, b"v")
        stranger.flush()
        if topic == out:
            for each in stage.records(delay)[:3]:
                stage.send(out, *provenance(delay, each.offset, each.timestamp_ms))
        with pytest.raises(JobError, match=rf"{topic}/0: a transaction is open .* --settle"):
            go(settle_s=1.0)
        assert staged(stage, delay) == ([], [])
        stranger.abort_transaction()
    assert go().entries == 2
    assert pending_offsets(stage, delay) == [3, 4]


def test_a_list_that_a_receipt_left_out_cannot_be_made_up(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    delay = delay_topic(stage, default_target=stage.target(), begun=False)
    stage.send(delay, ("deliver-cancel", b"a"))
    said = b'{"action": "cancel", "outcome": "cancelled", "cancelled": [], "due": null, "omitted": {"cancelled": 7}}'
    stage.send(f"{delay}.receipts", ("delay-source", f"{delay}/0/0".encode()), value=said)
    with pytest.raises(JobError, match=rf"{delay}/0/0 was too large to name the 7 schedules"):
        rebuild(spark, stage, tmp_path, delay)


def provenance(delay: str, offset: int, sent_ms: int) -> list[Header]:
    """Return the headers with the origin of a released record."""
    sent: Header = ("delay-source-timestamp", b"%d" % sent_ms)
    return [("delay-due", b"1"), ("delay-source", f"{delay}/0/{offset}".encode()), sent]


def test_what_others_write_into_a_target_is_not_taken_for_released(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    out, other = stage.target(), stage.target("other")
    delay = delay_topic(stage, default_target=out, allowed_targets=[other], aliases=["etf1"], begun=False)
    at: Header = ("deliver-at", b"%d" % (now_ms() + 60_000))
    to: Header = ("Deliver-To", other.encode())
    own: Header = ("own", b"1")
    for _ in range(8):
        stage.send(delay, at, to, own, key=b"k", value=b"v")
    by_default = int(stage.send(delay, at, own, key=b"k", value=b"v").split("/")[2])
    rejected = int(stage.send(delay, at, own, key=b"k", value=b"v").split("/")[2])
    old_alias = int(stage.send(delay, at, ("x-key", b"z"), own, key=b"k", value=b"v").split("/")[2])
    sent_ms = {each.offset: each.timestamp_ms for each in stage.records(delay)}

    def said(offset: int) -> list[Header]:
        return provenance(delay, offset, sent_ms[offset])

    stage.send(other, *said(0)[1:2])
    stage.send(other, own, *said(1), key=b"k", value=b"w")
    stage.send(other, own, *said(2), key=b"k", value=None)
    stage.send(other, own, *provenance(delay, 3, sent_ms[3] + 1), key=b"k", value=b"v")
    stage.send(other, own, *said(4), key=b"another", value=b"v")
    stage.send(other, own, ("more", b"1"), *said(5), key=b"k", value=b"v")
    stage.send(out, own, *said(6), key=b"k", value=b"v")  # its target is the other
    stage.send(f"{delay}.rejected", at, own, *said(7), key=b"k", value=b"v")
    # The router's own writes, one of them from the time when x-key was an alias of deliver-key.
    stage.send(out, own, *said(by_default), ("delay-id", b"an id"), ("delay-hops", b"1"), key=b"k", value=b"v")
    place: Header = ("delay-source", f"{delay}/0/{rejected}".encode())
    planted: Header = ("delay-source", f"{delay}/0/0".encode())
    reason: list[Header] = [("delay-error", b"EXPIRED"), ("delay-error-message", b"late"), place]
    stage.send(f"{delay}.rejected", at, own, planted, *reason, key=b"k", value=b"v")
    stage.send(out, own, *said(old_alias), key=b"z", value=b"v")

    rebuild(spark, stage, tmp_path, delay)
    assert pending_offsets(stage, delay) == list(range(8))


def test_an_emptied_log_still_says_where_to_go_on(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    delay = delay_topic(stage, default_target=stage.target(), begun=False)
    stage.send_many(delay, [[("deliver-after", b"60000")]] * 7)
    (future,) = stage.admin.delete_records([TopicPartition(delay, 0, 7)]).values()
    future.result(TIMEOUT_S)
    assert rebuild(spark, stage, tmp_path, delay).entries == 0
    (only,), _ = staged(stage, delay)
    assert (only.manifest.to_offset, only.manifest.segments) == (7, ())


def test_a_router_goes_on_after_its_state_has_lost_its_beginning(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    """The remaining buckets and held records are given up in favour of the staged ones."""
    out = stage.target()
    delay = delay_topic(
        stage, default_target=out, max_delay="1h", seal_age="1s", seal_records=100, seal_beyond="0s", max_buckets=2
    )
    # Late enough for the end of the job, even if Spark starts slowly.
    due_ms = now_ms() + 90_000
    with stage.router() as router:
        router.start_and_wait()
        for number in range(450):
            at_ms = due_ms + number % 7 * 100 if number % 3 else now_ms()
            stage.post(delay, ("deliver-at", b"%d" % at_ms), value=b"%d" % number)
        stage.flush()
        gone = len(stage.wait_records(out, 150))
        wait_until(lambda: sum(bucket.entries for bucket in state(stage, delay).buckets) == 300, "all are in buckets")
        router.stop()
    whole, topic = state(stage, delay), f"{delay}.delay-state"
    _, end = log_range(stage.admin, topic, 0)
    left_over = replace(whole.buckets[0], bucket_id=99)
    stage.send(topic, key=RULES_KEY, value=encode_history(whole.history))
    stage.send(topic, key=manifest_key(99), value=encode_manifest(left_over))
    progress = encode_progress(whole.progress, whole.delay_topic_id, whole.inventory)
    stage.send(topic, key=PROGRESS_KEY, value=progress)
    truncate(stage, delay, end)
    wait_for_end_of_session(stage, tmp_path)

    rebuild(spark, stage, tmp_path, delay)

    assert len(pending_offsets(stage, delay)) == 450 - gone
    with stage.router() as router:
        router.start_and_wait()
        assert all(manifest.bucket_id < 99 for manifest in state(stage, delay).buckets)
        stage.settle(timeout_s=120)


def test_a_target_that_only_a_policy_has_named_must_be_named_again(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    out, other = stage.target(), stage.target("other")
    delay = delay_topic(stage, default_target=out)
    policies = f"__{stage.word}.policies"
    stage.create([NewTopic(policies, 1, 1, config={"cleanup.policy": "compact"})])
    policy = json.dumps({"version": 1, "default_target": other}).encode()
    stage.post(policies, key=f"topic/{delay}".encode(), value=policy)
    stage.flush()
    with stage.router(policies_topic=policies) as router:
        router.start_and_wait()
        stage.send(delay, ("deliver-after", b"1"))
        stage.wait_records(other, 1)
        router.stop()
    wait_for_end_of_session(stage, tmp_path)
    lose_state(stage, delay)
    settings = replace(settings_of(stage, tmp_path), policies_topic=policies)
    go = partial(rebuild_job.rebuild, spark, settings, settings.delay_topic(delay), Asked(), Options("rebuild"), print)
    with pytest.raises(JobError, match=rf"names targets that the job does not read: {other}\. .* --target"):
        go()
    assert go(targets=[other]).entries == 0
