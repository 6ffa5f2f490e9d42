"""Tests that a running router adopts staged buckets: nothing lost, doubled, early or altered, despite any crash."""

import signal
import time
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic

from index.buckets.bucket_rules import PlacementRule, SealRules
from sidecar import failpoints
from sidecar.config.model import load
from sidecar.engine.intake.decided import Indexed
from sidecar.engine.intake.intake import Intake
from sidecar.engine.limits import Limits
from sidecar.process.host import read_ahead
from tests.integration.backfills import BackfillJob, some_records, with_backfill_topic
from tests.integration.one_worker import one_worker
from tests.integration.scenario import Stage, header, wait_until
from tests.integration.stored_buckets import manifests_ever, state

SMALL: dict[str, Any] = {
    "seal_records": 200,
    "seal_age": "1s",
    "segment_records": 100,
    "max_buckets": 4,
    "time_step": "2s",
}
PLACES = ("adopt.before", "adopt.after", "adopt.before", "adopt.catching_up:3", "adopt.catching_up:2")


def left_already(stage: Stage, topics: list[str]) -> frozenset[int]:
    """Return the offsets of records in target and rejected topics, as a job that rebuilds an index finds them."""
    sources = [header(record, "delay-source") or b"" for topic in topics for record in stage.records(topic)]
    return frozenset(int(source.rpartition(b"/")[2]) for source in sources)


def waiting(stage: Stage, delay: str) -> set[bytes | None]:
    """Return the keys of the staged records that remain."""
    latest = {record.key: record.value for record in stage.records(f"{delay}.delay-backfill")}
    return {key for key, value in latest.items() if value is not None}


def masked(stage: Stage, delay: str) -> int:
    """Return the largest possible number of records that lie in adopted segments and belong to other buckets."""
    return sum(manifest.from_offset - manifest.segments_from for manifest in manifests_ever(stage, delay))


def committed(stage: Stage, delay: str) -> int:
    """Return the offset that the group has committed for partition 0."""
    consumer = Consumer({**stage.kafka, "group.id": stage.group_id})
    try:
        (found,) = consumer.committed([TopicPartition(delay, 0)], 10)
    finally:
        consumer.close()
    return int(found.offset)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("placement", ["inline", "pointer"])
def test_kill_9_while_buckets_are_adopted_and_catch_up(
    stage: Stage, rng: Random, monkeypatch: pytest.MonkeyPatch, placement: PlacementRule
) -> None:
    out = stage.target("out", 2)
    delay = with_backfill_topic(stage, stage.delay(default_target=out, **SMALL))
    with stage.router(batch_records=400) as router:
        router.start_and_wait()
        stage.send_many(delay, list(some_records(rng, 300)))
        wait_until(lambda: state(stage, delay).progress.cursor == 300, "the first ones are indexed")
        router.kill()

        stage.send_many(delay, list(some_records(rng, 6_000)))
        end = stage.records(delay)[-1].offset + 1
        job = BackfillJob(stage, router.config, delay, limits=SealRules(placement=placement, segment_entries=300))
        # Two buckets by an older cursor, staged twice; a range that C has passed; a bucket of another topic.
        job.run("nightly", [(100, 3_000), (3_000, end)])
        job.run("nightly", [(100, 3_000), (3_000, end)])
        job.run("again", [(200, 2_500)])
        job.run("late", [(0, 250)])
        job.run("other", [(0, end)], topic_id="of-another-topic")
        for place in PLACES:
            with monkeypatch.context() as environ:
                environ.setenv(failpoints.VARIABLE, place)
                router.start()
            wait_until(lambda: not router.running, f"it dies at {place}", 90)
            assert router.exit_code == -signal.SIGKILL, router.last_lines()
        router.start_and_wait()
        wait_until(lambda: not state(stage, delay).progress.catching_up, "everything has caught up", 120)
        wait_until(lambda: state(stage, delay).progress.cursor == end, "C")
        pending = f'pending_records{{topic="{delay}"}}'
        # A masked record counts until its segment is loaded.
        wait_until(lambda: 0 <= router.metric(pending) - stage.audit().pending <= masked(stage, delay), "pending")
        report = stage.settle()
        print(placement, report.summary())
        assert report.sent == 6_300
        assert report.rejected > 400
        # A process was killed before it could report one of the adoptions.
        assert router.events("backfill_adopted")
        assert {event["job"] for event in router.events("backfill_discarded")} == {"again", "late"}
        (refused,) = {event["why"].partition(",")[0] for event in router.events("backfill_refused")}
        assert refused == "made from a topic with id of-another-topic"
        assert not waiting(stage, delay)
        assert not router.events("partition_failed")
        assert not router.events("segment_damaged")
        assert router.stop() == 0


