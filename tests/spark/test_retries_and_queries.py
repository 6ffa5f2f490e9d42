"""Tests of ``index`` and ``rebuild`` with a delay topic that counts attempts, and with schedules cancelled by query."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from index.protocol.schedule import due_ms_of
from sidecar.dev.audit import AuditedRecord
from spark_backfill.build.index_job import Options
from tests.integration.scenario import Header, Stage, header, now_ms, released_due_ms
from tests.integration.stored_buckets import delete_records
from tests.spark.backfill import (
    adopted,
    delay_topic,
    entries_of,
    index,
    lose_state,
    pending_offsets,
    rebuild,
    settings_of,
    staged,
    wait_for_end_of_session,
)

CUSTOMER: Header = ("customer", b"7")
OF_CUSTOMER = {"header": {"name": "customer", "value": "7"}}
ALWAYS: Header = ("delay-attempt", b"2")
HOUR_MS = 3_600_000
STRETCHED = Options(bucket_records=400, task_records=200, stretch_records=300)


def retrying(stage: Stage, **retry: Any) -> tuple[str, str, str, str]:
    """Create a delay topic with two attempts, its default target, another target and the dead-letter topic."""
    out, other, dead = stage.target(), stage.target("other"), stage.target("dead")
    retry = {"max": "1h", "jitter": 0.25, "attempts": 2, "dead_letter": dead, **retry}
    return delay_topic(stage, default_target=out, allowed_targets=[other], retry=retry), out, other, dead


def told(records: list[AuditedRecord]) -> list[tuple[bytes | None, int]]:
    """Return value and attempt of each record."""
    return sorted((each.value, int(header(each, "delay-attempt") or 0)) for each in records)


def query(predicate: dict[str, Any]) -> Header:
    return "deliver-cancel-where", json.dumps(predicate).encode()


def test_attempts_that_index_has_staged_come_back_when_they_are_due(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    delay, out, other, dead = retrying(stage, first="20s", factor=1.5)
    to_other: Header = ("delay-target", other.encode())
    for number in range(5):
        stage.send(delay, ("trace", b"1"), value=b"first %d" % number)
    stage.send(delay, ("delay-attempt", b"1"), to_other, value=b"second")
    stage.send(delay, ("delay-attempt", b"1"), ("delay-target", b"nowhere"), value=b"astray")
    stage.send(delay, ("delay-attempt", b"1"), ("deliver-after", b"25s"), ("deliver-to", out.encode()), value=b"own")
    stage.send(delay, ("delay-attempt", b"2"), ("deliver-attempts-max", b"3"), to_other, value=b"third")
    stage.send(delay, ALWAYS, to_other, ("deliver-after", b"1h"), value=b"spent")
    stage.send(delay, ("delay-attempt", b"many"), value=b"bad")
    index(spark, stage, tmp_path, delay, options=STRETCHED)

    (only,), _ = staged(stage, delay)
    due_ms = {offset: due for due, offset, _ in entries_of(stage, delay, only.manifest)}
    rules = settings_of(stage, tmp_path).delay_topic(delay).rules
    sent = stage.records(delay)
    decided = {each.offset: rules.decide(each.headers, each.timestamp_ms) for each in sent}
    placed = {each.offset: rules.placed(decided[each.offset], each.timestamp_ms, each.offset) for each in sent}
    assert due_ms == {offset: due_ms_of(decision) for offset, decision in placed.items()}
    with stage.router() as router:
        router.start_and_wait()
        report = stage.settle(timeout_s=150)
        assert adopted(router, delay) == 1
    assert (report.released_once, report.rejected) == (10, 1)
    firsts = [(b"first %d" % number, 1) for number in range(5)]
    assert told(stage.records(out)) == [(b"astray", 2), *firsts, (b"own", 2)]
    assert told(stage.records(other)) == [(b"second", 2), (b"third", 3)]
    (spent,) = stage.records(dead)
    assert (spent.value, header(spent, "delay-attempts-exhausted")) == (b"spent", b"2")
    for each in (*stage.records(out), *stage.records(other)):
        place = header(each, "delay-source") or b""
        assert released_due_ms(each) == due_ms[int(place.split(b"/")[2])]


def test_attempts_go_on_after_a_rebuild(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    # The second attempt waits for half a minute, which is the time of a rebuild.
    delay, out, other, dead = retrying(stage, first="400ms", factor=100)
    to_other: Header = ("deliver-to", other.encode())
    with stage.router() as router:
        router.start_and_wait()
        stage.send(delay, ("trace", b"1"), value=b"out")
        stage.send(delay, to_other, value=b"other")
        stage.send(delay, ALWAYS, to_other, value=b"spent before")
        stage.send(delay, ("delay-attempt", b"many"), value=b"bad")
        for topic in (out, other):
            (failing,) = stage.wait_records(topic, 1)
            stage.send(delay, *failing.headers, value=failing.value, key=failing.key)
        stage.wait_records(dead, 1)
        stage.wait_records(f"{delay}.rejected", 1)
        assert router.stop() == 0
    stage.send(delay, ALWAYS, to_other, value=b"spent after")
    stage.send(delay, value=b"first")
    wait_for_end_of_session(stage, tmp_path)
    lose_state(stage, delay)

    rebuild(spark, stage, tmp_path, delay)

    assert pending_offsets(stage, delay) == [4, 5, 6, 7]
    with stage.router() as router:
        router.start_and_wait()
        report = stage.settle(timeout_s=150)
        assert router.stop() == 0
    assert (report.released_once, report.rejected) == (7, 1)
    assert told(stage.records(out)) == [(b"first", 1), (b"out", 1), (b"out", 2)]
    assert told(stage.records(other)) == [(b"other", 1), (b"other", 2)]
    assert sorted(each.value or b"" for each in stage.records(dead)) == [b"spent after", b"spent before"]


def test_queries_find_the_records_of_staged_buckets_in_front_of_them(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    delay = delay_topic(stage, default_target=stage.target())
    began_ms = now_ms()

    def post(first: int, count: int, from_ms: int) -> None:
        for number in range(first, first + count):
            due: Header = ("deliver-at", b"%d" % (began_ms + from_ms + number))
            of: list[Header] = [CUSTOMER] if number % 3 == 0 else []
            stage.post(delay, due, ("deliver-id", b"%d" % number), *of, value=b"%d" % number)

    # Due behind the job, unless the machine is slow. Then some have left before the router reads the first query.
    post(0, 1, HOUR_MS)
    post(1, 599, 60_000)
    stage.post(delay, query(OF_CUSTOMER), value=b"")
    # Overdue: they leave beside the records that are due now, or the second query cancels them before.
    post(601, 600, -60_000)
    stage.post(delay, query({"id_prefix": "11", **OF_CUSTOMER}), value=b"")
    post(1_202, 50, 60_000)
    stage.flush()
    index(spark, stage, tmp_path, delay, options=STRETCHED)
    waiting, _ = staged(stage, delay)
    ranges = [(each.manifest.from_offset, each.manifest.to_offset) for each in waiting]
    assert ranges == [(0, 300), (300, 600), (601, 901), (901, 1_201)]

    with stage.router() as router:
        router.start_and_wait()
        stage.wait_records(f"{delay}.receipts", 2)
        assert adopted(router, delay) >= 2
        router.kill()
        router.start_and_wait()
        report = stage.settle(timeout_s=150)
    receipts = [json.loads(each.value or b"") for each in stage.records(f"{delay}.receipts")]
    assert [each["outcome"] for each in receipts] == ["cancelled-where"] * 2
    assert receipts[0]["matched"] >= 1
    assert report.cancelled == sum(each["matched"] for each in receipts)
    came = {int(each.value or b"") for each in stage.records(stage.targets[0])}
    assert came >= {number for number in range(1_201) if number % 3} | set(range(1_202, 1_252))


def test_what_queries_have_cancelled_is_not_pending_after_a_rebuild(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    out, other = stage.target(), stage.target("other")
    delay = delay_topic(stage, default_target=out, allowed_targets=[other])
    to_other: Header = ("deliver-to", other.encode())
    with stage.router() as router:
        router.start_and_wait()
        stage.send(delay, ("deliver-after", b"1"), CUSTOMER, value=b"left before")
        stage.wait_records(out, 1)
        far_ms = now_ms() + 60_000
        due: Header = ("deliver-at", b"%d" % far_ms)
        later: Header = ("deliver-at", b"%d" % (far_ms + 1))
        stage.send(delay, due, CUSTOMER, value=b"cancelled")
        stage.send(delay, due, CUSTOMER, ("deliver-id", b"a"), ("deliver-replace", b"true"), value=b"cancelled too")
        stage.send(delay, due, to_other, value=b"cancelled by target")
        stage.send(delay, later, to_other, value=b"kept: later")
        stage.send(delay, due, ("customer", b"8"), value=b"kept: another customer")
        # Not due before a slow machine reads the open query.
        much_later: Header = ("deliver-at", b"%d" % (far_ms + HOUR_MS))
        stage.send(delay, much_later, ("deliver-id", b"open 1"), value=b"cancelled by the open query")
        stage.send(delay, query(OF_CUSTOMER))
        stage.send(delay, due, CUSTOMER, value=b"kept: behind")
        stage.send(delay, query({"target": other, "due_to": far_ms + 1}))
        stage.wait_records(f"{delay}.receipts", 3)
        assert router.stop() == 0
    stage.send(delay, query({"id_prefix": "open"}))
    stage.send(delay, due, ("deliver-id", b"open 2"), value=b"kept: behind the open query")
    wait_for_end_of_session(stage, tmp_path)
    lose_state(stage, delay)
    said: list[str] = []

    rebuild(spark, stage, tmp_path, delay, say=said.append)

    assert pending_offsets(stage, delay) == [4, 5, 6, 8]
    assert any("goes on at offset 10, with a control that has no receipt" in line for line in said)
    with stage.router() as router:
        router.start_and_wait()
        report = stage.settle(timeout_s=150)
        assert router.stop() == 0
    receipts = [json.loads(each.value or b"") for each in stage.records(f"{delay}.receipts")]
    assert [each.get("matched") for each in receipts] == [None, 2, 1, 1]
    assert (report.cancelled, report.answered, report.released_once) == (4, 3, 5)
    came = [each.value or b"" for topic in (out, other) for each in stage.records(topic)]
    assert all(value.startswith((b"kept", b"left")) for value in came)


@pytest.mark.parametrize("below", [0, 2])
def test_a_query_in_front_of_the_region_cancels_nothing_behind_it(
    spark: SparkSession, stage: Stage, tmp_path: Path, below: int
) -> None:
    """The log may begin behind the control, whose receipt is still there."""
    delay = delay_topic(stage, default_target=stage.target(), begun=False)
    due: Header = ("deliver-at", b"%d" % (now_ms() + HOUR_MS))
    stage.send(delay, due, CUSTOMER)
    stage.send(delay, asked := query(OF_CUSTOMER))
    stage.send(delay, due, CUSTOMER)
    receipt = b'{"action": "cancel-where", "outcome": "cancelled-where", "cancelled": [], "due": null, "matched": 1}'
    stage.send(f"{delay}.receipts", asked, ("delay-source", f"{delay}/0/1".encode()), value=receipt)
    if below:
        delete_records(stage, delay, 0, below)
    rebuild(spark, stage, tmp_path, delay)
    assert pending_offsets(stage, delay) == [2]
