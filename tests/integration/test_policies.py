"""Tests of policies while routers run: every router obeys a change at once, without loss or duplicates."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from sidecar.config import model as configuration
from sidecar.dev import local_kafka
from sidecar.operations.desk import Operations
from sidecar.policies.policy import target_scope, topic_scope
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import APPEND_TIME, TIMEOUT_S, Load, Stage, header, now_ms, released_due_ms, wait_until


@dataclass
class Ruled:
    """A stage with its own policies topic, and the operations of an operator on it."""

    stage: Stage
    topic: str

    def router(self, name: str = "router", **options: Any) -> RouterProcess:
        return self.stage.router(name, policies_topic=self.topic, **options)

    def operations(self, router: RouterProcess) -> Operations:
        return Operations.for_command(configuration.load(router.config, {}))


@pytest.fixture
def ruled(kafka: local_kafka.Cluster, tmp_path: Path) -> Iterator[Ruled]:
    """Yield a stage of the test's own, with a policies topic."""
    stage = Stage(kafka.bootstrap, tmp_path)
    topic = f"__{stage.word}.policies"
    stage.create([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact", **APPEND_TIME})])
    yield Ruled(stage, topic)
    stage.print_logs()


def state_of(router: RouterProcess, delay: str, partition: int = 0) -> dict[str, Any]:
    _, body = router.http("/readyz")
    found: dict[str, Any] = json.loads(body)["partitions"].get(f"{delay}/{partition}", {})
    return found


def is_active(router: RouterProcess, delay: str, partition: int) -> bool:
    return bool(state_of(router, delay, partition).get("state") == "active")


def in_force(router: RouterProcess, count: int = 1) -> bool:
    return len(router.events("rules_changed")) >= count


def codes(stage: Stage, delay: str, count: int) -> list[bytes | None]:
    return [header(record, "delay-error") for record in stage.wait_records(f"{delay}.rejected", count)]


def test_two_routers_follow_a_policy_within_a_second_and_pending_records_stay(ruled: Ruled) -> None:
    stage = ruled.stage
    out = stage.target()
    delay = stage.delay(partitions=2, default_target=out, max_delay="1h")
    with ruled.router("a", instance_id="a") as one, ruled.router("b", instance_id="b") as two:
        one.start_and_wait()
        two.start_and_wait()
        # A partition that is taken over only now starts with the policy, and logs no change.
        wait_until(lambda: all(is_active(r, delay, p) for r, p in _split(one, two, delay)), "a partition each")
        for partition in (0, 1):
            stage.send(delay, ("deliver-after", b"PT8S"), partition=partition)
        ruled.operations(one).change_policy(topic_scope(delay), {"max_delay": "2s"})
        wait_until(lambda: in_force(one) and in_force(two), "both follow")
        (written,) = stage.records(ruled.topic)
        seen = [
            _logged(router.events(event)[0]) * 1_000 - written.timestamp_ms
            for router in (one, two)
            for event in ("policy_changed", "rules_changed")
        ]
        print(f"after it was written, policy seen and in force: {', '.join(f'{each:.0f} ms' for each in seen)}")
        for partition in (0, 1):
            stage.send(delay, ("deliver-after", b"PT8S"), partition=partition)
        assert codes(stage, delay, 2) == [b"MAX_DELAY_EXCEEDED"] * 2
        one.kill()
        one.start_and_wait()
        # The pending records are decided again by the rules of their time.
        report = stage.settle()
    assert (report.released_once, report.rejected) == (2, 2)


def _split(one: RouterProcess, two: RouterProcess, delay: str) -> list[tuple[RouterProcess, int]]:
    return [(one, 0), (two, 1)] if state_of(one, delay, 0) else [(one, 1), (two, 0)]


def _logged(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["timestamp"]).timestamp()


def test_a_shorter_allow_list_diverts_pending_records(ruled: Ruled) -> None:
    stage = ruled.stage
    out, other = stage.target(), stage.target("other")
    delay = stage.delay(default_target=out, allowed_targets=[other])
    with ruled.router() as router:
        router.start_and_wait()
        stage.send(delay, ("deliver-after", b"3000"), ("deliver-to", other.encode()))
        stage.send(delay, ("deliver-after", b"3000"))
        ruled.operations(router).change_policy(topic_scope(delay), {"allowed_targets": []})
        assert codes(stage, delay, 1) == [b"TARGET_NOT_ALLOWED"]
        stage.wait_records(out, 1)
        assert stage.records(other) == []


def test_a_disabled_delay_topic_rejects_or_releases_at_once(ruled: Ruled) -> None:
    stage = ruled.stage
    out = stage.target()
    delay = stage.delay(default_target=out)
    with ruled.router() as router:
        router.start_and_wait()
        operations = ruled.operations(router)
        # Longer than both changes take on a busy machine.
        pending = stage.send(delay, ("deliver-after", b"12000"))
        operations.change_policy(topic_scope(delay), {"enabled": False})
        wait_until(lambda: in_force(router), "rules in force")
        stage.send(delay, ("deliver-after", b"1"))
        assert codes(stage, delay, 1) == [b"DELAY_DISABLED"]
        operations.change_policy(topic_scope(delay), {"when_disabled": "release"})
        wait_until(lambda: in_force(router, 2), "rules in force")
        undelayed = stage.send(delay, ("deliver-after", b"PT1H"))
        records = stage.wait_records(out, 2)
    assert [header(record, "delay-source") for record in records] == [undelayed.encode(), pending.encode()]


def _limited(ruled: Ruled, router: RouterProcess, delay: str, max_delay: str) -> Operations:
    """Start a router, and wait until a policy of this kind is in force."""
    router.start_and_wait()
    operations = ruled.operations(router)
    operations.change_policy(topic_scope(delay), {"max_delay": max_delay})
    wait_until(lambda: in_force(router), "rules in force")
    return operations


def test_policies_of_a_topic_that_was_created_again_hold(ruled: Ruled) -> None:
    """The new topic is longer than the position in the old one, so the client gets no error."""
    stage = ruled.stage
    out = stage.target()
    delay = stage.delay(default_target=out)
    # Longer than the pause takes on a busy machine: a partition that is taken over again logs no change.
    with ruled.router(session_timeout="30s") as router:
        operations = _limited(ruled, router, delay, "1h")
        router.pause()
        stage.delete(ruled.topic)
        stage.create([NewTopic(ruled.topic, 1, 1, config={"cleanup.policy": "compact", **APPEND_TIME})])
        operations.change_policy(topic_scope(delay), {"max_delay": "2s"})
        operations.change_policy(target_scope(out), {"paused": True})
        operations.change_policy(target_scope(out), {"paused": False})
        router.resume()
        wait_until(lambda: bool(router.events("policies_topic_created_again")), "another id")
        wait_until(lambda: in_force(router, 2), "rules in force")
        stage.send(delay, ("deliver-after", b"PT8S"))
        assert codes(stage, delay, 1) == [b"MAX_DELAY_EXCEEDED"]


def test_a_delay_for_records_without_headers_holds_for_what_comes_after_it(ruled: Ruled) -> None:
    stage = ruled.stage
    out = stage.target()
    delay = stage.delay(default_target=out, delay="1h")
    with ruled.router() as router:
        router.start_and_wait()
        operations = ruled.operations(router)
        stage.send(delay)
        operations.change_policy(topic_scope(delay), {"delay": "4s"})
        wait_until(lambda: in_force(router), "rules in force")
        soon = stage.send(delay)
        operations.change_policy(topic_scope(delay), {"delay": "2h"})
        wait_until(lambda: in_force(router, 2), "rules in force")
        # Both records are decided again, each by the rules of its time.
        router.kill()
        router.start_and_wait()
        told = stage.send(delay, ("deliver-after", b"10"))
        records = {header(record, "delay-source"): record for record in stage.wait_records(out, 2)}
    assert records.keys() == {soon.encode(), told.encode()}
    due_ms = released_due_ms(records[soon.encode()])
    assert due_ms == int(header(records[soon.encode()], "delay-source-timestamp") or 0) + 4_000
    assert records[soon.encode()].timestamp_ms >= due_ms


def test_a_target_is_disabled_and_limited_by_itself(ruled: Ruled) -> None:
    stage = ruled.stage
    out, other = stage.target(), stage.target("other")
    delay = stage.delay(default_target=out, allowed_targets=[other])
    with ruled.router() as router:
        router.start_and_wait()
        operations = ruled.operations(router)
        operations.change_policy(target_scope(other), {"enabled": False})
        # Otherwise the router may notice both changes at once and put them in force with one epoch.
        wait_until(lambda: in_force(router), "rules in force")
        operations.change_policy(target_scope(out), {"max_delay": "5s"})
        wait_until(lambda: in_force(router, 2), "rules in force")
        stage.send(delay, ("deliver-after", b"1"), ("deliver-to", other.encode()))
        stage.send(delay, ("deliver-after", b"PT6S"))
        stage.send(delay, ("deliver-after", b"1"))
        assert codes(stage, delay, 2) == [b"DELAY_DISABLED", b"MAX_DELAY_EXCEEDED"]
        stage.wait_records(out, 1)
        found = operations.effective(delay, out)["max_delay"]
    assert (found.value, found.origin) == ("5s", f"target/{out}")


def test_a_paused_delay_topic_takes_in_and_releases_later(ruled: Ruled, rng: Random) -> None:
    stage = ruled.stage
    out = stage.target()
    delay = stage.delay(default_target=out, seal_records=200, seal_age="1s")
    with ruled.router() as router:
        router.start_and_wait()
        operations = ruled.operations(router)
        with Load(stage, [delay], rng, delays_ms=(0, 2_000)) as _:
            stage.wait_records(out, 50)
            operations.switch(topic_scope(delay), "paused", on=True)
            wait_until(lambda: state_of(router, delay).get("state") == "paused", "paused")
            # A release that has begun before the pause still ends.
            before = at_rest(stage, out)
            time.sleep(3)
            assert len(stage.records(out)) == before
            wait_until(lambda: state_of(router, delay)["pending"] > 100, "records go on being taken in")
        assert router.ready()
        router.kill()
        router.start_and_wait()
        assert state_of(router, delay).get("state") in ("paused", "active")
        time.sleep(1)
        assert len(stage.records(out)) == before
        operations.switch(topic_scope(delay), "paused", on=False)
        stage.settle()
        assert len(stage.records(out)) > before


def at_rest(stage: Stage, target: str) -> int:
    """Return the number of records of a target once none has arrived for a second."""
    counts = [-1]

    def none_came() -> bool:
        time.sleep(1)
        counts.append(len(stage.records(target)))
        return counts[-1] == counts[-2]

    wait_until(none_came, f"the end of releases to {target}")
    return counts[-1]


def test_a_drained_delay_topic_is_sealed_and_given_up(ruled: Ruled) -> None:
    stage = ruled.stage
    out = stage.target()
    delay = stage.delay(default_target=out)
    with ruled.router() as router:
        router.start_and_wait()
        operations = ruled.operations(router)
        stage.send_many(delay, [[("deliver-after", b"15000")]] * 50)
        wait_until(lambda: state_of(router, delay)["pending"] == 50, "indexed")
        operations.switch(topic_scope(delay), "drained", on=True)
        wait_until(lambda: state_of(router, delay).get("state") == "drained", "drained")
        (drained,) = router.events("partition_drained")
        assert drained["sealed"]
        assert router.ready()
        stage.send(delay, ("deliver-after", b"1"))
        time.sleep(1)
        assert stage.records(out) == []
        operations.switch(topic_scope(delay), "drained", on=False)
        assert stage.settle().released_once == 51
        # Sealed records were not indexed again.
        restored = router.events("partition_active")[-1]
        assert restored["pending"] >= 50


def test_what_is_too_late_is_rejected(ruled: Ruled) -> None:
    stage = ruled.stage
    out, strict = stage.target(), stage.target("strict")
    delay = stage.delay(default_target=out, allowed_targets=[strict], expire_after="1h")
    with ruled.router() as router:
        router.start_and_wait()
        operations = ruled.operations(router)
        operations.change_policy(target_scope(strict), {"expire_after": "1s"})
        operations.switch(topic_scope(delay), "paused", on=True)
        wait_until(lambda: state_of(router, delay).get("state") == "paused", "paused")
        due = ("deliver-at", b"%d" % (now_ms() + 1_000))
        by_header = stage.send(delay, due, ("deliver-expire-after", b"PT2S"))
        by_policy = stage.send(delay, due, ("deliver-to", strict.encode()))
        overruled = stage.send(delay, due, ("deliver-to", strict.encode()), ("deliver-expire-after", b"0"))
        in_time = stage.send(delay, due)
        unreadable = stage.send(delay, due, ("deliver-expire-after", b"soon"))
        time.sleep(4)
        operations.switch(topic_scope(delay), "paused", on=False)
        records = stage.wait_records(f"{delay}.rejected", 3)
        found = {header(record, "delay-source"): header(record, "delay-error") for record in records}
        released = {header(record, "delay-source") for record in stage.wait_records(out, 1)}
        released |= {header(record, "delay-source") for record in stage.wait_records(strict, 1)}
    assert found == {
        by_header.encode(): b"EXPIRED",
        by_policy.encode(): b"EXPIRED",
        unreadable.encode(): b"INVALID_SCHEDULE",
    }
    assert released == {overruled.encode(), in_time.encode()}


def test_a_policy_that_cannot_be_read_keeps_the_last_good_one(ruled: Ruled) -> None:
    stage = ruled.stage
    out = stage.target()
    delay = stage.delay(default_target=out)
    with ruled.router() as router:
        operations = _limited(ruled, router, delay, "2s")
        _write(ruled, topic_scope(delay).key, b'{"version": 99, "max_delay": "1h"}')
        wait_until(lambda: router.metric("policies_unreadable") == 1, "the alarm")
        # The older record is still in the log; once compaction has removed it, the rules in the state are the last
        # ones.
        _write(ruled, topic_scope(delay).key, b"{")
        router.kill()
        router.start_and_wait()
        stage.send(delay, ("deliver-after", b"PT5S"))
        assert codes(stage, delay, 1) == [b"MAX_DELAY_EXCEEDED"]
        operations.replace_policy(topic_scope(delay), {"max_delay": "1h"})
        wait_until(lambda: router.metric("policies_unreadable") == 0, "the end of the alarm")


def _write(ruled: Ruled, key: bytes, value: bytes) -> None:
    producer = Producer({**ruled.stage.kafka})
    producer.produce(ruled.topic, value, key)
    assert producer.flush(TIMEOUT_S) == 0


BURST = 200
RATE = 40


def test_a_target_with_a_rate_does_not_hold_up_others(ruled: Ruled) -> None:
    stage = ruled.stage
    out, limited = stage.target(), stage.target("limited")
    delay = stage.delay(default_target=out, allowed_targets=[limited])
    with ruled.router() as router:
        router.start_and_wait()
        ruled.operations(router).change_policy(target_scope(limited), {"records_per_second": RATE})
        wait_until(lambda: router.events("policy_changed") != [], "the policy is known")
        time.sleep(0.5)
        due = ("deliver-at", b"%d" % (now_ms() + 1_500))
        to_limited = ("deliver-to", limited.encode())
        stage.send_many(delay, [[due, to_limited], [due]] * BURST)
        stage.wait_records(out, BURST)
        assert router.metric(f'records_held_total{{target="{limited}",topic="{delay}"}}') > 0
        router.kill()
        router.start_and_wait()
        # A late record, and one with both targets: neither overtakes the held ones.
        stage.send(delay, to_limited)
        stage.send(delay, to_limited, ("deliver-to", out.encode()))
        report = stage.settle()
        records = stage.records(limited)
    assert report.released_once == 2 * BURST + 2
    last_ms = stage.records(out)[BURST - 1].timestamp_ms
    given = sum(record.timestamp_ms <= last_ms for record in records)
    assert given < BURST, "the others waited for the target with a rate"
    assert [header(each, "delay-source") for each in records[-2:]] == [
        b"%s/0/%d" % (delay.encode(), 2 * BURST + n) for n in (0, 1)
    ]
    span_s = (records[-1].timestamp_ms - records[0].timestamp_ms) / 1_000
    # Each start of a process allows a burst of a quarter of a second.
    assert len(records) <= RATE * span_s + 2 * RATE / 4 + 2
    print(f"{len(records)} records in {span_s:.1f} s at {RATE}/s; {given} were given when the others were through")


def test_a_paused_target_waits_alone(ruled: Ruled) -> None:
    stage = ruled.stage
    out, paused = stage.target(), stage.target("paused")
    delay = stage.delay(default_target=out, allowed_targets=[paused], seal_age="1s")
    with ruled.router() as router:
        router.start_and_wait()
        operations = ruled.operations(router)
        operations.change_policy(target_scope(paused), {"paused": True})
        wait_until(lambda: router.events("policy_changed") != [], "the policy is known")
        time.sleep(0.5)
        large = stage.send(delay, ("deliver-after", b"500"), ("deliver-to", paused.encode()), value=b"x" * 950_000)
        stage.send_many(
            delay, [[("deliver-after", b"700"), ("deliver-to", paused.encode())], [("deliver-after", b"700")]] * 50
        )
        stage.send(delay, ("deliver-to", paused.encode()), value=None, key=None)
        stage.wait_records(out, 50)
        wait_until(lambda: state_of(router, delay)["held"] == 52, "all are held")
        assert stage.records(paused) == []
        router.kill()
        router.start_and_wait()
        wait_until(lambda: state_of(router, delay)["held"] == 52, "all are held again")
        operations.remove_policy(target_scope(paused))
        records = stage.wait_records(paused, 52)
        assert stage.settle().released_once == 102
        wait_until(lambda: state_of(router, delay)["held"] == 0, "nothing is held")
    assert large.encode() in {header(each, "delay-source") for each in records}


def test_what_is_held_for_a_paused_target_is_moved_with_all_it_has(ruled: Ruled) -> None:
    stage = ruled.stage
    out, paused = stage.target(), stage.target("paused")
    delay = stage.delay(default_target=out, allowed_targets=[paused])
    with ruled.router() as router:
        router.start_and_wait()
        operations = ruled.operations(router)
        operations.change_policy(target_scope(paused), {"paused": True})
        wait_until(lambda: router.events("policy_changed") != [], "the policy is known")
        time.sleep(0.5)
        stage.send(delay, ("deliver-id", b"a"), ("deliver-to", paused.encode()), ("trace", b"1"), value=b"held")
        wait_until(lambda: state_of(router, delay)["held"] == 1, "it is held")
        due_ms = now_ms() + 1_000
        stage.send(delay, ("deliver-move", b"a"), ("deliver-at", b"%d" % due_ms))
        stage.wait_records(f"{delay}.receipts", 1)
        wait_until(lambda: state_of(router, delay)["held"] == 0, "it is held no longer")
        operations.remove_policy(target_scope(paused))
        (record,) = stage.wait_records(paused, 1)
        assert (record.value, header(record, "trace")) == (b"held", b"1")
        assert header(record, "delay-due") == b"%d" % due_ms
        assert router.stop() == 0
    report = stage.audit()
    assert (report.ok, report.moved, report.released_once) == (True, 1, 1), report.samples
