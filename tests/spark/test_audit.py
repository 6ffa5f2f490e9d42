"""Tests of the audit on Spark with a real broker: it finds exactly the planted faults, like the single process."""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from index.errors import ConfigError
from spark_backfill.audit.scope import AuditSelection, Edge
from spark_backfill.cli import cli
from spark_backfill.errors import JobError
from tests.integration.scenario import Header, Load, Stage, now_ms, wait_until
from tests.spark.auditing import REJECTION, Hand, assert_same, audit_stage
from tests.spark.backfill import delay_topic

# Each test runs several Spark jobs, on a machine with other work.
pytestmark = pytest.mark.timeout(600)

AFTER: Header = ("deliver-after", b"1")
HOUR: Header = ("deliver-after", b"PT1H")


@pytest.fixture
def hand(stage: Stage) -> Hand:
    return Hand(stage)


def settled(stage: Stage, topic: str, count: int) -> None:
    stage.wait_records(topic, count)
    time.sleep(0.01)  # past the due times, which are 1 ms after sending


def test_a_router_under_load_is_found_without_fault(spark: SparkSession, stage: Stage, rng: Random) -> None:
    out = stage.target(partitions=2)
    delay = delay_topic(stage, 2, default_target=out, allowed_targets=[f"{stage.word}.*"])
    other = stage.target("other")
    with stage.router() as router:
        router.start_and_wait()
        with Load(stage, [delay], rng, partitions=2) as load:
            time.sleep(3)
            # While records come and go, with an open transaction at any moment: no false verdict.
            moving = audit_stage(spark, stage, grace_ms=5_000).total
            load.finish()
        stage.send(delay, ("deliver-after", b"10"), ("deliver-to", other.encode()), ("deliver-to", out.encode()))
        stage.send(delay, ("deliver-at", b"2999-01-01T00:00:00Z"))
        report = stage.settle()
        found = audit_stage(spark, stage)
    assert moving.violations == 0, moving
    assert moving.counts["released"] > 0
    assert_same(found.total, report)
    assert found.total.violations == 0
    assert found.total.counts["rejected"] > 0
    assert found.total.counts["sent"] == sum(each.counts["sent"] for each in found.partitions)
    assert [dict(each.keys)["partition"] for each in found.partitions] == [0, 1]
    assert found.total.lateness["late_max_ms"] == max(report.lateness_ms)
    median = found.total.lateness["late_p50_ms"]
    assert median is not None
    assert abs(median - report.percentile_ms(50)) <= max(2, median // 100)  # a record with two targets counts once here


def test_every_planted_fault_is_found(spark: SparkSession, stage: Stage, hand: Hand) -> None:
    out, second = stage.target(), stage.target("second")
    delay = stage.delay(default_target=out, allowed_targets=[second])
    rejected = f"{delay}.rejected"
    both: list[Header] = [("deliver-to", out.encode()), ("deliver-to", second.encode())]
    names = ["good", "lost", "doubled", "altered", "no_headers", "astray", "refused", "refused_and_released"]
    sent = {name: stage.send(delay, AFTER, ("n", name.encode())) for name in names}
    sent |= {name: stage.send(delay, AFTER, *both) for name in ("fan", "half_fan", "twice_in_one")}
    sent["early"] = stage.send(delay, HOUR)
    sent["pending"] = stage.send(delay, HOUR)
    sent["illegible"] = stage.send(delay, ("deliver-after", b"soon"))
    sent["keyed"] = stage.send(delay, AFTER, ("deliver-key", b"other"))
    settled(stage, delay, len(sent))

    def n(name: str) -> Header:
        return "n", name.encode()

    for name in ("good", "doubled", "doubled", "refused_and_released"):
        hand.write(out, sent[name], n(name))
    hand.write(out, sent["altered"], n("altered"), value=b"w")
    hand.write(out, sent["no_headers"])
    hand.write(second, sent["astray"], n("astray"))
    for name in ("refused", "refused_and_released"):
        hand.write(rejected, sent[name], AFTER, n(name), *REJECTION)
    for topic in (out, second):
        hand.write(topic, sent["fan"])
    hand.write(out, sent["half_fan"])
    for topic in (out, second, second):
        hand.write(topic, sent["twice_in_one"])
    hand.write(out, sent["early"])
    hand.write(out, sent["illegible"])
    hand.write(out, sent["keyed"], key=b"other")
    hand.write(out, f"{delay}/0/999")
    hand.write(out, f"{delay}/7/0")
    hand.write(out, "nonsense")
    hand.producer.begin_transaction()
    hand.open(out, sent["good"], n("good"))
    hand.producer.abort_transaction()
    wait_until(lambda: stage.audit().foreign == 3, "everything is visible")

    found, report = audit_stage(spark, stage), stage.audit()
    assert_same(found.total, report)
    counts = found.total.counts
    assert (counts["lost"], counts["doubled"], counts["early"]) == (3, 3, 1)
    assert (counts["altered"], counts["astray"], counts["foreign"]) == (2, 1, 3)
    assert {name: found.outcome(sent[name]) for name in ("lost", "half_fan", "astray", "doubled", "twice_in_one")} == {
        "lost": "lost",
        "half_fan": "lost",
        "astray": "lost",
        "doubled": "doubled",
        "twice_in_one": "doubled",
    }
    assert {sample["source"] for sample in found.samples if sample["early"]} == {sent["early"]}
    assert {sample["source"] for sample in found.samples if sample["altered"]} == {sent["altered"], sent["no_headers"]}
    assert not {sent[name] for name in ("good", "fan", "pending", "refused", "keyed")} & {
        sample["source"] for sample in found.samples
    }


def test_what_a_receipt_names_is_not_lost_and_must_not_have_left(spark: SparkSession, stage: Stage, hand: Hand) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out)
    receipts = f"{delay}.receipts"

    def by_id(name: str, *headers: Header) -> str:
        return stage.send(delay, ("deliver-id", name.encode()), *headers)

    def cancels(name: str, *headers: Header) -> str:
        return stage.send(delay, ("deliver-cancel", name.encode()), *headers)

    def answer(control: str, name: str, *named: str, action: str = "cancel", headers: Sequence[Header] = ()) -> None:
        done = {"cancel": "cancelled", "replace": "replaced"}[action] if named else "not-pending"
        offsets = [{"offset": int(place.rpartition("/")[2]), "due": 0} for place in named]
        said = {"action": action, "outcome": done, "cancelled": offsets, "due": None}
        asked = headers or (("deliver-cancel", name.encode()),)
        hand.write(receipts, control, *asked, value=json.dumps(said).encode(), key=name.encode())

    replace: Header = ("deliver-replace", b"true")
    condition: Header = ("deliver-if-due", b"5")
    sent = {name: by_id(name, AFTER) for name in ("cancelled", "replaced", "left", "lost", "twice")}
    controls = {name: cancels(name) for name in (*sent, "unanswered", "again")}
    controls |= {"new": by_id("replaced", replace, AFTER), "void": by_id("void", replace, condition, AFTER)}
    settled(stage, delay, len(sent) + len(controls))
    for name in ("cancelled", "left", "twice"):
        answer(controls[name], name, sent[name])
    answer(controls["lost"], "lost")
    answer(controls["replaced"], "replaced")
    named: list[Header] = [("deliver-id", b"replaced"), replace, AFTER]
    answer(controls["new"], "replaced", sent["replaced"], action="replace", headers=named)
    answer(controls["void"], "void", action="replace", headers=[("deliver-id", b"void"), replace, condition, AFTER])
    answer(controls["again"], "again")
    answer(controls["again"], "again")
    hand.write(out, controls["new"])
    hand.write(out, sent["left"])
    hand.write(f"{delay}.rejected", sent["twice"], ("deliver-id", b"twice"), AFTER, *REJECTION)
    answer(f"{delay}/0/999", "nobody")
    answer(f"{delay}/7/0", "nobody")
    hand.write(receipts, controls["unanswered"], ("deliver-cancel", b"unanswered"), value=b"no", key=b"unanswered")
    wait_until(lambda: stage.audit().altered == 1, "everything is visible")

    found, report = audit_stage(spark, stage), stage.audit()
    assert_same(found.total, report)
    counts = found.total.counts
    assert (counts["cancelled"], counts["replaced"], counts["answered"]) == (1, 1, 7)
    assert (counts["lost"], counts["doubled"], counts["foreign"], counts["altered"]) == (1, 3, 2, 1)
    assert found.outcome(sent["lost"]) == "lost"
    assert {found.outcome(place) for place in (sent["left"], sent["twice"], controls["again"])} == {"doubled"}


