"""An operator who ends the transactions that brokers have forgotten, by the outcome in the log of the coordinator."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaException

from index.errors import DelayRouterError
from sidecar.config.model import load
from sidecar.engine.ports import Place
from sidecar.kafka.client.admin import connect, log_range, uncommitted_end
from sidecar.kafka.doubts.ending import EndTransaction
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import TIMEOUT_S, Stage
from tests.support import kafka_tools

OPERATOR_AFTER_S: Final = 20
SEEN_TWICE_S: Final = 5
READY_WITHIN_S: Final = 120
"""Half a minute was seen on a busy machine, a quarter of it for the start of the process; a partition waits for up to
10 s between two attempts. A real standstill never ends.
"""

_OPEN_FROM: Final = "CurrentTransactionStartOffset"


def is_running_again(router: RouterProcess) -> bool:
    """Return whether the router answers. Start it again, as a supervisor does, if it was killed or found no broker."""
    if not router.running:
        router.start()
        return False
    return bool(router.http("/metrics")[1])


def end_forgotten(stage: Stage, delays: Sequence[str], outs: Sequence[str], router: RouterProcess) -> list[str]:
    """Wait until nothing is in doubt; end transactions that stay open for 20 s. Return their places.

    A transaction of a lane may be open on a dozen places, so each end gives the partitions more time.
    """
    operator = _Operator(stage, delays, outs)
    ended: list[str] = []
    began_s = progress_s = time.monotonic()
    while not _is_served(router):
        assert time.monotonic() < progress_s + READY_WITHIN_S, f"a partition stays in doubt, after the ends of {ended}"
        if time.monotonic() > began_s + OPERATOR_AFTER_S:
            for place in operator.end():
                ended.append(place)
                progress_s = time.monotonic()
        time.sleep(0.5)
    return ended


def _is_served(router: RouterProcess) -> bool:
    if not is_running_again(router) or not router.ready():
        return False
    return not re.search(r"partitions_in_doubt{[^}]*} [1-9]", router.http("/metrics")[1])


class _Operator:
    """Ends the open transactions of the partitions of delay topics, of which the targets are ``outs``."""

    def __init__(self, stage: Stage, delays: Sequence[str], outs: Sequence[str]) -> None:
        self._stage = stage
        self._outs = outs
        self._config = load(stage.router("operator").config, {})
        self._admin = connect(self._config)
        self._sources = [(delay, partition) for delay in delays for partition in range(self._partitions(delay))]
        # The producer of each transaction whose end was begun: the end may have failed behind the first marker.
        self._begun: dict[tuple[Place, Place], str] = {}
        # The first offset that no reader sees, and the time when the operator saw it for the first time.
        self._seen: dict[Place, tuple[int, float]] = {}

    def end(self) -> Iterator[str]:
        """End the transactions of one delay partition after the other, all those on their own topics first.

        The states of all partitions of a lane say which records it has released to a target.
        """
        own = [(source, (name, source[1])) for source in self._sources for name in self._own_topics(source[0])]
        rejected = {self._config.require_delay_topic(delay, "").rejected for delay, _ in self._sources}
        others = [(name, each) for name in (*rejected, *self._outs) for each in range(self._partitions(name))]
        yield from self._end_all(own, is_own=True)
        if not any(self._is_stuck(place) for _, place in own):
            yield from self._end_all([(source, place) for source in self._sources for place in others], is_own=False)

    def _own_topics(self, delay: str) -> tuple[str, ...]:
        topic = self._config.require_delay_topic(delay, "")
        return topic.state, topic.snapshots, topic.receipts, delay

    def _end_all(self, opened: Sequence[tuple[Place, Place]], *, is_own: bool) -> Iterator[str]:
        """End each transaction, of a delay partition on a place, that is stuck."""
        for source, place in opened:
            # The tools of Kafka, and the log of the coordinator that the command reads, take seconds here.
            if (source, place) not in self._begun and not self._is_stuck(place):
                continue
            with suppress(DelayRouterError, KafkaException):
                yield from self._end(source, place, is_own=is_own)

    def _end(self, source: Place, place: Place, *, is_own: bool) -> Iterator[str]:
        """End the transaction whose end was begun, or the first one that is open."""
        begun = self._begun.get((source, place))
        producer_id = begun or next((owner for _, owner in open_producers(self._stage, place)), "")
        command = self._command(source, place, producer_id)
        if command is None:
            return
        shown = command.show()
        if shown.resumed is not None:
            # Another transaction, of the other delay topic for one, hid the records at the first attempt.
            _, _, start, _, committed, noted_id = shown.resumed
            command.end(noted_id, start, committed=committed)
            self._begun.pop((source, place), None)
            yield f"{place[0]}/{place[1]} at last"
            return
        outcome = shown.by_state or shown.log_says
        if shown.is_open and outcome in ("committed", "aborted") and (shown.records or is_own):
            self._begun[source, place] = producer_id
            command.end(int(producer_id), shown.from_offset, committed=outcome == "committed")
            del self._begun[source, place]
            yield f"{place[0]}/{place[1]} as {outcome}"

    def _is_stuck(self, place: Place) -> bool:
        """Say whether a transaction is open that was the first open one some seconds ago as well.

        Without the wait the operator would fence a lane that is at work, again and again.
        """
        (_, settled_end), now_s = log_range(self._admin, *place), time.monotonic()
        seen, since_s = self._seen.get(place, (-1, now_s))
        if settled_end != seen or settled_end == uncommitted_end(self._admin, *place):
            self._seen[place] = settled_end, now_s
            return False
        return now_s - since_s > SEEN_TWICE_S

    def _command(self, source: Place, place: Place, producer_id: str) -> EndTransaction | None:
        """Return the command that ends a transaction of this producer; None if it is of another delay partition."""
        (delay, partition), group = source, self._config.router.group_id
        topic = self._config.require_delay_topic(delay, "")
        transactional_id = _transactional_ids(self._stage).get(producer_id, "")
        if transactional_id == f"{group}.{delay}.{partition}":
            return EndTransaction(self._config, self._admin, topic, partition, place)
        if transactional_id.startswith(f"{group}.lane."):
            return EndTransaction(self._config, self._admin, topic, partition, place, transactional_id, self._sources)
        return None

    def _partitions(self, topic: str) -> int:
        return len(self._admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)


def transactions(stage: Stage, *arguments: str) -> list[dict[str, str]]:
    """Return the rows that ``kafka-transactions.sh`` prints, by the names of their columns."""
    call = ["--bootstrap-server", stage.bootstrap, *arguments]
    printed = kafka_tools.run("org.apache.kafka.tools.TransactionsCommand", call)
    head, *rows = (line.split() for line in printed.splitlines() if line.strip())
    return [dict(zip(head, row, strict=True)) for row in rows]


def open_producers(stage: Stage, place: Place) -> list[tuple[int, str]]:
    """Return the first offset of each open transaction of a place, in order, and the producer id of its owner."""
    topic, partition = place
    rows = transactions(stage, "describe-producers", "--topic", topic, "--partition", str(partition))
    return sorted((int(row[_OPEN_FROM]), row["ProducerId"]) for row in rows if row[_OPEN_FROM] != "None")


def _transactional_ids(stage: Stage) -> dict[str, str]:
    """Return the transactional id of each producer id."""
    return {row["ProducerId"]: row["TransactionalId"] for row in transactions(stage, "list")}
