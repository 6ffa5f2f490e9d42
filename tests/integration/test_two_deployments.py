"""Tests of two independent deployments on one cluster: neither harms the other, and no loop is endless."""

from collections.abc import Callable
from pathlib import Path

import pytest

from index.protocol.readers import MAX_HOPS
from index.rules.targets import SCHEME
from sidecar.dev.local_kafka import Cluster
from tests.integration.scenario import Stage, header, wait_until

MakeStage = Callable[[str], Stage]


@pytest.fixture
def make_stage(kafka: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> MakeStage:
    """Return a function that makes stages on one broker, with their own routers and topics."""

    def make(name: str) -> Stage:
        made = Stage(kafka.bootstrap, tmp_path / name)
        request.addfinalizer(made.print_logs)
        return made

    return make


def test_no_record_is_released_into_the_topics_of_another_deployment(make_stage: MakeStage) -> None:
    ours, theirs = make_stage("ours"), make_stage("theirs")
    out = ours.target()
    delay = ours.delay(default_target=out, allowed_targets=["*"])
    their_out = theirs.target()
    their_delay = theirs.delay(default_target=their_out)
    with ours.router() as router, theirs.router() as victim:
        router.start_and_wait()
        victim.start_and_wait()
        existing = [f"{their_delay}{ending}" for ending in SCHEME[:2]] + [f"{their_delay}.rejected"]
        states = {topic: len(theirs.records(topic)) for topic in existing[1:]}
        for topic in existing:
            # With this key, the other router would take the record for its progress, release nothing more, and report
            # nothing.
            ours.send(delay, ("deliver-to", topic.encode()), key=b"progress", value=b"forged")
        refused = ours.wait_records(f"{delay}.rejected", len(existing))
        assert {header(record, "delay-error") for record in refused} == {b"TARGET_NOT_ALLOWED"}
        assert {topic: len(theirs.records(topic)) for topic in existing[1:]} == states
        assert not [record for record in theirs.records(existing[0]) if record.value == b"forged"]
        victim.kill()
        victim.start_and_wait()
        theirs.send(their_delay, ("deliver-after", b"100"), value=b"still works")
        theirs.wait_records(their_out, 1)


def test_delay_topics_that_deliver_to_each_other_end_with_a_reason(make_stage: MakeStage) -> None:
    one, other = make_stage("one"), make_stage("other")
    there, back = f"{one.word}.delay", f"{other.word}.delay"
    one.delay(default_target=back)
    other.delay(default_target=there)
    with one.router() as router, other.router() as second:
        router.start_and_wait()
        second.start_and_wait()
        one.send(there, ("deliver-after", b"50"), ("trace", b"1"), key=b"k", value=b"v")
        rejected = (f"{there}.rejected", f"{back}.rejected")
        wait_until(lambda: any(one.records(topic) for topic in rejected), "an end of the loop")
        (record,) = [record for topic in rejected for record in one.records(topic)]
        assert header(record, "delay-error") == b"INVALID_SCHEDULE"
        assert b"16 times in a row" in (header(record, "delay-error-message") or b"")
        assert (record.key, record.value, record.headers[0]) == (b"k", b"v", ("trace", b"1"))
        assert len(one.records(there)) + len(one.records(back)) == MAX_HOPS + 2
