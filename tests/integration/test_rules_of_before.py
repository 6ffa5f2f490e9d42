"""Tests that an updated router takes over the decisions of an older one and does not change them."""

from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer

from index.pending.progress import Position, Progress
from index.rules.rule_history import RuleHistory
from index.rules.rules import RULES_VERSION
from sidecar.config.model import load
from sidecar.kafka.client.admin import connect, topic_id
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, encode_history, encode_progress
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import TIMEOUT_S, Header, Stage, header, now_ms
from tests.integration.stored_buckets import state


def as_left_by_version_2(stage: Stage, router: RouterProcess, delay: str, cursor: int, released_to_ms: int) -> None:
    """Write the state of a router with rules of version 2 that has indexed every record and sealed none."""
    config = load(Path(router.config))
    rules = replace(config.rules_for(config.delay_topics[0]), version=2)
    progress = Progress(cursor, Position(released_to_ms, cursor), sealed_to=0, number=7)
    producer = Producer(stage.kafka)
    producer.produce(f"{delay}.delay-state", encode_history(RuleHistory.beginning(0, rules)), RULES_KEY)
    producer.produce(f"{delay}.delay-state", encode_progress(progress, topic_id(connect(config), delay)), PROGRESS_KEY)
    assert producer.flush(TIMEOUT_S) == 0


def test_what_rules_of_version_2_have_decided_stands(stage: Stage) -> None:
    out = stage.target()
    named_alike = stage.target("other.rejected")
    delay = stage.delay(default_target=out, allowed_targets=[f"{stage.word}.*"])
    began_ms = now_ms()
    soon: Header = ("deliver-at", b"%d" % (began_ms + 9_000))
    decided: list[Header] = [
        ("Deliver-At", b"%d" % (began_ms + 8_000)),  # version 2 released it at once
        ("deliver-att", b"%d" % (began_ms + 8_000)),  # and this one
        ("deliver-after", b"7s"),  # version 2 rejected it
        ("deliver-at", None),  # and this one
    ]
    for each in decided:
        stage.send(delay, each, value=b"left long ago")
    waits = stage.send(delay, soon, value=b"waits")
    to_other = stage.send(delay, soon, ("deliver-to", named_alike.encode()), value=b"allowed then")
    router = stage.router()
    as_left_by_version_2(stage, router, delay, len(decided) + 2, began_ms)
    with router:
        router.start_and_wait()
        refused = stage.send(delay, decided[1])
        last = stage.send(delay, ("Deliver-At", b"%d" % (began_ms + 9_500)))
        sources = [header(record, "delay-source") for record in stage.wait_records(out, 2)]
        assert sources == [waits.encode(), last.encode()]
        rejected = {header(each, "delay-source"): each for each in stage.wait_records(f"{delay}.rejected", 2)}
        assert rejected.keys() == {refused.encode(), to_other.encode()}
        assert header(rejected[refused.encode()], "delay-error") == b"INVALID_SCHEDULE"
        assert header(rejected[to_other.encode()], "delay-error") == b"TARGET_NOT_ALLOWED"
        assert stage.records(named_alike) == []
        assert router.stop() == 0
    assert state(stage, delay).history.in_force.version == RULES_VERSION
