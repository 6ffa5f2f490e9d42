"""Tests of a delay topic that counts attempts, with a consumer that fails and a router that is killed meanwhile."""

import json
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from sidecar.dev.audit import AuditedRecord
from tests.integration.scenario import Header, Stage, header, released_due_ms, wait_until

ATTEMPTS = 3
FIRST_MS = 400
JITTER = 0.25


def retrying(stage: Stage, **options: Any) -> tuple[str, str, str, str]:
    """Create a delay topic that counts attempts, its default target, another target and the dead-letter topic."""
    out, other, dead = stage.target("out"), stage.target("other"), stage.target("dead")
    retry = {"first": f"{FIRST_MS}ms", "factor": 2, "max": "1h", "jitter": JITTER, "attempts": ATTEMPTS}
    delay = stage.delay(
        "retry", default_target=out, allowed_targets=[other], retry={**retry, "dead_letter": dead}, **options
    )
    return delay, out, other, dead


def fails(stage: Stage, delay: str, record: AuditedRecord) -> None:
    """Send a record back as a consumer does that cannot handle it: with the headers that it has."""
    stage.send(delay, *record.headers, value=record.value, key=record.key)


def told(record: AuditedRecord) -> dict[str, bytes | None]:
    return {name: raw for name, raw in record.headers if name.startswith(("delay-attempt", "delay-target"))}


def test_a_record_that_fails_twice_comes_back_and_a_spent_one_goes_to_the_dead_letter_topic(stage: Stage) -> None:
    delay, out, other, dead = retrying(stage, seal_age="300ms", seal_beyond="0")
    with stage.router() as router:
        router.start_and_wait()
        stage.send(delay, ("trace", b"1"), value=b"twice")
        stage.send(delay, ("deliver-to", other.encode()), value=b"always")
        # Each fails with its first attempt, then the router is killed while both wait.
        fails(stage, delay, stage.wait_records(out, 1)[0])
        fails(stage, delay, stage.wait_records(other, 1)[0])
        router.kill()
        router.start_and_wait()
        twice = stage.wait_records(out, 2)
        for number in range(2, ATTEMPTS + 1):
            fails(stage, delay, stage.wait_records(other, number)[-1])
        (spent,) = stage.wait_records(dead, 1)
        assert router.stop() == 0
    always = stage.records(other)
    assert [told(each) for each in twice] == [
        {"delay-attempt": b"%d" % number, "delay-target": out.encode()} for number in (1, 2)
    ]
    assert [header(each, "trace") for each in twice] == [b"1", b"1"]
    assert [int(header(each, "delay-attempt") or 0) for each in always] == [1, 2, 3]
    assert told(spent) == {
        "delay-attempt": b"3",
        "delay-target": other.encode(),
        "delay-attempts-exhausted": b"3",
    }
    assert (spent.key, spent.value) == (b"k", b"always")
    for record in (*twice, *always):
        wait_ms = FIRST_MS * 2 ** (int(header(record, "delay-attempt") or 0) - 1)
        waited_ms = released_due_ms(record) - int(header(record, "delay-source-timestamp") or 0)
        assert wait_ms * (1 - JITTER) <= waited_ms <= wait_ms
        assert record.timestamp_ms >= released_due_ms(record)
    report = stage.settle()
    assert report.ok, report.samples
    assert report.released_once == 6


@pytest.mark.parametrize("headers", [[("delay-attempt", b"many")], [("delay-attempt", b"1")] * 2])
def test_a_forged_count_is_rejected_and_others_go_on(stage: Stage, headers: list[Header]) -> None:
    delay, out, other, dead = retrying(stage)
    with stage.router() as router:
        router.start_and_wait()
        stage.send(delay, *headers)
        stage.send(delay, ("delay-attempt", b"1000"))
        stage.send(delay, ("deliver-after", b"1"), ("deliver-attempts-max", b"1"))
        stage.send(delay, ("deliver-after", b"1"), ("deliver-to", out.encode()), ("deliver-to", other.encode()))
        released = [*stage.wait_records(out, 2), *stage.wait_records(other, 1)]
        stage.wait_records(dead, 1)
        (rejected,) = stage.wait_records(f"{delay}.rejected", 1)
        counts = [
            router.metric(f'attempts_total{{attempt="1",topic="{delay}"}}'),
            router.metric(f'attempts_exhausted_total{{topic="{delay}"}}'),
        ]
        assert router.stop() == 0
    assert [told(each) for each in released] == [
        {"delay-attempt": b"1", "delay-target": topic.encode()} for topic in (out, out, other)
    ], "each copy has its own target"
    assert header(rejected, "delay-error") in (b"INVALID_SCHEDULE", b"AMBIGUOUS_HEADER")
    assert counts == [2, 1]
    assert stage.settle().ok


def test_a_policy_counts_attempts_and_stops_counting_them(stage: Stage) -> None:
    out, dead = stage.target("out"), stage.target("dead")
    delay = stage.delay("retry", default_target=out)
    with stage.router() as router:
        router.init()
        router.start_and_wait()
        first = stage.send(delay, ("delay-attempt", b"5"))
        table = f'retry={{"first": "10ms", "attempts": 2, "dead_letter": "{dead}"}}'
        assert router.command("policy", "set", f"topic/{delay}", table).returncode == 0
        wait_until(lambda: _is_counted(stage, delay, out), "a counted attempt")

        def released() -> int:
            told = json.loads(router.command("status", delay, "--json").stdout)["topics"][0]["retries"]
            return int(told["by_attempt"][0]["released"])

        wait_until(lambda: released() > 0, "the attempt in the status")
        last = stage.send(delay, ("delay-attempt", b"1"))
        found = router.command("lookup", last).stdout
        assert f"attempt 2 of 2; if it fails, the record goes to {dead}" in found
        assert router.command("policy", "set", f"topic/{delay}", 'retry={"attempts": 0}').returncode == 0
        wait_until(lambda: not _is_counted(stage, delay, out), "a record that is not counted")
        assert router.stop() == 0
    plain = next(each for each in stage.records(out) if header(each, "delay-source") == first.encode())
    assert told(plain) == {"delay-attempt": b"5"}, "as it came"


def _is_counted(stage: Stage, delay: str, out: str) -> bool:
    place = stage.send(delay).encode()
    found: list[AuditedRecord] = []

    def has_come() -> bool:
        found[:] = [each for each in stage.records(out) if header(each, "delay-source") == place]
        return bool(found)

    wait_until(has_come, f"the record of {place!r}")
    return "delay-attempt" in dict(found[0].headers)


def test_a_spent_record_is_rejected_while_the_dead_letter_topic_does_not_exist(
    stage: Stage, kafka_admin: AdminClient
) -> None:
    out, dead = stage.target("out"), stage.target("dead")
    delay = stage.delay("retry", default_target=out, retry={"first": "10ms", "attempts": 1, "dead_letter": dead})
    with stage.router() as router:
        router.start_and_wait()
        stage.send(delay, value=b"fails")
        (failing,) = stage.wait_records(out, 1)
        kafka_admin.delete_topics([dead])[dead].result()
        fails(stage, delay, failing)
        (rejected,) = stage.wait_records(f"{delay}.rejected", 1)
        stage.send(delay, value=b"next")
        assert [each.value for each in stage.wait_records(out, 2)] == [b"fails", b"next"]
        checked = router.command("check")
        assert (checked.returncode, f"target topic {dead}" in checked.stdout) == (1, True), checked.stdout
        assert router.stop() == 0
    assert header(rejected, "delay-error") == b"TARGET_UNKNOWN"
    assert dead in (header(rejected, "delay-error-message") or b"").decode()