def test_of_several_moves_in_one_transaction_the_last_is_written_and_each_is_answered(
    spark: SparkSession, stage: Stage, hand: Hand
) -> None:
    delay = stage.delay(default_target=stage.target())

    def answer(control: str, action: str, outcome: str, *named: str) -> None:
        said = {
            "action": action,
            "outcome": outcome,
            "cancelled": [{"offset": int(place.rpartition("/")[2]), "due": 0} for place in named],
            "due": now_ms() + 3_600_000 if outcome == "moved" else None,
        }
        asked: list[Header] = [("deliver-cancel", b"a")] if action == "cancel" else [("deliver-move", b"a"), HOUR]
        hand.write(f"{delay}.receipts", control, *asked, value=json.dumps(said).encode(), key=b"a")

    first = stage.send(delay, ("deliver-id", b"a"), HOUR)
    moves = [stage.send(delay, ("deliver-move", b"a"), HOUR) for _ in range(4)]
    cancels = [stage.send(delay, ("deliver-cancel", b"a")) for _ in range(2)]
    answer(moves[0], "move", "moved", first)
    answer(moves[1], "move", "moved", moves[0])
    # The result of this move would be too large to be written again.
    answer(moves[2], "move", "not-moved")
    answer(moves[3], "move", "moved", moves[1])
    answer(cancels[0], "cancel", "cancelled", moves[3])
    # A cancel has moved nothing, so another control cannot take its result.
    answer(cancels[1], "cancel", "cancelled", cancels[0])
    settled(stage, delay, 7)
    wait_until(lambda: stage.audit().answered == 6, "everything is visible")
    found, report = audit_stage(spark, stage), stage.audit()
    assert_same(found.total, report)
    counts = found.total.counts
    assert (counts["moved"], counts["answered"], counts["altered"], found.total.violations) == (1, 6, 1, 1)