@pytest.mark.timeout(600)
def test_a_bucket_is_adopted_while_the_router_reads_on_and_releases(
    stage: Stage, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads_on = Intake.fill

    def slowly(self: Intake, wait_s: float, max_bytes: int) -> Indexed:
        time.sleep(0.04)
        return reads_on(self, wait_s, max_bytes)

    monkeypatch.setattr(Intake, "fill", slowly)
    # Otherwise all records are read ahead, and indexed in one go.
    monkeypatch.setattr(read_ahead, "FETCH_RECORDS", 100)
    monkeypatch.setattr(read_ahead, "RECORDS_AHEAD", 800)
    monkeypatch.setattr("sidecar.engine.intake.intake.INDEX_RECORDS", 100)
    out = stage.target("out", 2)
    delay = with_backfill_topic(stage, stage.delay(default_target=out, seal_records=300, segment_records=100))
    stage.send_many(delay, list(some_records(rng, 8_000)))
    end = stage.records(delay)[-1].offset + 1
    config = stage.router().config
    with one_worker(load(config, {}), Limits(load_lead_ms=1_000)) as worker:
        wait_until(lambda: worker.status.cursor > 200, "some are indexed")
        began_at = worker.status.cursor
        BackfillJob(stage, config, delay).run("nightly", [(0, end - 500), (end - 500, end)])
        wait_until(lambda: worker.status.cursor >= end, "C is at the end of what was staged")
        assert worker.count_of("backfills", outcome="adopted") >= 1
        stage.send_many(delay, list(some_records(rng, 100)))
        wait_until(lambda: 0 <= worker.status.pending - stage.audit().pending <= masked(stage, delay), "pending")
        report = stage.settle()
        assert report.sent == 8_100
        assert worker.count("load_failures") == 0
        print(f"adopted behind {began_at}", report.summary())


@pytest.mark.timeout(600)
def test_a_lost_state_is_made_anew_and_nothing_is_released_again(stage: Stage, rng: Random) -> None:
    out = stage.target("out", 2)
    delay = with_backfill_topic(stage, stage.delay(default_target=out, **SMALL))
    with stage.router() as router:
        router.start_and_wait()
        stage.send_many(delay, list(some_records(rng, 2_000)))
        end = stage.records(delay)[-1].offset + 1
        wait_until(lambda: state(stage, delay).progress.cursor == end, "all are indexed")
        stage.wait_records(out, 1_000)
        # The committed offset of the group shows later that there was a state.
        wait_until(lambda: committed(stage, delay) > 0, "an offset of the group")
        router.kill()

        stage.delete(f"{delay}.delay-state")
        stage.create([NewTopic(f"{delay}.delay-state", 1, 1, config={"cleanup.policy": "compact"})])
        router.start()
        wait_until(lambda: "python -m spark_backfill rebuild" in router.http("/readyz")[1], "it refuses, and says how")
        router.kill()

        job = BackfillJob(stage, router.config, delay)
        left = left_already(stage, [out, f"{delay}.rejected"])
        job.run("gap", [(0, 500), (600, end)], released=left, restores=True)
        job.run("rebuild", [(0, 900), (900, end)], released=left, restores=True)
        router.start_and_wait()
        assert state(stage, delay).progress.cursor == end
        stage.send_many(delay, list(some_records(rng, 50)))
        pending = f'pending_records{{topic="{delay}"}}'
        wait_until(lambda: stage.audit().pending == router.metric(pending), "as much is pending as is to come")
        report = stage.settle()
        assert report.sent == 2_050
        assert not waiting(stage, delay)
        assert not router.events("partition_failed")
        assert router.stop() == 0
