"""Tests of a transaction on the delay topic that its producer never ends: named, with the command that ends it."""

import json
import time
from collections.abc import Callable
from concurrent.futures import Future

from confluent_kafka import Producer

from index.errors import ClusterError, ClusterTrouble
from sidecar.engine.buckets.hidden_end import AFTER_S, Edges, HiddenEnd
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


PLACE = ("orders.delay", 3)


class Cluster:
    """A cluster with prepared answers."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Edges | Exception = Edges(10, 50)

    def ask(self) -> "Future[Edges]":
        self.asked += 1
        future: Future[Edges] = Future()
        if isinstance(self.answer, Exception):
            future.set_exception(self.answer)
        else:
            future.set_result(self.answer)
        return future


def watched(cluster: Cluster) -> tuple[HiddenEnd, Callable[[float, int, int], float]]:
    watch = HiddenEnd(cluster.ask, "kafka:9092", PLACE)

    def turn(now_s: float, indexed_to: int, lag: int) -> float:
        watch.turn(now_s, indexed_to, lag)
        watch.turn(now_s, indexed_to, lag)  # takes in the answer
        return watch.seconds(now_s)

    return watch, turn


def test_nobody_is_asked_while_it_moves_or_has_read_all() -> None:
    cluster = Cluster()
    _, turn = watched(cluster)
    for now_s in range(100):
        turn(now_s, 10 + now_s, 40)
        turn(now_s, 10 + now_s, 0)
    assert cluster.asked == 0


def test_intake_that_stands_still_before_what_it_could_read_is_not_hidden() -> None:
    cluster = Cluster()
    cluster.answer = Edges(30, 50)
    _, turn = watched(cluster)
    assert [turn(now_s, 10, 40) for now_s in (0, 5, 11, 30)] == [0, 0, 0, 0]
    cluster.answer = Edges(50, 50)
    assert turn(60, 10, 40) == 0


def test_it_ends_as_soon_as_the_transaction_does() -> None:
    cluster = Cluster()
    watch, turn = watched(cluster)
    assert [turn(now_s, 10, 40) for now_s in (0, 9, 11, 31)] == [0, 0, 11, 31]
    assert "--bootstrap-server kafka:9092 abort --topic orders.delay --partition 3 --start-offset 10" in watch.why(31)
    assert (turn(32, 50, 0), watch.why(32)) == (0, "")


def test_brokers_that_do_not_answer_are_asked_again() -> None:
    cluster = Cluster()
    cluster.answer = ClusterError(ClusterTrouble.UNANSWERED, "no answer")
    _, turn = watched(cluster)
    assert [turn(now_s, 10, 40) for now_s in (0, 11, 12)] == [0, 0, 0]
    cluster.answer = Edges(10, 50)
    assert turn(17, 10, 40) == 17