def test_a_moved_schedule_without_a_record_is_lost(spark: SparkSession, stage: Stage, hand: Hand) -> None:
    delay = stage.delay(default_target=stage.target())
    moves = {}
    for name in (b"written", b"nowhere"):
        old = stage.send(delay, ("deliver-id", name), HOUR)
        moves[name] = stage.send(delay, ("deliver-move", name), HOUR)
        cancelled = [{"offset": int(old.rpartition("/")[2]), "due": 0}]
        said = {"action": "move", "outcome": "moved", "cancelled": cancelled, "due": 0}
        asked: list[Header] = [("deliver-move", name), HOUR]
        hand.write(f"{delay}.receipts", moves[name], *asked, value=json.dumps(said).encode(), key=name)
    end = Edge(offset=4)
    moved = stage.send(delay, HOUR, ("delay-source", moves[b"written"].encode()))
    settled(stage, delay, 5)
    wait_until(lambda: stage.audit().answered == 2, "everything is visible")
    found, report = audit_stage(spark, stage), stage.audit()
    assert report.moved_to_nowhere == 1
    counts = found.total.counts
    assert (counts["moved"], counts["answered"], counts["lost"], counts["pending"]) == (2, 1, 1, 1)
    assert found.outcome(moves[b"nowhere"]) == "lost"
    # The record of the moved schedule lies behind the records that are judged.
    counts = audit_stage(spark, stage, AuditSelection(frozenset({0}), end=end)).total.counts
    assert moved.endswith("/4")
    assert (counts["sent"], counts["moved"], counts["answered"], counts["lost"]) == (4, 2, 1, 1)


