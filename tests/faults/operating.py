"""An operator who ends the transactions that brokers have forgotten, by the outcome in the log of the coordinator."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from index.errors import DelayRouterError
from sidecar.config.model import load
from sidecar.engine.ports import Place
from sidecar.kafka.client.admin import connect
from sidecar.kafka.doubts.ending import EndTransaction
from tests.faults.stage import is_open
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import TIMEOUT_S, Stage
from tests.wire import Broker

OPERATOR_AFTER_S: Final = 20
READY_WITHIN_S: Final = 120
"""Half a minute was seen on a busy machine, a quarter of it for the start of the process; a partition waits for up to
10 s between two attempts. A real standstill never ends.
"""


def is_running_again(router: RouterProcess) -> bool:
    """Return whether the router answers. Start it again, as a supervisor does, if it was killed or found no broker."""
    if not router.running:
        router.start()
        return False
    return bool(router.http("/metrics")[1])


def end_forgotten(stage: Stage, delays: Sequence[str], outs: Sequence[str], router: RouterProcess) -> list[str]:
    """Wait until nothing is in doubt; end transactions that stay open for 20 s. Return their places."""
    ended: list[str] = []
    begun: set[tuple[str, int, Place]] = set()
    until_s = time.monotonic() + READY_WITHIN_S
    while not _is_served(router):
        assert time.monotonic() < until_s, "a partition stays in doubt"
        if time.monotonic() > until_s - READY_WITHIN_S + OPERATOR_AFTER_S:
            ended += (place for delay in delays for place in _operate(stage, delay, outs, begun))
        time.sleep(0.5)
    return ended


def _is_served(router: RouterProcess) -> bool:
    if not is_running_again(router) or not router.ready():
        return False
    return not re.search(r"partitions_in_doubt{[^}]*} [1-9]", router.http("/metrics")[1])


def _operate(stage: Stage, delay: str, outs: Sequence[str], begun: set[tuple[str, int, Place]]) -> Iterator[str]:
    """End the open transactions of each partition of a delay topic, the state first; go on with those in ``begun``."""
    config = load(stage.router("operator").config, {})
    topic = config.require_delay_topic(delay, "")
    admin = connect(config)
    for partition in range(_partitions(admin, delay)):
        own = [(name, partition) for name in (topic.state, topic.snapshots, topic.receipts, delay)]
        others = [(name, each) for name in (topic.rejected, *outs) for each in range(_partitions(admin, name))]
        for place in [*own, *others]:
            command, at = EndTransaction(config, admin, topic, partition, place), (delay, partition, place)
            with suppress(DelayRouterError, KafkaException):
                # The command reads the log of the coordinator, which is long here.
                if at not in begun and not is_open(admin, place):
                    continue
                shown = command.show()
                if shown.resumed is not None:
                    # Another transaction, of the other delay topic for one, hid the records at the first attempt.
                    _, _, start, _, committed, producer_id = shown.resumed
                    command.end(producer_id, start, committed=committed)
                    begun.discard(at)
                    yield f"{place[0]}/{place[1]} at last"
                    continue
                outcome = shown.by_state or shown.log_says
                if shown.is_open and outcome in ("committed", "aborted") and (shown.records or place in own):
                    with Broker(stage.bootstrap) as broker:
                        producer_id, _ = broker.init_producer_id(command.transactional_id)
                    begun.add(at)
                    command.end(producer_id, shown.from_offset, committed=outcome == "committed")
                    begun.discard(at)
                    yield f"{place[0]}/{place[1]} as {outcome}"


def _partitions(admin: AdminClient, topic: str) -> int:
    return len(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)
