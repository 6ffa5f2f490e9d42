"""Tests of answers for a whole group, against the content of the topics and a naive count."""

import json
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from index.errors import ConfigError
from index.partition.survey import BOUNDS_MS
from sidecar import clock
from sidecar.config import model as configuration
from sidecar.dev import local_kafka
from sidecar.kafka.client import admin as cluster
from sidecar.kernel.choice import Kernel
from sidecar.operations.desk import Operations
from sidecar.operations.status import reports, searching
from sidecar.operations.status.answers import Fate, LookupAnswer, PartitionAnswer
from sidecar.operations.status.inquiries import GroupInquiries
from sidecar.operations.status.report_reader import ReportReader
from sidecar.policies.policy import target_scope, topic_scope
from sidecar.policies.table import WITHOUT_POLICIES
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import APPEND_TIME, TIMEOUT_S, Header, Stage, now_ms, wait_until

SEALED: dict[str, Any] = {"seal_records": 60, "seal_age": "300ms", "seal_beyond": "0ms", "segment_records": 20}
CLUSTERS_S = (300, 1_800, 10_000, 50_000, 300_000)
"""Times to go, each far from the ends of its range."""


@dataclass
class Told:
    """A stage with a status topic of its own."""

    stage: Stage
    status_topic: str
    policies_topic: str
    _open: list[GroupInquiries] = field(default_factory=list)

    def router(self, name: str = "router", **options: Any) -> RouterProcess:
        topics = {"status_topic": self.status_topic, "policies_topic": self.policies_topic}
        return self.stage.router(name, **{**topics, "instance_id": name, **options})

    def ask(self, router: RouterProcess) -> GroupInquiries:
        config = configuration.load(router.config, {})
        admin = cluster.connect(config)
        made = GroupInquiries(config, admin, WITHOUT_POLICIES, ReportReader(config, admin, clock.now_ms)).start()
        self._open.append(made)
        return made

    def operations(self, router: RouterProcess) -> Operations:
        return Operations.for_command(configuration.load(router.config, {}))

    def close(self) -> None:
        for each in self._open:
            each.close()
        self.stage.print_logs()


@pytest.fixture
def told(kafka: local_kafka.Cluster, tmp_path: Path) -> Iterator[Told]:
    """Yield a stage of the test's own, with a status topic and a policies topic."""
    stage = Stage(kafka.bootstrap, tmp_path)
    found = Told(stage, f"__{stage.word}.status", f"__{stage.word}.policies")
    kept = {"cleanup.policy": "compact,delete", "retention.ms": "3600000", **APPEND_TIME}
    stage.create([NewTopic(found.status_topic, 1, 1, config=kept)])
    stage.create([NewTopic(found.policies_topic, 1, 1, config={"cleanup.policy": "compact", **APPEND_TIME})])
    yield found
    found.close()


def partitions(asked: GroupInquiries, delay: str) -> tuple[PartitionAnswer, ...]:
    (topic,) = asked.status(delay).topics
    return topic.partitions


def test_any_instance_answers_for_all_and_counts_as_a_naive_model(told: Told, rng: Random) -> None:
    stage = told.stage
    targets = [stage.target(name) for name in ("out", "a", "b")]
    delay = stage.delay(partitions=4, default_target=targets[0], allowed_targets=targets[1:], **SEALED)
    by_due = [0] * (len(BOUNDS_MS) + 1)
    by_target: Counter[str] = Counter()
    with told.router("one") as one, told.router("two") as two:
        one.start_and_wait()
        two.start_and_wait()
        began_ms = now_ms()
        for number in range(400):
            due_ms = began_ms + 1_000 * rng.choice(CLUSTERS_S) + rng.randrange(5_000)
            route = rng.choice([[], [targets[1]], [targets[2]], targets[1:]])
            headers: list[Header] = [("deliver-to", target.encode()) for target in route]
            # A record without a value cannot be packed, which counts it in another way.
            stage.post(
                delay, ("deliver-at", b"%d" % due_ms), *headers, value=b"%d" % number, partition=rng.randrange(4)
            )
            by_due[bisect_left(BOUNDS_MS, due_ms - began_ms)] += 1
            by_target.update(route or targets[:1])
        stage.flush()
        asked = [told.ask(one), told.ask(two)]

        def agree(each: GroupInquiries) -> bool:
            answer = each.pending(delay)
            counted = [found.records for found in answer.by_due]
            return (counted, answer.by_target, answer.unserved) == (by_due, dict(by_target), ())

        wait_until(lambda: all(map(agree, asked)), f"{by_due} and {by_target}: {asked[0].pending(delay)}")
        wait_until(lambda: min(each.buckets for each in partitions(asked[0], delay)) > 0, "all have buckets")
        for each in asked:
            answer = each.status()
            assert answer.instances == ("one", "two")
            assert answer.kernels == dict.fromkeys(answer.instances, Kernel.chosen(os.environ).name)
            (topic,) = answer.topics
            assert (topic.pending, topic.paused, topic.drained) == (400, False, False)
            assert {found.state for found in topic.partitions} == {"active"}
            assert {found.instance for found in topic.partitions} == {"one", "two"}
            assert sum(found.cursor for found in topic.partitions) == 400
            assert min(found.next_due_ms or 0 for found in topic.partitions) >= began_ms + 300_000
        # The counts come from manifests now, which are by target.
        for router in (one, two):
            router.kill()
        one.start_and_wait()
        wait_until(lambda: {each.instance for each in partitions(asked[1], delay)} == {"one"}, "one has all", 60)
        wait_until(lambda: agree(asked[1]), f"the same after a restart: {asked[1].pending(delay)}")
        assert asked[1].pending(delay).other_targets == 0