def test_attempts_are_judged_alike(spark: SparkSession, stage: Stage, hand: Hand) -> None:
    out, dead = stage.target("out"), stage.target("dead")
    retry = {"first": "200ms", "jitter": 0.5, "attempts": 2, "dead_letter": dead}
    delay = delay_topic(stage, 1, default_target=out, retry=retry)
    first: Header = ("delay-attempt", b"1")
    with stage.router() as router:
        router.start_and_wait()
        for headers in ([], [first, ("delay-target", out.encode())], [first, ("deliver-after", b"1")]):
            stage.send(delay, ("trace", b"1"), *headers)
        stage.send(delay, ("trace", b"1"), ("delay-attempt", b"2"), ("deliver-to", b"nowhere"))
        stage.send(delay, ("delay-attempt", b"x"))
        stage.wait_records(out, 3)
        stage.wait_records(dead, 1)
        stage.wait_records(f"{delay}.rejected", 1)
        assert router.stop() == 0
    assert_same(audit_stage(spark, stage).total, stage.audit())
    assert stage.audit().ok
    wrong, spent, early = stage.send(delay, first), stage.send(delay, ("delay-attempt", b"2")), stage.send(delay)
    told: Header = ("delay-target", out.encode())
    hand.write(out, early, first, told)
    time.sleep(0.5)
    hand.write(out, wrong, first, told)
    hand.write(out, spent, ("delay-attempt", b"3"), told)
    found = audit_stage(spark, stage).total
    assert_same(found, stage.audit())
    names = ("released", "early", "altered", "astray", "lost", "rejected")
    assert [found.counts[name] for name in names] == [6, 1, 2, 1, 1, 1]


def test_an_open_transaction_is_waited_for(spark: SparkSession, stage: Stage, hand: Hand) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out)
    place = stage.send(delay, AFTER)
    settled(stage, delay, 1)
    hand.producer.begin_transaction()
    hand.open(out, place)
    with pytest.raises(JobError, match=rf"{out}/0: a transaction is open"):
        audit_stage(spark, stage, settle_s=0.5)
    hand.producer.commit_transaction()
    assert audit_stage(spark, stage).total.counts["released"] == 1


def test_a_part_of_a_topic(spark: SparkSession, stage: Stage, hand: Hand) -> None:
    out = stage.target()
    delay = stage.delay(partitions=2, default_target=out)
    places = [stage.send(delay, AFTER, partition=partition) for partition in (0, 1, 1, 1)]
    time.sleep(0.05)
    between_ms = now_ms()
    time.sleep(0.05)
    places.append(stage.send(delay, AFTER, partition=1))
    settled(stage, delay, 5)
    for place in places[1:]:
        hand.write(out, place)

    def counts(selection: AuditSelection) -> tuple[int, int, int, int]:
        found = audit_stage(spark, stage, selection).total.counts
        return found["sent"], found["released"], found["lost"], found["foreign"]

    one = frozenset({1})
    assert counts(AuditSelection()) == (5, 4, 1, 0)
    assert counts(AuditSelection(one)) == (4, 4, 0, 0)
    assert counts(AuditSelection(one, Edge(offset=1), Edge(offset=3))) == (2, 2, 0, 0)
    assert counts(AuditSelection(start=Edge(time_ms=between_ms))) == (1, 1, 0, 0)
    assert counts(AuditSelection(end=Edge(time_ms=between_ms))) == (4, 3, 1, 0)
    assert counts(AuditSelection(start=Edge(time_ms=now_ms() + 1_000))) == (0, 0, 0, 0)
    for selection, message in (
        (AuditSelection(frozenset({2})), "--partition 2: .* has 2 partitions"),
        (AuditSelection(start=Edge(offset=1)), "--from 1: an offset is meant for one partition"),
        (AuditSelection(one, end=Edge(offset=9)), "--to 9: .*/1 holds offsets 0 to 4"),
    ):
        with pytest.raises(ConfigError, match=message):
            audit_stage(spark, stage, selection)


