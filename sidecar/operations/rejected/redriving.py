"""Drives rejected records again: copies them to the delay topic and marks them in the rejected topic, transactionally.

A record goes back to the partition that it came from, as its producer chose it, and gets the present time. It goes back
with its original key, value and headers, with the requested changes, and with ``delay-redriven`` raised by one.
"""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from index.errors import ConnectionLostError, DelayRouterError
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka.client.errors import Verdict, classify, error_of
from sidecar.kafka.writing import transactions
from sidecar.operations.rejected.log import OutOfTimeError, RejectedLog
from sidecar.operations.rejected.producer import redriver
from sidecar.operations.rejected.records import Mark, RejectedRecord, mark_headers, read
from sidecar.operations.rejected.selection import MOST_REDRIVEN, NO_CHANGES, HeaderChanges, RejectedSelection, id_names

IN_ONE_TRANSACTION: Final = 500
MAX_BYTES: Final = 4_194_304
"""Bytes at which a transaction is committed, so that it ends long before its timeout."""

_ABORT_WITHIN_S: Final = 5.0
_NOW: Final = 0


class AnotherRunError(DelayRouterError):
    """A newer run drives records of the same rejected topic, and this run has stopped."""


@dataclass(frozen=True)
class Redrive:
    """An order to drive at most ``most`` of the selected records, none more often than ``most_redriven`` times.

    The run ends after ``within_s`` seconds; the remaining records wait for the next run.
    """

    selection: RejectedSelection
    changes: HeaderChanges = NO_CHANGES
    most_redriven: int = MOST_REDRIVEN
    most: int | None = None
    dry_run: bool = False
    within_s: float = math.inf


@dataclass
class RedriveReport:
    """Counts of the selected records by their fate."""

    selected: int = 0
    already_redriven: int = 0
    over_limit: int = 0
    """Records that have been driven too often before, so they stay."""
    not_whole: int = 0
    """Records that cannot be copied: the rejected topic lacks a part of them, or their partition does not exist."""
    to_drive: int = 0
    driven: int = 0

    def as_json(self) -> dict[str, int]:
        """Return the counts by name, for scripts."""
        return asdict(self)


Progress = Callable[[RedriveReport], None]


def redrive(
    config: Config, admin: AdminClient, topic: DelayTopicConfig, order: Redrive, on_progress: Progress = lambda _: None
) -> RedriveReport:
    """Drive the records of an order again and return the counts.

    Raise AnotherRunError when a newer run took over, DelayRouterError when Kafka refuses, and OutOfTimeError when the
    time ended before any record was driven; where some were driven, the report says how many. After an error the
    records reported as driven are driven and no others, so the caller can begin again.
    """
    report = RedriveReport()
    until_s = time.monotonic() + order.within_s
    try:
        with RejectedLog(config, admin, topic.rejected, until_s) as log:
            run = _Run(log, topic, order, report, on_progress)
            if order.dry_run:
                run.choose(log.committed())
            else:
                while not _has_driven(run, config, topic.rejected, until_s):
                    pass
    except OutOfTimeError as error:
        if not report.driven:
            remedy = "nothing was driven; the command has the time: delay-router rejected redrive"
            raise OutOfTimeError(f"{error}; {remedy}") from None
    except KafkaException as exception:
        raise _explained(exception, topic, report) from exception
    return report


def _has_driven(run: "_Run", config: Config, rejected: str, until_s: float) -> bool:
    """Drive the records of a run with a new producer; return False if it has lost a connection before it was done.

    A repeated request of the lost connection may arrive late, and would end the next transaction of that producer
    (:mod:`sidecar.kafka.client.connections`). The next producer fences it, and reads all marks again.
    """
    producer = redriver(config, rejected)
    try:
        transactions.fence(producer, lambda: time.monotonic() > until_s, "this is the setting of the brokers")
        run.drive(producer)
    except ConnectionLostError:
        return False
    finally:
        _give_up(producer)
    return True


def _explained(exception: KafkaException, topic: DelayTopicConfig, report: RedriveReport) -> DelayRouterError:
    error = error_of(exception)
    so_far = f"{report.driven} of {report.to_drive} records were driven"
    if classify(error) is Verdict.FENCED:
        return AnotherRunError(
            f"another redrive of {topic.rejected} has begun and goes on, so this one has stopped; {so_far}"
        )
    return DelayRouterError(
        f"Kafka: {error.str()}; {so_far}, and none is driven twice when you begin again"
        " (the rights it takes: delay-router check --acls --job redrive)"
    )