def test_partitions_of_a_killed_router_are_unserved_and_then_served_again(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "STALE_MS", 12_000)
    stage = told.stage
    delay = stage.delay(partitions=2, default_target=stage.target())
    with told.router("one") as one, told.router("two") as two:
        one.start_and_wait()
        two.start_and_wait()
        for partition in (0, 1):
            stage.send(delay, ("deliver-after", b"PT1H"), partition=partition)
        asked = told.ask(one)
        wait_until(lambda: asked.pending(delay).records == 2, "both are counted")
        wait_until(lambda: {each.instance for each in partitions(asked, delay)} == {"one", "two"}, "one each")
        one.kill()
        wait_until(lambda: {each.instance for each in partitions(asked, delay)} == {"two"}, "two has both")
        assert asked.pending(delay).records == 2
        two.kill()
        wait_until(lambda: {each.state for each in partitions(asked, delay)} == {"unserved"}, "nobody has any")
        found = asked.status()
        assert (found.topics[0].pending, found.instances) == (0, ())
        assert asked.pending(delay).unserved == (0, 1)
        one.start_and_wait()
        wait_until(lambda: asked.pending(delay).records == 2, "both are counted again")
        # A router that ends reports it, so nobody waits for it.
        assert one.stop() == 0
        wait_until(lambda: asked.status().topics[0].partitions[0].state == "unserved", "it has said so", 10)


def test_a_router_without_the_status_topic_goes_on_and_says_so_once(told: Told) -> None:
    stage = told.stage
    out = stage.target()
    delay = stage.delay(default_target=out)
    with told.router(status_topic=f"__{stage.word}.missing") as router:
        router.start_and_wait()
        stage.send(delay, ("deliver-after", b"200"))
        stage.wait_records(out, 1)
        asked = told.ask(router)
        (found,) = partitions(asked, delay)
        assert (found.state, asked.pending(delay).unserved) == ("unserved", (0,))
        wait_until(lambda: len(router.events("status_topic_missing")) == 1, "it says so")
        assert not stage.admin.list_topics(timeout=TIMEOUT_S).topics.get(f"__{stage.word}.missing")


@dataclass
class Looking:
    """Looks up records by their place in the delay topic."""

    asked: GroupInquiries

    def __call__(self, place: str) -> LookupAnswer:
        topic, partition, offset = place.rsplit("/", 2)
        answer = self.asked.lookup(topic, int(partition), int(offset))
        text = json.dumps(answer.model_dump(mode="json"))
        assert "canary" not in text, text
        return answer

    def until(self, place: str, fate: Fate) -> LookupAnswer:
        wait_until(lambda: self(place).fate is fate, f"{place} is {fate}: {self(place)}")
        return self(place)


