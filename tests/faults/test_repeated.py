"""Tests requests that the client library repeats by itself, while the first copy is still on its way.

The proxy keeps a request, cuts its connection, lets librdkafka send it again, and gives the kept one to the broker in
the middle of the next transaction. If a router began that one with the same epoch, half of it would be committed, or
aborted: records would be doubled or lost, at or below W and so for ever.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from operator import attrgetter
from random import Random

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from index.errors import ConnectionLostError
from sidecar.config.model import load
from sidecar.kafka.client.admin import connect
from sidecar.kafka.client.connections import RenewableProducer
from sidecar.operations.rejected import redriving
from sidecar.operations.rejected.selection import RejectedSelection
from spark_backfill.schedule.row import InputRow, digest_of
from spark_backfill.schedule.survey import Fingerprint
from spark_backfill.schedule.write import Sorted, WriteTarget, WrittenRows, write
from tests.faults.proxy import ApiKey, Moment, Proxy
from tests.faults.stage import FaultStage, Proxied, settled
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Load, now_ms, wait_until

REPEATS = 100
QUICK_REPEATS = 4
KILLS = 8
COMMITS_UNDER_CUTS = 10
REDRIVEN = 60
ROWS = 60
EVERY_MOMENT = tuple(Moment)
IN_TRANSACTION = EVERY_MOMENT[:-1]
QUICK_MOMENTS = (Moment.AFTER_ADD_PARTITIONS, Moment.BEFORE_END)

LONG = [pytest.mark.slow, pytest.mark.timeout(1_800)]
FOR_EACH_MOMENT = pytest.mark.parametrize(
    "moment",
    [pytest.param(each, marks=() if each in QUICK_MOMENTS else pytest.mark.slow) for each in IN_TRANSACTION],
)


@pytest.mark.parametrize(
    ("repeats", "lanes"), [(QUICK_REPEATS, 0), (QUICK_REPEATS, 1), pytest.param(REPEATS, 0, marks=LONG)]
)
def test_an_endtxn_that_commits_comes_late(
    repeats: int, lanes: int, one_node: Proxied, lone: FaultStage, rng: Random
) -> None:
    (proxy,) = one_node.proxies
    with _serving(lone, rng, lanes=lanes) as router:
        for moment in rng.sample(EVERY_MOMENT * repeats, len(EVERY_MOMENT) * repeats):
            _go_astray(proxy, ApiKey.END_TXN, moment, commits=True)
            _wait_committed(router, lone)
    _were_refused(proxy, len(EVERY_MOMENT) * repeats)


@pytest.mark.parametrize("repeats", [1, pytest.param(25, marks=LONG)])
def test_an_endtxn_that_aborts_comes_late(repeats: int, one_node: Proxied, lone: FaultStage, rng: Random) -> None:
    """The target refuses large batches, which every new owner has to find out by an abort.

    A lane seldom aborts by an EndTxn: another producer takes over its transactional id.
    """
    (proxy,) = one_node.proxies
    number = 0
    with _serving(lone, rng, batch_bytes=20_000) as router:
        for moment in rng.sample(EVERY_MOMENT * repeats, len(EVERY_MOMENT) * repeats):
            proxy.stray(ApiKey.END_TXN, moment, commits=False)
            number += 1
            _abort(proxy, lone, partial(_has_kept, proxy, number))
            _wait_delivered(proxy)
            _wait_committed(router, lone)
    _were_refused(proxy, len(EVERY_MOMENT) * repeats)


def _has_kept(proxy: Proxy, number: int) -> bool:
    return proxy.effects["kept END_TXN"] == number


def _abort(proxy: Proxy, stage: FaultStage, has_aborted: Callable[[], bool]) -> None:
    """Cause a refused batch. If the owner knows the target by now, cut it off: the next one does not know it."""
    (delay,) = stage.delays
    for attempt in range(1, 11):
        at = b"%d" % (now_ms() + 300)
        for number in range(200):
            stage.post(delay, ("deliver-at", at), value=b"%200d" % number)
        stage.flush()
        with suppress(AssertionError):
            # Longer each time: on a busy machine a take-over alone may take more than the first wait.
            wait_until(has_aborted, "an abort", 3 * attempt)
            return
        proxy.cut()
    raise AssertionError("no batch was refused")


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(("repeats", "lanes"), [(25, 0), (5, 1)])
@pytest.mark.parametrize("key", [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE])
def test_another_request_comes_late(
    key: ApiKey, repeats: int, lanes: int, one_node: Proxied, lone: FaultStage, rng: Random
) -> None:
    (proxy,) = one_node.proxies
    with _serving(lone, rng, lanes=lanes) as router:
        for moment in rng.sample(EVERY_MOMENT * repeats, len(EVERY_MOMENT) * repeats):
            _go_astray(proxy, key, moment)
            _wait_committed(router, lone)
    assert proxy.effects[f"kept {key.name}"] == len(EVERY_MOMENT) * repeats, proxy.effects


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("lanes", [0, 1])
def test_a_router_is_killed_while_its_endtxn_is_on_its_way(
    lanes: int, one_node: Proxied, lone: FaultStage, rng: Random
) -> None:
    """The answer is lost, or the request comes when the next owner is at work."""
    (proxy,) = one_node.proxies
    with _serving(lone, rng, lanes=lanes) as router:
        for number in range(1, KILLS + 1):
            proxy.lose_answers([ApiKey.END_TXN], 1)
            _wait_effect(proxy, "lost answer to END_TXN", number)
            router.kill()
            router.start()
            router.wait_ready()
            proxy.stray(ApiKey.END_TXN, rng.choice(IN_TRANSACTION))
            _wait_effect(proxy, "kept END_TXN", number)
            router.kill()
            router.start()
            router.wait_ready()
            _wait_delivered(proxy)
    assert proxy.effects["accepted END_TXN"] == 0, proxy.effects


def test_nothing_of_a_transaction_is_committed_when_one_delivery_failed(one_node: Proxied, lone: FaultStage) -> None:
    # A leader that learns of the limit later would take the record.
    producer, topic = _producer(one_node, lone), lone.target("told", 3, {"max.message.bytes": "1000"})
    failed: list[KafkaError | None] = []
    producer.begin_transaction()
    producer.produce(topic, b"good", partition=0)
    assert producer.flush(10) == 0
    producer.produce(topic, b"x" * 2_000, partition=1, on_delivery=lambda error, _: failed.append(error))
    # The test ignores the delivery report: commit has to know of the failure by itself.
    assert producer.flush(10) == 0
    assert failed[0] is not None
    assert failed[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction()
    assert raised.value.args[0].txn_requires_abort()
    producer.abort_transaction()
    _transaction(_producer(one_node, lone), topic)
    assert [record.value for record in lone.wait_records(topic, 3)] == [b"v"] * 3


@pytest.mark.parametrize("lanes", [0, 1])
def test_a_router_whose_connections_are_cut_all_the_time_makes_progress(
    lanes: int, one_node: Proxied, lone: FaultStage, rng: Random
) -> None:
    """The cuts go on until there are enough commits; a router with ever longer waits would come to a stop."""
    (proxy,) = one_node.proxies
    with _serving(lone, rng, lanes=lanes) as router:
        enough = _committed(router, lone) + COMMITS_UNDER_CUTS * (1 + lanes)
        until_s = time.monotonic() + 90
        while _committed(router, lone) < enough:
            assert time.monotonic() < until_s, f"not {COMMITS_UNDER_CUTS} commits after {proxy.effects}"
            for _ in range(3):
                proxy.cut()
                # A slow machine needs one of the longer pauses to reach a commit.
                time.sleep(rng.uniform(0.1, 1.0))
    assert proxy.effects["cut"] >= COMMITS_UNDER_CUTS, proxy.effects


@FOR_EACH_MOMENT
def test_a_redrive_whose_endtxn_comes_late_drives_each_record_once(
    moment: Moment, one_node: Proxied, lone: FaultStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (proxy,) = one_node.proxies
    delay = lone.delay(default_target=lone.target())
    with lone.router() as router:
        router.start_and_wait()
        lone.send_many(delay, [[("deliver-at", b"soon")]] * REDRIVEN)
        lone.wait_records(f"{delay}.rejected", REDRIVEN)
        assert router.stop() == 0
    config = load(router.config, {})
    monkeypatch.setattr(redriving, "IN_ONE_TRANSACTION", REDRIVEN // 6)
    proxy.watched = b".redrive"
    proxy.stray(ApiKey.END_TXN, moment)
    order = redriving.Redrive(RejectedSelection(delay))
    report = redriving.redrive(config, connect(config), config.delay_topics[0], order)
    assert (report.selected, report.driven, report.already_redriven) == (REDRIVEN, REDRIVEN, 0)
    copies = Counter(record.value for record in lone.records(delay) if "delay-redriven" in dict(record.headers))
    assert copies == {b"%d" % number: 1 for number in range(REDRIVEN)}
    assert (proxy.effects["delivered END_TXN"], proxy.effects["accepted END_TXN"]) == (1, 0), proxy.effects


@FOR_EACH_MOMENT
def test_a_table_is_written_once_though_an_endtxn_of_the_job_comes_late(
    moment: Moment, one_node: Proxied, lone: FaultStage
) -> None:
    (proxy,) = one_node.proxies
    delay = lone.delay(default_target=lone.target())
    table = [InputRow(str(number), None, b"k", b"%d" % number) for number in range(ROWS)]
    rows = [Sorted(0, digest_of(row), True, row.key, row.value, ()) for row in table]
    rows.sort(key=attrgetter("digest"))
    fingerprint = Fingerprint()
    for row in rows:
        fingerprint.add(row.digest)
    proxy.watched = b".schedule."
    proxy.stray(ApiKey.END_TXN, moment)
    kafka = {"bootstrap.servers": one_node.bootstrap}
    target = WriteTarget(kafka, lone.group_id, "job", delay, {0: fingerprint.text()}, ROWS // 6, 1_000_000)
    assert list(write(target, rows)) == [WrittenRows(0, ROWS, 0, 0)]
    assert Counter(record.value for record in lone.records(delay)) == {b"%d" % number: 1 for number in range(ROWS)}
    assert (proxy.effects["delivered END_TXN"], proxy.effects["accepted END_TXN"]) == (1, 0), proxy.effects


@contextmanager
def _serving(
    stage: FaultStage, rng: Random, *, batch_bytes: int = 1_000_000, lanes: int = 0
) -> Iterator[RouterProcess]:
    """Run a router under load, whose transactions go to several partitions; audit at the end.

    It has one delay partition, and with a lane two that share it. Then the proxies watch the producer of the lane: a
    take-over also commits once with the transactional id of the partition, and a late copy of it ends nothing.
    """
    if lanes:
        for proxy in stage.proxied.proxies:
            proxy.watched = f"{stage.group_id}.lane.".encode()
    out = stage.target("out", 3, config={"max.message.bytes": str(batch_bytes)})
    delay = stage.delay("delay", 1 + lanes, default_target=out)
    load = Load(stage, [delay], rng, partitions=1 + lanes, delays_ms=(0, 500))
    with stage.router(lanes=lanes) as router, load:
        router.start_and_wait()
        yield router
        load.finish()
        router.wait_ready()
        settled(stage)
        assert router.stop() == 0


def _go_astray(proxy: Proxy, key: ApiKey, moment: Moment, *, commits: bool | None = None) -> None:
    proxy.stray(key, moment, commits=commits)
    _wait_delivered(proxy)


def _wait_effect(proxy: Proxy, effect: str, number: int) -> None:
    wait_until(lambda: proxy.effects[effect] == number, f"{effect}, {number} times")


def _wait_delivered(proxy: Proxy) -> None:
    wait_until(lambda: not proxy.is_astray, "a request that went astray and came late")


def _wait_committed(router: RouterProcess, stage: FaultStage) -> None:
    """Wait until the router goes on: the next request to go astray has to be one of its own."""
    before = _committed(router, stage)
    wait_until(lambda: _committed(router, stage) > before, "another transaction")


def _committed(router: RouterProcess, stage: FaultStage) -> float:
    (delay,) = stage.delays
    return router.metric(f'transactions_total{{outcome="committed",topic="{delay}"}}')


def _were_refused(proxy: Proxy, kept: int) -> None:
    assert proxy.effects["kept END_TXN"] == kept, proxy.effects
    assert proxy.effects["delivered END_TXN"] == kept * (len(EVERY_MOMENT) - 1) // len(EVERY_MOMENT), proxy.effects
    assert proxy.effects["accepted END_TXN"] == 0, "the broker took a late EndTxn for one of the transaction under way"


def _telling(running: Proxied, stage: FaultStage) -> tuple[RenewableProducer, str]:
    """Return a producer like a router's, and a topic for it."""
    return _producer(running, stage), stage.target("told", 3)


