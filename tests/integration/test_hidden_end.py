"""Tests of a transaction on the delay topic that its producer never ends: named, with the command that ends it."""

import json
import time

from confluent_kafka import Producer

from sidecar.engine.buckets.hidden_end import AFTER_S
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Stage, wait_until
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
