"""Tests of records that the broker refuses in a transaction: they alone are rejected, all others are released."""

from random import Random

import pytest

from sidecar.dev.audit import AuditedRecord
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import CREATE_TIME, Header, Stage, header, now_ms, released_late_ms, wait_until
from tests.integration.serving import serving

SMALL_BYTES = 3_000
GOOD_WITHIN_MS = 5_000
"""A refused record may cost others a second; the remainder allows for a machine that runs other tests."""


def sources(records: list[AuditedRecord]) -> set[str]:
    return {(header(record, "delay-source") or b"").decode() for record in records}


def by_source(records: list[AuditedRecord]) -> dict[str, AuditedRecord]:
    found = {(header(record, "delay-source") or b"").decode(): record for record in records}
    assert len(found) == len(records), "a record came twice"
    return found


def at_one_instant(ahead_ms: int = 1_500) -> Header:
    """Return a due time that all records of a test share, so that they leave in one transaction."""
    return ("deliver-at", b"%d" % (now_ms() + ahead_ms))


def test_one_too_large_record_in_a_batch_holds_nothing_up(stage: Stage) -> None:
    small = stage.target("small", config={"max.message.bytes": "60000"})
    delay = stage.delay(default_target=small)
    with stage.router() as router:
        router.start_and_wait()
        at = at_one_instant()
        large = [stage.send(delay, at, value=b"x" * size) for size in (70_000, 90_000, 70_000)]
        stage.send_many(delay, [[at]] * 300)
        large.append(stage.send(delay, at, ("h", b"y" * 70_000), value=None))
        rejected = by_source(stage.wait_records(f"{delay}.rejected", 4))
        assert set(rejected) == set(large)
        for record in rejected.values():
            assert header(record, "delay-error") == b"RECORD_TOO_LARGE"
        assert rejected[large[0]].value == b"x" * 70_000, "the rejected topic can take it, so it must be whole"
        report = stage.settle()
        assert (report.released_once, report.rejected) == (300, 4)
        assert router.metric(f'transactions_total{{outcome="aborted",topic="{delay}"}}') >= 1
        # The producer is still the first one: a clean abort is no reason to take over again.
        assert len(router.events("partition_active")) == 1


def test_a_target_that_takes_each_record_but_not_a_batch_of_them(stage: Stage) -> None:
    """No record is at fault, so the router rejects none and releases them in smaller batches."""
    small = stage.target("small", config={"max.message.bytes": "20000"})
    delay = stage.delay(default_target=small)
    with stage.router() as router:
        router.start_and_wait()
        for _ in range(2):
            at = at_one_instant()
            stage.send_many(delay, [[at, ("h", b"x" * 100)] for _ in range(300)])
            assert stage.settle().rejected == 0
        assert len(router.events("partition_active")) == 1


def test_one_culprit_among_500_records_with_several_targets(stage: Stage, rng: Random) -> None:
    """A record that one of its targets refuses reaches none of them."""
    small = stage.target("small", config={"max.message.bytes": "150000"})
    other = stage.target("other", 3)
    delay = stage.delay(allowed_targets=[small, other])
    to: list[Header] = [("deliver-to", other.encode()), ("deliver-to", small.encode())]
    culprit = rng.randrange(500)
    with stage.router() as router:
        router.start_and_wait()
        at = at_one_instant(2_500)
        stage.send_many(delay, [[at, *to, *([("h", b"z" * 200_000)] if n == culprit else [])] for n in range(500)])
        (rejected,) = stage.wait_records(f"{delay}.rejected", 1)
        assert header(rejected, "delay-source") == f"{delay}/0/{culprit}".encode()
        assert header(rejected, "delay-error") == b"RECORD_TOO_LARGE"
        report = stage.settle()
        assert (report.released_once, report.rejected) == (499, 1)
        assert f"{delay}/0/{culprit}" not in sources(stage.records(other))
        assert len(router.events("partition_active")) == 1


def test_a_record_without_key_for_a_compacted_target(stage: Stage) -> None:
    compacted = stage.target("compacted", config={"cleanup.policy": "compact"})
    delay = stage.delay(default_target=compacted)
    with stage.router() as router:
        router.start_and_wait()
        at = at_one_instant()
        good = {stage.send(delay, at, key=b"%d" % n) for n in range(20)}
        keyless = stage.send(delay, at, key=None)
        good |= {stage.send(delay, at, key=b"%d" % n, value=None) for n in range(20, 40)}
        (rejected,) = stage.wait_records(f"{delay}.rejected", 1)
        assert header(rejected, "delay-source") == keyless.encode()
        assert header(rejected, "delay-error") == b"TARGET_DENIED"
        assert sources(stage.wait_records(compacted, 40)) == good


