"""Tests of every rejection code end to end: the unchanged record, its reason, and no effect on other records."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from sidecar.dev.audit import AuditedRecord
from tests.conftest import StartCluster
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import TIMEOUT_S, Header, Stage, header, now_ms

DAY_MS = 86_400_000
OWN: list[Header] = [("a", None), ("a", b""), ("delay-source", b"planted"), ("a", b"\xff")]


@pytest.fixture(scope="module")
def stage(module_stage: Stage) -> Stage:
    """Return a stage with a delay topic with a default target, one without, one for delays only, and a disabled one."""
    stage = module_stage
    out = stage.target("out")
    stage.target("small", config={"max.message.bytes": "5000"})
    # The pattern allows all names, yet the router's own topics and Kafka's are never targets.
    stage.delay("delay", default_target=out, allowed_targets=[f"{stage.word}.*"], max_delay="1d")
    stage.delay("strict", allowed_targets=[out], max_delay="0")
    stage.delay("delays-only", default_target=stage.target("only-later"), require_time=True)
    stage.delay("off", default_target=stage.target("unused"), enabled=False)
    return stage


@pytest.fixture(scope="module", autouse=True)
def router(stage: Stage) -> Iterator[RouterProcess]:
    with stage.router() as running:
        running.start_and_wait()
        yield running
        stage.settle()
        assert running.stop() == 0


def rejected(stage: Stage, source: str) -> AuditedRecord:
    """Wait for the record from ``source`` in the rejected topic, and return it; there must be exactly one."""
    topic = f"{source.split('/', maxsplit=1)[0]}.rejected"
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found = [record for record in stage.records(topic) if header(record, "delay-source") == source.encode()]
        if found:
            (only,) = found
            return only
        assert time.monotonic() < deadline, f"{source} never came to {topic}"
        time.sleep(0.05)


def expect(stage: Stage, source: str, sent: Sequence[Header], code: str, message: str = "") -> str:
    """Assert that the record at ``source`` was rejected unchanged, with this code. Return the message."""
    record = rejected(stage, source)
    assert (record.key, record.value) == (b"key", b"value")
    assert list(record.headers[:-3]) == list(sent), "headers must be as they came"
    added = [name for name, _ in record.headers[-3:]]
    assert added == ["delay-error", "delay-error-message", "delay-source"]
    assert header(record, "delay-error") == code.encode()
    said = (header(record, "delay-error-message") or b"").decode()
    if message:
        assert said == message
    return said


def cases(word: str) -> dict[str, list[tuple[list[Header], str]]]:
    """Return, by code, headers that cause it and a part of the message."""
    at = b"%d" % (now_ms() + 60_000)
    return {
        "MAX_DELAY_EXCEEDED": [
            ([("deliver-after", b"%d" % (DAY_MS + 1))], f"delay of {DAY_MS} milliseconds"),
            ([("deliver-at", b"%d" % (now_ms() + DAY_MS + 60_000))], f"delay of {DAY_MS} milliseconds"),
            ([("deliver-after", b"P2D")], f"delay of {DAY_MS} milliseconds"),
        ],
        "INVALID_SCHEDULE": [
            ([("deliver-after", b"soon")], "soon"),
            ([("deliver-after", b"-1")], "-1"),
            ([("deliver-after", b"1_000")], "1_000"),
            ([("deliver-after", "\u0661".encode())], "deliver-after"),
            ([("deliver-after", b"P1M")], "P1M"),
            ([("deliver-att", at)], "did you mean deliver-at?"),
            ([("deliver-in", b"PT15M")], "did you mean deliver-after?"),
            ([("deliver-at", at), ("Deliver-Every", b"1h")], "its key recurring = true allows them"),
            ([("deliver-at", b"2026-01-01T00:00:00")], "offset"),
            ([("deliver-at", b"")], "deliver-at"),
            ([("deliver-partition", b"-1")], "deliver-partition"),
            ([("deliver-id", b"x" * 257)], "256"),
            # A header without effect must be valid, too: the router does not guess at the intention of a producer.
            ([("deliver-at", at), ("deliver-after", b"soon")], "soon"),
        ],
        "UNIT_SUSPECTED": [
            ([("deliver-at", b"%d" % (now_ms() // 1_000))], "seconds"),
            ([("deliver-at", b"%d" % (now_ms() * 1_000))], "microseconds"),
        ],
        "AMBIGUOUS_HEADER": [
            ([("deliver-at", at), ("deliver-at", at)], "deliver-at"),
            ([("deliver-at", at), ("Deliver-At", at)], "Deliver-At"),
            ([("deliver-key", b"a"), ("deliver-key", b"b")], "deliver-key"),
            ([("deliver-to", f"{word}.out".encode())] * 2, "deliver-to"),
        ],
        "TARGET_NOT_ALLOWED": [
            ([("deliver-to", b"somebody-else")], "somebody-else"),
            ([("deliver-to", f"{word}.delay".encode())], f"{word}.delay"),
            ([("deliver-to", f"{word}.delay.rejected".encode())], "rejected"),
            ([("deliver-to", f"{word}.strict.delay-state".encode())], "delay-state"),
            ([("deliver-to", b"__consumer_offsets")], "__consumer_offsets"),
            ([("deliver-to", f"{word}.foreign.delay-state".encode())], "belong to delay routers"),
            ([("deliver-to", f"{word}.out\nx".encode())], "deliver-to"),
            ([("deliver-to", None)], "null"),
            # One of two targets is wrong: the record goes to the rejected topic only.
            ([("deliver-to", f"{word}.out".encode()), ("deliver-to", b"no")], "no"),
        ],
        "TARGET_UNKNOWN": [
            ([("deliver-to", f"{word}.nobody-made-me".encode())], "nobody-made-me"),
            ([("deliver-to", f"{word}.out".encode()), ("deliver-partition", b"1")], "1 partitions"),
            ([("deliver-to", f"{word}.out".encode()), ("deliver-to", f"{word}.nope".encode())], "nope"),
        ],
        "RECORD_TOO_LARGE": [
            ([("deliver-to", f"{word}.small".encode()), ("big", b"x" * 6_000)], ""),
        ],
    }


def test_each_code_with_the_record_as_it_came(stage: Stage, router: RouterProcess) -> None:
    delay = f"{stage.word}.delay"
    sent = []
    for code, wishes in cases(stage.word).items():
        for wish, says in wishes:
            headers = [*OWN[:2], *wish, *OWN[2:]]
            source = stage.send(delay, *headers, key=b"key", value=b"value")
            sent.append((source, headers, code, says))
    for source, headers, code, says in sent:
        said = expect(stage, source, headers, code)
        assert says in said, f"{code}: {said}"
        assert said.isprintable(), "a message must be safe to print"
    counted = {code: router.metric(_rejected_series(delay, code)) for code in cases(stage.word)}
    assert counted == {code: len(wishes) for code, wishes in cases(stage.word).items()}


def test_a_delay_topic_for_delays_only(stage: Stage, router: RouterProcess) -> None:
    delay = f"{stage.word}.delays-only"
    for headers in ([], [("deliver-at", None)], OWN):
        source = stage.send(delay, *headers, key=b"key", value=b"value")
        assert "takes delays only" in expect(stage, source, headers, "INVALID_SCHEDULE")
    good = stage.send(delay, ("Deliver-After", b"1s"), ("deliver-at", None), value=b"later")
    (record,) = stage.wait_records(f"{stage.word}.only-later", 1)
    assert header(record, "delay-source") == good.encode()
    assert [name for name, _ in record.headers] == ["delay-due", "delay-source", "delay-source-timestamp"]
    assert router.metric(f'records_without_time_total{{topic="{delay}"}}') == 0


def test_message_of_a_delay_over_the_maximum_is_the_one_of_the_contract(stage: Stage) -> None:
    headers: list[Header] = [("deliver-after", b"P8D")]
    source = stage.send(f"{stage.word}.delay", *headers, key=b"key", value=b"value")
    message = "Exceeds max allowed delivery delay of 86400000 milliseconds"
    expect(stage, source, headers, "MAX_DELAY_EXCEEDED", message)


def test_without_a_target_and_a_default(stage: Stage) -> None:
    strict = f"{stage.word}.strict"
    headers: list[Header] = [("deliver-after", b"100"), *OWN]
    source = stage.send(strict, *headers, key=b"key", value=b"value")
    assert strict in expect(stage, source, headers, "TARGET_MISSING")


def test_a_delay_topic_that_is_switched_off(stage: Stage) -> None:
    headers: list[Header] = [("deliver-after", b"100"), *OWN]
    source = stage.send(f"{stage.word}.off", *headers, key=b"key", value=b"value")
    assert "switched off" in expect(stage, source, headers, "DELAY_DISABLED")
    assert stage.records(f"{stage.word}.unused") == []


def test_a_restart_with_other_rules_judges_only_what_comes_after_it(stage: Stage, router: RouterProcess) -> None:
    a, b = stage.target("a"), stage.target("b")
    to_a: Header = ("deliver-to", a.encode())
    to_b: Header = ("deliver-to", b.encode())
    delay = stage.delay("changing", allowed_targets=[a, b], max_delay="60s")
    router.stop()
    over: list[Header] = [("deliver-after", b"60001"), to_a]
    new_over: list[Header] = [("deliver-after", b"2001"), to_a]
    with stage.router("before") as before:
        began_ms = now_ms()
        before.start_and_wait()
        # Due after two more starts, for any duration of a start here.
        at: Header = ("deliver-at", b"%d" % (now_ms() + 3_000 + 3 * (now_ms() - began_ms)))
        # This pending record has the lowest offset, so it keeps S below all others: each restart decides them again.
        kept = stage.send(delay, at, to_a, value=b"first")
        no_more = [(stage.send(delay, at, *to, key=b"key", value=b"value"), [at, *to]) for to in ([to_b], [to_a, to_b])]
        refused = [(stage.send(delay, *over, key=b"key", value=b"value"), over)]
        # Its transaction also commits the cursor: records below it were accepted under these rules.
        expect(stage, *refused[0], "MAX_DELAY_EXCEEDED", "Exceeds max allowed delivery delay of 60000 milliseconds")
        before.kill()

    stage.delays[delay] |= {"allowed_targets": [a], "max_delay": "2s"}
    with stage.router("less") as less:
        less.start_and_wait()
        refused.append((stage.send(delay, *new_over, key=b"key", value=b"value"), new_over))
        fine = stage.send(delay, ("deliver-after", b"100"), to_a, value=b"new")
        expect(stage, *refused[1], "MAX_DELAY_EXCEEDED", "Exceeds max allowed delivery delay of 2000 milliseconds")
        expect(stage, stage.send(delay, to_b, key=b"key", value=b"value"), [to_b], "TARGET_NOT_ALLOWED")
        stage.wait_records(a, 1)
        less.kill()

    stage.delays[delay] |= {"max_delay": "7d"}
    with stage.router("more") as more:
        more.start_and_wait()
        assert now_ms() < int(at[1] or b""), "the machine is too slow for this test: the last restart came too late"
        # Old records keep the maximum of their time, and rejected ones stay rejected; the targets are judged at
        # release.
        assert {header(record, "delay-source") for record in stage.wait_records(a, 2)} == {kept.encode(), fine.encode()}
        for source, headers in no_more:
            assert b in expect(stage, source, headers, "TARGET_NOT_ALLOWED")
        for source, headers in refused:
            expect(stage, source, headers, "MAX_DELAY_EXCEEDED")
        assert more.stop() == 0
    router.start_and_wait()


def test_a_target_that_may_not_be_written_to(
    kafka_factory: StartCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    cluster = kafka_factory(1, properties=properties)
    stage = Stage(cluster.bootstrap, tmp_path)
    request.addfinalizer(stage.print_logs)
    out, shut = stage.target("out"), stage.target("shut")
    to_shut: Header = ("deliver-to", shut.encode())
    delay = stage.delay("delay", default_target=out, allowed_targets=[shut])
    with stage.router() as router:
        router.start_and_wait()
        stage.send(delay, to_shut, value=b"allowed at first")
        stage.wait_records(shut, 1)
        deny_writing(stage.admin, shut)
        # The router remembers the target as writable, so the broker refuses in the middle of a transaction.
        sources = [stage.send(delay, to_shut, key=b"key", value=b"value") for _ in range(2)]
        good = stage.send(delay, value=b"not held up")
        for source in sources:
            expect(stage, source, [to_shut], "TARGET_DENIED")
        assert [header(record, "delay-source") for record in stage.wait_records(out, 1)] == [good.encode()]
        stage.settle()
        assert router.stop() == 0


def deny_writing(admin: AdminClient, topic: str) -> None:
    """Deny every client the right to write to a topic. A topic with any rule needs rules for the other rights, too."""
    rules = {
        AclOperation.WRITE: AclPermissionType.DENY,
        AclOperation.READ: AclPermissionType.ALLOW,
        AclOperation.DESCRIBE: AclPermissionType.ALLOW,
    }
    pattern = ResourcePatternType.LITERAL
    bindings = [
        AclBinding(ResourceType.TOPIC, topic, pattern, "User:ANONYMOUS", "*", operation, permission)
        for operation, permission in rules.items()
    ]
    for future in admin.create_acls(bindings).values():
        future.result(TIMEOUT_S)


def _rejected_series(delay: str, code: str) -> str:
    return f'records_rejected_total{{reason="{code}",topic="{delay}"}}'
