"""Tests of changes to the topics of a running router: they show in its status, its log and its behaviour."""

import json
from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewTopic

from index.buckets.bucket import Manifest, Placement
from sidecar.config.model import load
from tests.integration.one_worker import stored_manifests
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import ONE_SEAL, Stage, now_ms, wait_until

NOTICED_WITHIN_S = 60.0
"""The router looks at the topics every 15 s, and asks twice for a missing one."""

DAY_MS = 86_400_000


def status_of(router: RouterProcess, delay: str, partition: int = 0) -> dict[str, Any]:
    """Return the status of a partition in ``/readyz``; an empty state while it has none."""
    body = router.http("/readyz")[1]
    found: dict[str, Any] = json.loads(body)["partitions"] if body.startswith("{") else {}
    status: dict[str, Any] = found.get(f"{delay}/{partition}", {"state": "", "why": ""})
    return status


def says(router: RouterProcess, delay: str, *words: str) -> None:
    """Wait until the reason of partition 0 has all these words."""
    wait_until(lambda: all(word in status_of(router, delay)["why"] for word in words), str(words), NOTICED_WITHIN_S)


def test_topics_deleted_under_a_running_router(stage: Stage) -> None:
    """The router reports the missing topic and the remedy, and goes on by itself once the topic exists again."""
    out = stage.target()
    idle, busy, refusing = (
        stage.delay(name, default_target=out) for name in ("stateless-idle", "stateless-busy", "rejectless")
    )
    with stage.router() as router:
        router.start_and_wait()
        for delay in (idle, busy, refusing):
            stage.send(delay)
        stage.wait_records(out, 3)
        stage.delete(f"{idle}.delay-state", f"{busy}.delay-state", f"{refusing}.rejected")
        stage.send(busy, value=b"not released without a state")
        stage.send(refusing, ("deliver-after", b"soon"))
        for delay in (busy, idle):
            says(router, delay, f"state topic {delay}.delay-state does not exist", "delay-router init")
            wait_until(lambda at=delay: status_of(router, at)["state"] == "refused", "a refusal", NOTICED_WITHIN_S)  # type: ignore[misc]
        says(router, refusing, f"rejected topic {refusing}.rejected: does not exist", "delay-router init")
        told = [event["thing"] for event in router.events("check") if event["level"] == "error"]
        assert f"rejected topic {refusing}.rejected" in told

        stage.create([NewTopic(f"{refusing}.rejected", 1, 1)])
        (rejected,) = stage.wait_records(f"{refusing}.rejected", 1, NOTICED_WITHIN_S)
        assert rejected.value == b"v"
        wait_until(lambda: status_of(router, refusing)["state"] == "active", "active", NOTICED_WITHIN_S)
        wait_until(lambda: not status_of(router, refusing)["why"], "nothing is wrong", NOTICED_WITHIN_S)
        assert len(stage.records(out)) == 3
        assert router.stop() == 0


def test_retention_lowered_under_a_running_router(stage: Stage) -> None:
    """The gauge and the log follow, and `auto` puts payload into segments from then on."""
    delay = stage.delay(default_target=stage.target(), seal_records=ONE_SEAL, max_delay="7d")
    with stage.router() as router:
        router.start_and_wait()
        seal(stage, router, delay, buckets=1)
        assert router.metric(f'delay_topic_retention_seconds{{topic="{delay}"}}') == float("inf")
        assert placements(stored(router)) == {Placement.POINTER}
        keep(stage, delay, DAY_MS)
        wait_until(lambda: status_of(router, delay)["retention_ms"] == DAY_MS, "the new retention", NOTICED_WITHIN_S)
        assert router.metric(f'delay_topic_retention_seconds{{topic="{delay}"}}') == DAY_MS / 1_000
        seal(stage, router, delay, buckets=2)
        assert placements(stored(router)[1:]) == {Placement.INLINE}
        told = [event["message"] for event in router.events("check") if event["thing"] == f"delay topic {delay}"]
        assert any("keeps 1d and max_delay is 7d" in message for message in told), told
        assert router.stop() == 0


def keep(stage: Stage, topic: str, retention_ms: int) -> None:
    stage.alter(topic, {"retention.ms": str(retention_ms)})


def seal(stage: Stage, router: RouterProcess, delay: str, buckets: int) -> None:
    """Write as many records with a fixed delay as are sealed at once, and wait until they are in a bucket."""
    due_ms = now_ms() + 3_600_000
    stage.send_many(delay, [[("deliver-at", b"%d" % (due_ms + number))] for number in range(ONE_SEAL)])
    wait_until(lambda: status_of(router, delay).get("buckets") == buckets, f"{buckets} buckets")


def stored(router: RouterProcess) -> tuple[Manifest, ...]:
    return stored_manifests(load(Path(router.config), {}))


def placements(manifests: tuple[Manifest, ...]) -> set[Placement]:
    return {segment.placement for manifest in manifests for segment in manifest.segments}
