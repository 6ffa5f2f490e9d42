"""Tests of one group with two configurations: each partition is served once, and a difference is reported."""

import time
from collections import Counter
from random import Random

from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Load, Stage, header, wait_until


def test_each_serves_the_delay_topics_it_has(stage: Stage, rng: Random) -> None:
    out = stage.target()
    one, other = (stage.delay(name, 2, default_target=out) for name in ("one", "other"))
    first, second = (
        stage.router(name, only=[name_of], instance_id=name) for name, name_of in (("a", one), ("b", other))
    )
    with first, second, Load(stage, [one, other], rng, partitions=2, a_second=100, delays_ms=(0, 3_000)) as load:
        first.start()
        second.start()
        wait_until(lambda: _active(first) == {(one, 0), (one, 1)}, "the first one serves what it has")
        wait_until(lambda: _active(second) == {(other, 0), (other, 1)}, "the second one serves what it has")
        first.kill()
        # The group waits for the killed router, and finds no other member that knows the topic.
        time.sleep(4)
        first.start_and_wait()
        load.finish()
        stage.settle()
        assert _active(second) == {(other, 0), (other, 1)}


def test_other_rules_for_the_same_delay_topic_are_named_and_double_nothing(stage: Stage, rng: Random) -> None:
    targets = [stage.target(name) for name in ("one", "two")]
    delay = stage.delay(partitions=2, default_target=targets[0], allowed_targets=targets)
    first = stage.router("a", instance_id="a")
    stage.delays[delay]["default_target"] = targets[1]
    second = stage.router("b", instance_id="b")
    with first, second, Load(stage, [delay], rng, partitions=2, a_second=100, delays_ms=(0, 3_000)) as load:
        first.start_and_wait()
        wait_until(lambda: _active(first) == {(delay, 0), (delay, 1)}, "both partitions are served")
        time.sleep(1)
        second.start_and_wait()
        wait_until(lambda: bool(second.events("rules_differ")), "the difference is named")
        load.finish()
        sent = {f"{record.topic}/{record.partition}/{record.offset}".encode() for record in stage.records(delay)}
        places = [*targets, f"{delay}.rejected"]
        wait_until(lambda: sum(len(stage.records(place)) for place in places) >= len(sent), "all have left")
        left = Counter(header(record, "delay-source") for place in places for record in stage.records(place))
        assert left == dict.fromkeys(sent, 1)
        assert all(stage.records(target) for target in targets)
        told = second.events("rules_differ")[0]
        assert (told["by"], told["level"]) == (["default_target"], "warning")
        assert not first.events("rules_differ")


def _active(router: RouterProcess) -> set[tuple[str, int]]:
    return {(event["topic"], event["partition"]) for event in router.events("partition_active")}