def test_no_verdict_where_the_target_has_forgotten_or_was_left_out(
    spark: SparkSession, stage: Stage, hand: Hand
) -> None:
    out, kept = stage.target(), stage.target("kept")
    compacted = stage.target("compacted", config={"cleanup.policy": "compact"})
    delay = stage.delay(default_target=out, allowed_targets=[kept, compacted])
    removed = stage.send(delay, AFTER)
    for target in (kept, compacted):
        stage.send(delay, AFTER, ("deliver-to", target.encode()))
    settled(stage, delay, 3)
    hand.write(out, removed)
    hand.write(out, "nonsense")
    # A commit returns before its marker is written, which is at offset 3.
    stage.wait_records(out, 2)
    stage.admin.delete_records([TopicPartition(out, 0, 4)])[TopicPartition(out, 0, 4)].result(10)
    counts = audit_stage(spark, stage).total.counts
    assert (counts["sent"], counts["unprovable"], counts["lost"]) == (3, 2, 1)
    counts = audit_stage(spark, stage, targets=(out, compacted)).total.counts
    assert (counts["unprovable"], counts["unread"], counts["lost"]) == (2, 1, 0)


def test_aliases_and_topics_without_append_times(spark: SparkSession, stage: Stage, hand: Hand) -> None:
    out = stage.target(config={"message.timestamp.type": "CreateTime"})
    delay = stage.delay(default_target=out, aliases=["etf1"])
    far = stage.send(delay, ("scheduler-epoch", b"%d" % (now_ms() // 1000 + 3600)))
    place = stage.send(delay, ("scheduler-epoch", b"1700000000"), ("n", b"1"))
    settled(stage, delay, 2)
    hand.write(out, place, ("n", b"1"))
    found = audit_stage(spark, stage)
    assert far
    assert (found.total.counts["pending"], found.total.counts["released"]) == (1, 1)
    assert (found.total.counts["untimed"], found.total.violations) == (1, 0)
    assert found.total.lateness["late_max_ms"] is None


def test_from_the_shell(spark: SparkSession, stage: Stage, hand: Hand, tmp_path: Path) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out)
    lost, good = stage.send(delay, AFTER), stage.send(delay, AFTER)
    settled(stage, delay, 2)
    hand.write(out, good)
    call = ["audit", "--config", str(stage.router("audit").config), "--grace", "0ms"]
    shell = CliRunner()
    done = shell.invoke(cli, [*call, "--json", "--output", str(tmp_path / "result")])
    assert done.exit_code == 1, done.output
    told = json.loads(done.stdout)
    assert (told["ok"], told["total"]["sent"], told["total"]["lost"]) == (False, 2, 1)
    assert [sample["source"] for sample in told["samples"]] == [lost]
    summary = spark.read.parquet(str(tmp_path / "result" / "summary")).collect()
    assert [(row["topic"], row["partition"], row["sent"], row["lost"]) for row in summary] == [(delay, 0, 2, 1)]
    assert summary[0]["hour"].minute == 0
    findings = spark.read.parquet(str(tmp_path / "result" / "findings")).collect()
    assert [(row["source"], row["outcome"]) for row in findings] == [(lost, "lost")]
    hand.write(out, lost)
    done = shell.invoke(cli, [*call, "--from", datetime.fromtimestamp(0, UTC).isoformat()])
    assert done.exit_code == 0, done.output
    assert "no violation: 2 records sent" in done.stdout
    for arguments, message in (
        (["--topic", "nope"], "is not a configured delay topic"),
        (["--from", "yesterday"], "--from 'yesterday'"),
        (["--target", "no-such-topic"], "--target no-such-topic: no such topic"),
    ):
        done = shell.invoke(cli, [*call, *arguments])
        assert (done.exit_code, message in done.stderr) == (2, True), done.output