def test_what_became_of_a_record(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = told.stage
    out, gated = stage.target(), stage.target("gated")
    missing = f"{stage.word}.missing"
    delay = stage.delay(default_target=out, allowed_targets=[missing, gated], max_delay="2h")
    canary: list[Header] = [("x", b"canary"), ("deliver-id", b"an-id")]

    def send(*headers: Header) -> str:
        return stage.send(delay, *headers, *canary, value=b"canary-value", key=b"canary-key")

    with told.router() as router:
        router.start_and_wait()
        look = Looking(told.ask(router))
        operations = told.operations(router)
        operations.switch(target_scope(gated), "paused", on=True)
        waits = send(("deliver-after", b"PT1H"), ("deliver-to", gated.encode()))
        held = send(("deliver-after", b"100"), ("deliver-to", gated.encode()))
        unreadable = send(("deliver-after", b"canary-soon"))
        astray = send(("deliver-after", b"100"), ("deliver-to", missing.encode()))
        early = send(("deliver-after", b"300"))
        at_once = send()
        stage.wait_records(out, 2)

        found = look.until(waits, Fate.PENDING)
        assert (found.targets, found.id) == ((gated,), "an-id")
        assert abs((found.due_ms or 0) - now_ms() - 3_600_000) < 120_000
        wait_until(lambda: "waits for its target" in look(held).why, f"it is held: {look(held)}")
        assert (look(held).fate, look(held).targets) == (Fate.PENDING, (gated,))
        for released in (early, at_once):
            found = look.until(released, Fate.RELEASED)
            assert (found.targets, found.code, found.released_to.rsplit("/", 2)[0]) == ((out,), "", out)
            assert 0 <= (found.released_ms or 0) - (found.due_ms or 0) < 60_000
        found = look.until(unreadable, Fate.REJECTED)
        assert (found.code, found.why) == ("INVALID_SCHEDULE", "a control header cannot be read")
        assert look.until(astray, Fate.REJECTED).code == "TARGET_UNKNOWN"

        # The rules at the record's offset decide, even after a change.
        operations.change_policy(topic_scope(delay), {"max_delay": "1m"})
        wait_until(lambda: bool(router.events("rules_changed")), "the new rules hold")
        too_long = send(("deliver-after", b"PT1H"))
        assert look.until(too_long, Fate.REJECTED).code == "MAX_DELAY_EXCEEDED"
        assert look(waits).fate is Fate.PENDING

        # An answer from a partial search says so, and never claims that the record was released.
        monkeypatch.setattr(searching, "MOST_RECORDS", 0)
        assert look(astray).fate is Fate.UNKNOWN
        assert "were looked through, and there are more" in look(astray).why
        monkeypatch.undo()

        assert router.stop() == 0
        behind, wrong = send(("deliver-after", b"PT10S")), send(("deliver-after", b"canary"))
        assert (look(behind).fate, look(behind).why) == (Fate.PENDING, "not indexed yet")
        assert (look(wrong).fate, look(wrong).code) == (Fate.PENDING, "INVALID_SCHEDULE")
        beyond = f"{delay}/0/{int(wrong.rsplit('/', 1)[1]) + 1}"
        assert (look(beyond).fate, look(beyond).why[:28]) == (Fate.UNKNOWN, "there is no such record yet:")
        upto = TopicPartition(delay, 0, int(early.rsplit("/", 1)[1]) + 1)
        stage.admin.delete_records([upto])[upto].result(TIMEOUT_S)
        assert look(early).fate is Fate.UNKNOWN
        assert "gone from the delay topic" in look(early).why
        # A held record lies in the state topic, independent of the delay topic.
        assert look(held).fate is Fate.PENDING


def test_a_record_of_a_partition_that_nobody_has_served(told: Told) -> None:
    stage = told.stage
    delay = stage.delay(default_target=stage.target(), begun=False)
    asked = told.ask(told.router())
    place = stage.send(delay, ("deliver-after", b"PT1H"))
    answer = Looking(asked)(place)
    assert (answer.fate, answer.why) == (Fate.PENDING, "no router has served the partition yet")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda asked, delay: asked.status("nope"), "nope is not a configured delay topic"),
        (lambda asked, delay: asked.pending("nope"), "nope is not a configured delay topic"),
        (lambda asked, delay: asked.lookup(delay, 1, 0), "/1: the delay topic has 1 partitions, from 0 on"),
        (lambda asked, delay: asked.lookup(delay, 0, -1), "/0/-1: offsets begin at 0"),
    ],
)
def test_what_there_is_not_is_named(told: Told, ask: Callable[[GroupInquiries, str], object], message: str) -> None:
    delay = told.stage.delay(default_target=told.stage.target())
    with pytest.raises(ConfigError, match=message):
        ask(told.ask(told.router()), delay)
