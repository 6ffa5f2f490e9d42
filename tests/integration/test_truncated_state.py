"""Tests of a state topic that has lost its beginning: the router notices, and does not use the remainder."""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka.admin import NewTopic

from sidecar.config import model as configuration
from sidecar.dev.audit import AuditedRecord
from sidecar.kafka.client.admin import log_range
from sidecar.operations.desk import Operations
from sidecar.policies.policy import target_scope
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, encode_history, encode_progress
from tests.integration.readiness import partitions, refused
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import APPEND_TIME, Header, Stage, now_ms, wait_until
from tests.integration.stored_buckets import state, truncate

RECORDS = 200
HELD = 20
SEALED_SOON: dict[str, Any] = {
    "seal_records": 50,
    "seal_age": "1s",
    "seal_beyond": "0ms",
    "segment_records": 20,
    "placement": "inline",
}


def restart_by_other_rules(router: RouterProcess) -> None:
    """Let the router write rules and progress again behind all else, so that they alone look like a whole state."""
    router.config.write_text(router.config.read_text().replace('"1h"', '"2h"'))
    router.start_and_wait()
    wait_until(lambda: bool(router.events("rules_differ")), "other rules are in the state")
    router.kill()


def restore(stage: Stage, topic: str, records: Sequence[AuditedRecord]) -> None:
    """Write the lost records again, as from a copy of the topic: the last record of each key, in their order."""
    last = {record.key: record for record in records}
    for record in records:
        if last[record.key] is record and record.value is not None:
            stage.send(topic, key=record.key, value=record.value)


def test_a_state_that_has_lost_buckets_and_held_records_is_refused_until_it_is_restored(stage: Stage) -> None:
    out, closed = stage.target(), stage.target("closed")
    delay = stage.delay(default_target=out, allowed_targets=[closed], max_delay="1h", **SEALED_SOON)
    topic, policies = f"{delay}.delay-state", f"__{stage.word}.policies"
    stage.create([NewTopic(policies, 1, 1, config={"cleanup.policy": "compact", **APPEND_TIME})])
    with stage.router(policies_topic=policies) as router:
        router.start_and_wait()
        operations = Operations.for_command(configuration.load(router.config, {}))
        operations.switch(target_scope(closed), "paused", on=True)
        wait_until(lambda: bool(router.events("policy_changed")), "the pause is known")
        due_ms = now_ms() + 30_000
        scattered: list[list[Header]] = [
            [("deliver-at", b"%d" % (due_ms + number * 7919 % 2_000))] for number in range(RECORDS)
        ]
        stage.send_many(delay, scattered)
        stage.send_many(delay, [[("deliver-to", closed.encode())]] * HELD)

        def is_stored() -> bool:
            found = state(stage, delay)
            return sum(bucket.entries for bucket in found.buckets) == RECORDS and len(found.held) == HELD

        wait_until(is_stored, "everything that is pending is in buckets, or held")
        router.kill()
        _, end = log_range(stage.admin, topic, 0)
        restart_by_other_rules(router)
        whole = state(stage, delay)
        everything = stage.records(topic)
        truncate(stage, delay, end)
        router.start()
        wait_until(lambda: refused(router, f"{delay}/0"), "a refusal")
        why = partitions(router)[f"{delay}/0"]["why"]
        ids = ", ".join(str(bucket.bucket_id) for bucket in sorted(whole.buckets, key=lambda each: each.bucket_id))
        assert f"lacks buckets {ids} and {HELD} of {HELD} records that were held for their targets" in why
        assert "python -m spark_backfill rebuild" in why
        assert f"delay-router start-over {delay}/0" in why
        assert stage.records(out) == stage.records(closed) == []
        assert router.stop() == 0
        _, as_before = log_range(stage.admin, topic, 0)
        assert [record for record in stage.records(topic) if record.offset >= as_before] == []

        restore(stage, topic, everything)
        assert state(stage, delay) == whole
        operations.switch(target_scope(closed), "paused", on=False)
        router.start_and_wait()
        stage.settle(timeout_s=120)
        assert (len(stage.records(out)), len(stage.records(closed))) == (RECORDS, HELD)
        assert not router.events("state_truncated")


def test_one_that_is_truncated_under_a_router_stops_the_next_owner(stage: Stage) -> None:
    """A running router keeps the whole state in memory and goes on; its later writes alone are not the whole state."""
    out = stage.target()
    delay = stage.delay(default_target=out)
    topic = f"{delay}.delay-state"
    with stage.router() as router:
        router.start_and_wait()
        stage.send(delay)
        stage.wait_records(out, 1)
        truncate(stage, delay, log_range(stage.admin, topic, 0)[1])
        stage.send(delay)
        stage.wait_records(out, 2)
        router.kill()
        router.start()
        wait_until(lambda: refused(router, f"{delay}/0"), "a refusal")
        assert "part of the state was lost" in partitions(router)[f"{delay}/0"]["why"]
        stage.send(delay)
        time.sleep(0.5)
        assert len(stage.records(out)) == 2
        assert router.stop() == 0


def test_one_of_which_nothing_was_lost_is_served_without_a_word(stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out, max_delay="1h")
    topic = f"{delay}.delay-state"
    with stage.router() as router:
        router.start_and_wait()
        stage.send(delay)
        stage.wait_records(out, 1)
        router.kill()
        _, end = log_range(stage.admin, topic, 0)
        restart_by_other_rules(router)
        truncate(stage, delay, end)
        router.start_and_wait()
        stage.send(delay)
        stage.wait_records(out, 2)
        assert not router.events("state_truncated")
        assert router.stop() == 0


def test_one_of_the_version_before_is_alarmed_about(stage: Stage) -> None:
    """Its progress has no inventory of the state; the first progress with one ends the alarm."""
    out = stage.target()
    delay = stage.delay(default_target=out, max_delay="1h")
    topic = f"{delay}.delay-state"
    with stage.router() as router:
        router.start_and_wait()
        stage.send(delay)
        stage.wait_records(out, 1)
        router.kill()
        _, end = log_range(stage.admin, topic, 0)
        before = state(stage, delay)
        stage.send(topic, key=RULES_KEY, value=encode_history(before.history))
        stage.send(topic, key=PROGRESS_KEY, value=encode_progress(before.progress, before.delay_topic_id))
        truncate(stage, delay, end)
        router.start_and_wait()
        wait_until(lambda: bool(router.events("state_truncated")), "an alarm")
        (told,) = router.events("state_truncated")
        assert (told["level"], told["starts_at"]) == ("error", end)
        stage.send(delay)
        stage.wait_records(out, 2)
        router.kill()
        router.start_and_wait()
        assert len(router.events("state_truncated")) == 1
        assert router.stop() == 0