def late_ms(records: list[AuditedRecord]) -> int:
    """Return the largest delay after the due time in ms, by the brokers' clock."""
    return max(map(released_late_ms, records))


@pytest.mark.timeout(120)
def test_thousands_that_are_refused_cost_others_no_more_than_a_moment(stage: Stage) -> None:
    compacted = stage.target("compacted", config={"cleanup.policy": "compact"})
    other = stage.target("other")
    delay = stage.delay(default_target=compacted, allowed_targets=[other])
    to_other: Header = ("deliver-to", other.encode())
    with stage.router() as router:
        router.start_and_wait()
        at = at_one_instant(4_000)
        for number in range(5_000):
            # The records are so large that many batches hold only bad ones, and the broker's answer does not name the
            # record.
            stage.post(delay, at, value=b"%01000d" % number, key=None)
        for number in range(100):
            stage.post(delay, at, *([to_other] if number % 2 else []), value=b"%d" % number)
        stage.flush()
        good = stage.wait_records(compacted, 50) + stage.wait_records(other, 50)
        assert len(good) == 100
        late = late_ms(good)
        print(f"latest of those that are taken: {late} ms")
        assert late < GOOD_WITHIN_MS
        rejected = stage.wait_records(f"{delay}.rejected", 5_000)
        assert {header(record, "delay-error") for record in rejected} == {b"TARGET_DENIED"}
        assert b"without a key" in (header(rejected[0], "delay-error-message") or b"")
        report = stage.settle()
        assert (report.released_once, report.rejected) == (100, 5_000)
        assert router.metric(f'transactions_total{{outcome="aborted",topic="{delay}"}}') == 0, "it was known before"


@pytest.mark.timeout(180)
def test_what_is_refused_for_reasons_nobody_can_know_before_is_set_aside(stage: Stage) -> None:
    """All records have one target, so even the broker's answer does not tell which one is refused.

    Records for other targets do not wait for the search, and later records for the same target leave in order.
    """
    strict = stage.target("strict", config={**CREATE_TIME, "message.timestamp.before.max.ms": "600000"})
    other = stage.target("other")
    delay = stage.delay(default_target=strict, allowed_targets=[other], config=CREATE_TIME, timestamp="source")
    to_other: Header = ("deliver-to", other.encode())
    with stage.router() as router:
        router.start_and_wait()
        due_ms = now_ms() + 3_000
        at: Header = ("deliver-at", b"%d" % due_ms)
        bad = {stage.send(delay, at, timestamp_ms=due_ms - 3_600_000) for _ in range(100)}
        for number in range(20):
            stage.send(delay, at, to_other, value=b"%d" % number)
            # These are due later, so that no batch of refused records has one of them, which would give the answer
            # away.
            stage.send(delay, ("deliver-at", b"%d" % (due_ms + 3_000 + number)), value=b"%d" % number, key=b"k")
        for number in range(20, 100):
            at = ("deliver-at", b"%d" % (due_ms + number * 20))
            stage.send(delay, at, to_other, value=b"%d" % number)
        late = late_ms(stage.wait_records(other, 100))
        print(f"latest of another target: {late} ms")
        assert late < GOOD_WITHIN_MS
        rejected = by_source(stage.wait_records(f"{delay}.rejected", len(bad), 90.0))
        assert set(rejected) == bad
        in_order = stage.wait_records(strict, 20)
        assert [record.value for record in in_order] == [b"%d" % number for number in range(20)]
        assert router.events("records_set_aside")
        topic = f'{{topic="{delay}"}}'
        wait_until(lambda: router.metric(f"held_records{topic}") == 0, "nothing is held any more")


