"""Tests of the audit of recurring schedules on Spark, with planted records and with a router."""

import time

import pytest
from pyspark.sql import SparkSession

from spark_backfill.audit.scope import AuditSelection, Edge
from tests.integration.scenario import CREATE_TIME, Header, Stage, now_ms, wait_until
from tests.spark.auditing import REJECTION, Hand, assert_same, audit_stage

pytestmark = pytest.mark.timeout(600)

EVERY: Header = ("deliver-every", b"10s")
CRON: Header = ("deliver-cron", b"* * * * *")
HOUR_MS = 3_600_000


def test_each_occurrence_is_due_when_its_router_says(spark: SparkSession, stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out, recurring=True, config=CREATE_TIME)
    hand, began_ms = Hand(stage), now_ms() - 60_000

    def first(*headers: Header) -> str:
        return stage.send(delay, *headers, timestamp_ms=began_ms)

    def follows(origin: str, number: int, due_ms: int, *headers: Header) -> str:
        told = b"%d %d %d 8f0c" % (int(origin.rpartition("/")[2]), number, due_ms)
        return stage.send(delay, *headers, ("delay-source", origin.encode()), ("deliver-series", told))

    after: Header = ("deliver-after", b"30s")
    at: Header = ("deliver-at", b"%d" % (began_ms + 5_000))
    sent = {"every": first(EVERY), "after": first(EVERY, after), "at": first(EVERY, at)}
    cron, unbegun = first(CRON, ("deliver-at", b"%d" % (began_ms + 20_000))), first(CRON)
    sent["after 2"] = follows(sent["after"], 2, began_ms + 40_000, EVERY, after)
    sent["at 2"] = follows(sent["at"], 2, began_ms + 15_000, EVERY, at)
    sent["cron 1"] = follows(cron, 1, began_ms + 20_000, CRON, ("deliver-at", b"%d" % (began_ms + 20_000)))
    pending = follows(sent["every"], 2, now_ms() + HOUR_MS, EVERY)
    # It does not begin the series that its origin would begin.
    sent["other"] = follows(unbegun, 2, began_ms, CRON)
    early = {
        follows(sent["cron 1"], 2, now_ms() + HOUR_MS, CRON),
        first(("deliver-every", b"1h")),
    }
    lost = follows(sent["at"], 3, began_ms + 25_000, EVERY, at)
    refused = follows(sent["after"], 3, began_ms + 50_000, EVERY, after)
    stage.wait_records(delay, 14)
    for place in (*sent.values(), *early):
        hand.write(out, place)
    as_sent = stage.records(delay)[int(refused.rpartition("/")[2])].headers
    numbered: list[Header] = [("delay-occurrence", b"3"), ("delay-series", sent["after"].encode())]
    hand.write(f"{delay}.rejected", refused, *as_sent, *numbered, *REJECTION)
    wait_until(lambda: stage.audit().rejected == 1, "everything is visible")

    found = audit_stage(spark, stage)
    assert_same(found.total, stage.audit())
    counts = found.total.counts
    assert (counts["released"], counts["pending"], counts["rejected"], counts["illegible"]) == (10, 1, 1, 0)
    assert {name: counts[name] for name in ("lost", "early", "altered")} == {"lost": 2, "early": 2, "altered": 0}
    assert {sample["source"] for sample in found.samples if sample["early"]} == early
    assert {sample["source"] for sample in found.samples if sample["outcome"] == "lost"} == {lost, unbegun}
    assert pending not in {sample["source"] for sample in found.samples}
    # The first occurrence lies behind the records that are judged.
    part = AuditSelection(frozenset({0}), Edge(offset=3), Edge(offset=4))
    counts = audit_stage(spark, stage, part).total.counts
    assert (counts["sent"], counts["released"]) == (1, 1)


def test_series_of_a_router_are_found_without_fault(spark: SparkSession, stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out, recurring=True, min_period="100ms")
    with stage.router() as router:
        router.start_and_wait()
        minute_ms = now_ms() // 60_000 * 60_000
        stage.send(delay, ("deliver-every", b"300ms"), ("deliver-after", b"1s"), ("deliver-times", b"5"))
        stage.send(delay, CRON, ("deliver-at", b"%d" % minute_ms), ("deliver-times", b"1"))
        stage.send(delay, ("deliver-every", b"1h"))
        stage.wait_records(out, 6)
        time.sleep(0.5)
        assert router.stop() == 0
    found, report = audit_stage(spark, stage).total, stage.audit()
    assert_same(found, report)
    assert (found.violations, found.counts["released"], found.counts["pending"]) == (0, 7, 1)