def _give_up(producer: Producer) -> None:
    """Abort an open transaction, so that readers of the delay topic need not wait for its timeout."""
    # The abort fails when no transaction is open, no broker answers or the producer is fenced.
    with suppress(KafkaException):
        producer.abort_transaction(_ABORT_WITHIN_S)


class _Run:
    """One pass over a rejected topic."""

    def __init__(
        self, log: RejectedLog, topic: DelayTopicConfig, order: Redrive, report: RedriveReport, on_progress: Progress
    ) -> None:
        self._log = log
        self._topic = topic
        self._order = order
        self._report = report
        self._on_progress = on_progress
        self._names = id_names(topic)
        self._delay_partitions = log.partitions_of(topic.name)

    def drive(self, producer: Producer) -> None:
        """Choose the records that are not driven yet, then drive them."""
        chosen = self.choose(self._log.whole())
        if any(chosen.values()):
            self._copy(producer, chosen)

    def choose(self, offsets: dict[int, range]) -> dict[int, set[int]]:
        """Return the offsets to drive of each partition, once all records and marks have been read; report them."""
        candidates: dict[int, list[int]] = {number: [] for number in offsets}
        marked: dict[int, set[int]] = {number: set() for number in offsets}
        over_limit: dict[int, set[int]] = {number: set() for number in offsets}
        not_whole: dict[int, set[int]] = {number: set() for number in offsets}
        for message in self._log.scan(offsets):
            each = read(message, self._names)
            if isinstance(each, Mark):
                marked[each.partition] |= each.offsets
            elif each is not None and self._order.selection.takes(each):
                candidates[each.partition].append(each.offset)
                if each.obstacle or each.source.partition >= self._delay_partitions:
                    not_whole[each.partition].add(each.offset)
                elif each.redriven >= self._order.most_redriven:
                    over_limit[each.partition].add(each.offset)
        chosen: dict[int, set[int]] = {}
        report, most = self._report, self._order.most
        left = None if most is None else most - report.driven
        # The marks of this run are no marks of a run before.
        report.selected, report.already_redriven, report.not_whole, report.over_limit = 0, -report.driven, 0, 0
        for number, found in candidates.items():
            waiting = [offset for offset in found if offset not in marked[number]]
            stay = not_whole[number] | over_limit[number]
            report.selected += len(found)
            report.already_redriven += len(found) - len(waiting)
            report.not_whole += len(not_whole[number] - marked[number])
            report.over_limit += len(over_limit[number] - marked[number])
            chosen[number] = set([offset for offset in waiting if offset not in stay][:left])
            left = None if left is None else left - len(chosen[number])
        report.to_drive = report.driven + sum(map(len, chosen.values()))
        self._on_progress(report)
        return chosen

    def _copy(self, producer: Producer, chosen: dict[int, set[int]]) -> None:
        batch: list[RejectedRecord] = []
        size_bytes = 0
        spans = {number: range(min(offsets), max(offsets) + 1) for number, offsets in chosen.items() if offsets}
        for message in self._log.scan(spans):
            if message.offset() not in chosen[message.partition() or 0]:
                continue
            each = read(message, self._names)
            assert isinstance(each, RejectedRecord), "a record was chosen, and a log does not change"
            batch.append(each)
            size_bytes += len(message)
            if len(batch) >= IN_ONE_TRANSACTION or size_bytes >= MAX_BYTES:
                self._commit(producer, batch)
                batch, size_bytes = [], 0
        if batch:
            self._commit(producer, batch)

    def _commit(self, producer: Producer, batch: list[RejectedRecord]) -> None:
        marked: dict[int, list[int]] = {}
        producer.begin_transaction()
        for each in batch:
            headers = self._order.changes.of(each)
            place = self._topic.name, each.value, each.key, each.source.partition
            transactions.produce(producer, *place, headers, _NOW, None)
            marked.setdefault(each.partition, []).append(each.offset)
        for partition, offsets in marked.items():
            transactions.produce(
                producer, self._topic.rejected, None, None, partition, mark_headers(offsets), _NOW, None
            )
        transactions.commit(producer)
        self._report.driven += len(batch)
        self._on_progress(self._report)
