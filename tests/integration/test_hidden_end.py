"""Tests of a transaction on the delay topic that its producer never ends: named, with the command that ends it."""

import json
import time

import pytest
from confluent_kafka import Producer

from sidecar.engine.buckets.hidden_end import AFTER_S
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import APPEND_TIME, Header, Stage, now_ms, released_late_ms, wait_until
from tests.support import kafka_tools


def hidden_s(router: RouterProcess, delay: str, partition: int) -> float:
    return router.metric(f'hidden_by_open_transaction_seconds{{partition="{partition}",topic="{delay}"}}')


def why(router: RouterProcess, delay: str, partition: int) -> str:
    text: str = json.loads(router.http("/readyz")[1])["partitions"][f"{delay}/{partition}"]["why"]
    return text


def test_a_transaction_that_hangs_on_the_delay_topic_is_named(stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(partitions=2, default_target=out)
    foreign = Producer({**stage.kafka, "transactional.id": f"{stage.word}.foreign", "transaction.timeout.ms": 300_000})
    foreign.init_transactions(20)
    with stage.router() as router:
        router.start_and_wait()
        stage.send(delay, value=b"in front")
        stage.wait_records(out, 1)
        foreign.begin_transaction()
        foreign.produce(delay, b"never committed", partition=0)
        assert foreign.flush(20) == 0
        hung_s = time.monotonic()
        for number in range(5):
            stage.send(delay, value=b"hidden %d" % number)
        stage.send(delay, value=b"elsewhere", partition=1)
        stage.wait_records(out, 2)
        wait_until(lambda: hidden_s(router, delay, 0) >= AFTER_S, "the metric")
        assert time.monotonic() - hung_s >= AFTER_S - 1, "told before it was worth telling"
        assert hidden_s(router, delay, 1) == 0
        told = why(router, delay, 0)
        assert f"an open transaction on {delay}/0 hides offsets 1 to 6" in told
        # Every visible record is released; a new router could do no better.
        assert router.ready()
        assert router.metric(f'index_lag_records{{partition="0",topic="{delay}"}}') == 6
        (event,) = router.events("delay_topic_hidden")
        assert event["partition"] == 0

        script, *arguments = told.partition("kafka-transactions.sh ")[2].split()
        kafka_tools.run("org.apache.kafka.tools.TransactionsCommand", [script, *arguments])
        assert {record.value for record in stage.wait_records(out, 7)} == {
            b"in front",
            b"elsewhere",
            *(b"hidden %d" % number for number in range(5)),
        }
        wait_until(lambda: hidden_s(router, delay, 0) == 0, "nothing is hidden any more")
        assert why(router, delay, 0) == ""
        assert router.stop() == 0


LATE_MS = 5_000


@pytest.mark.parametrize(
    "control",
    [
        [("deliver-cancel-where", b'{"header": {"name": "tenant", "value": "nobody"}}')],
        [("deliver-move", b"series"), ("deliver-after", b"60000")],
    ],
    ids=["query", "move"],
)
def test_a_control_about_a_record_behind_an_open_transaction_holds_up_no_release(
    control: list[Header], stage: Stage
) -> None:
    """The next occurrence was appended behind the transaction, and the control in front of it has to read that one."""
    out = stage.target(config=APPEND_TIME)
    delay = stage.delay(default_target=out, recurring=True, min_period="100ms", seal_age="500ms", seal_beyond="1s")
    foreign = Producer({**stage.kafka, "transactional.id": f"{stage.word}.foreign", "transaction.timeout.ms": 300_000})
    foreign.init_transactions(20)
    with stage.router() as router:
        router.start_and_wait()
        stage.send(delay, ("deliver-id", b"series"), ("deliver-every", b"1s"), ("deliver-times", b"30"), value=b"again")
        stage.send(delay, ("deliver-id", b"far"), ("deliver-after", b"90000"), value=b"far")
        stage.wait_records(out, 2)
        due_ms = [now_ms() + 12_000 + 100 * number for number in range(20)]
        for each in due_ms:
            stage.post(delay, ("deliver-at", b"%d" % each), value=b"waits")
        stage.flush()
        wait_until(lambda: router.metric(f'index_lag_records{{partition="0",topic="{delay}"}}') == 0, "all is indexed")
        router.kill()
        stage.send(delay, *control, value=None)
        foreign.begin_transaction()
        foreign.produce(delay, b"never committed", partition=0)
        assert foreign.flush(20) == 0
        router.start_and_wait()
        wait_until(lambda: sum(record.value == b"waits" for record in stage.records(out)) == len(due_ms), "the others")
        waited = [record for record in stage.records(out) if record.value == b"waits"]
        assert max(map(released_late_ms, waited)) < LATE_MS
        assert not router.events("partition_interrupted")
        foreign.abort_transaction(20)
        wait_until(lambda: len(stage.records(f"{delay}.receipts")) == 1, "the receipt")
        assert router.stop() == 0