def _producer(running: Proxied, stage: FaultStage) -> RenewableProducer:
    settings = {"bootstrap.servers": running.bootstrap, "transactional.id": stage.word}
    silent = logging.getLogger("silent")
    silent.setLevel(logging.CRITICAL)
    producer = RenewableProducer({**settings, "metadata.recovery.strategy": "none"}, silent)
    producer.init_transactions(30)
    return producer


def _transaction(producer: RenewableProducer, topic: str) -> None:
    # Past the check, to see whether every loss is reported, the tenth of the same kind as the first.
    Producer.begin_transaction(producer)
    for partition in range(3):
        producer.produce(topic, b"v", partition=partition)
    producer.commit_transaction()
    producer.poll(0)


def test_every_lost_connection_is_told_of_before_commit_returns(one_node: Proxied, lone: FaultStage) -> None:
    (proxy,) = one_node.proxies
    producer, topic = _telling(one_node, lone)
    producer.begin_transaction()
    producer.commit_transaction()
    for _ in range(20):
        _transaction(producer, topic)
        producer.require_connections()
    for key in (ApiKey.END_TXN, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE) * 4:
        before = producer.connections.lost
        proxy.lose_answers([key], 1)
        _transaction(producer, topic)
        assert producer.connections.lost > before, key
        with pytest.raises(ConnectionLostError, match="in state UP"):
            producer.begin_transaction()


@pytest.mark.slow
def test_a_connection_that_was_idle_is_no_loss(one_node: Proxied, lone: FaultStage) -> None:
    """Brokers close idle connections after ``connections.max.idle.ms``: here the leader's, then the coordinator's.

    They are closed one at a time. After the loss of one the client asks for the leaders over the other, which is then
    no longer idle.
    """
    (proxy,) = one_node.proxies
    producer, topic = _telling(one_node, lone)
    producer.begin_transaction()
    producer.produce(topic, b"v")
    producer.commit_transaction()
    for number in (1, 2):
        # A client asks for the leaders of a new topic some time after it has begun to write to it, again and again.
        wait_until(lambda: proxy.quiet_s > 65, "a minute in which the client asks nothing", timeout_s=300)
        proxy.cut_quietest()
        time.sleep(1)
        assert proxy.effects["cut quietest"] == number, proxy.effects
    producer.begin_transaction()
    producer.produce(topic, b"v")
    producer.commit_transaction()
    producer.require_connections()