@pytest.mark.parametrize("cached", [True, False], ids=["known-to-the-router", "new-to-the-router"])
def test_a_target_deleted_while_records_are_pending(stage: Stage, cached: bool) -> None:
    out, doomed = stage.target("out"), stage.target("doomed")
    delay = stage.delay(default_target=out, allowed_targets=[doomed])
    to_doomed: Header = ("deliver-to", doomed.encode())
    # librdkafka goes on asking for a deleted topic for a third of this time.
    with stage.router(transaction_timeout="15s") as router:
        router.start_and_wait()
        if cached:
            stage.send(delay, to_doomed, value=b"in time")
            stage.wait_records(doomed, 1)
        at = at_one_instant(2_000)
        pending = {stage.send(delay, at, to_doomed, value=b"%d" % n) for n in range(3)}
        kept = {stage.send(delay, at, value=b"%d" % n) for n in range(3)}
        stage.delete(doomed)
        rejected = by_source(stage.wait_records(f"{delay}.rejected", 3))
        assert set(rejected) == pending
        assert {header(record, "delay-error") for record in rejected.values()} == {b"TARGET_UNKNOWN"}
        assert sources(stage.wait_records(out, 3)) == kept
        # The deleted target delays no other record any more, and a target that returns is found again.
        stage.send(delay, value=b"next")
        stage.wait_records(out, 4)
        stage.targets.remove(doomed)
        stage.target("doomed")
        stage.send(delay, ("deliver-after", b"2500"), to_doomed, value=b"back")
        stage.wait_records(doomed, 1)
        assert router.stop() == 0


class TestRejectedTopicThatIsTooSmall:
    """A record that the rejected topic refuses must not hold up the partition: the router shortens it step by step."""

    def run(
        self, stage: Stage, router: RouterProcess, delay: str, out: str, bad: list[str]
    ) -> dict[str, AuditedRecord]:
        stage.send(delay, ("deliver-after", b"200"), value=b"good")
        rejected = by_source(stage.wait_records(f"{delay}.rejected", len(bad)))
        assert set(rejected) == set(bad)
        assert len(stage.wait_records(out, 1)) == 1
        topic = f'{{topic="{delay}"}}'
        assert router.metric(f"records_rejected_truncated_total{topic}") >= 1
        return rejected

    def test_value(self, stage: Stage) -> None:
        out = stage.target()
        delay = stage.delay(default_target=out, rejected_config={"max.message.bytes": str(SMALL_BYTES)})
        with stage.router() as router:
            router.start_and_wait()
            bad: Header = ("deliver-after", b"soon")
            large = stage.send(delay, bad, ("h", b"1"), value=b"x" * 5_000)
            whole = stage.send(delay, bad, ("h", b"1"), value=b"x" * 500)
            rejected = self.run(stage, router, delay, out, [large, whole])
            assert rejected[whole].value == b"x" * 500
            assert (rejected[large].key, rejected[large].value) == (b"k", None)
            assert list(rejected[large].headers[:2]) == [bad, ("h", b"1")]
            assert header(rejected[large], "delay-error") == b"INVALID_SCHEDULE"
            said = header(rejected[large], "delay-error-message") or b""
            assert b"5000 bytes" in said
            assert router.metric(f'records_rejected_truncated_total{{topic="{delay}"}}') == 1

    def test_headers(self, stage: Stage) -> None:
        out = stage.target()
        delay = stage.delay(default_target=out, rejected_config={"max.message.bytes": str(SMALL_BYTES)})
        with stage.router() as router:
            router.start_and_wait()
            bad: Header = ("deliver-after", b"soon")
            large = stage.send(delay, bad, *[(f"h{n}", b"y" * 1_000) for n in range(5)], value=b"v")
            rejected = self.run(stage, router, delay, out, [large])
            assert header(rejected[large], "delay-error") == b"INVALID_SCHEDULE"
            assert header(rejected[large], "delay-source") == large.encode()

    def test_key(self, stage: Stage) -> None:
        out = stage.target()
        delay = stage.delay(default_target=out, rejected_config={"max.message.bytes": str(SMALL_BYTES)})
        with stage.router() as router:
            router.start_and_wait()
            large = stage.send(delay, ("deliver-after", b"soon"), key=b"k" * 5_000)
            rejected = self.run(stage, router, delay, out, [large])
            assert header(rejected[large], "delay-error") == b"INVALID_SCHEDULE"


def test_a_record_as_large_as_the_delay_topic_takes(stage: Stage) -> None:
    """The added headers make it too large for a target with the same limit, and for the rejected topic."""
    with serving(stage) as (_, delay, out):
        # 1,048,588 bytes is the limit of a batch; this leaves 20 bytes for its one record beyond key and value.
        largest = stage.send(delay, value=b"x" * (1_048_588 - 61 - 15))
        good = stage.send(delay, value=b"small")
        (rejected,) = stage.wait_records(f"{delay}.rejected", 1)
        assert header(rejected, "delay-source") == largest.encode()
        assert header(rejected, "delay-error") == b"RECORD_TOO_LARGE"
        assert rejected.value is None
        assert sources(stage.wait_records(out, 1)) == {good}
