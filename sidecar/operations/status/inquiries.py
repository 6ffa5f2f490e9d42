"""Answers for the whole group, from any instance.

Decision: shared state in Kafka. Every router reports its partitions to the status topic, once a second when something
has changed (:mod:`sidecar.operations.status.reports`). Every router and the command line read the topic. So any one
router can be asked, and only the brokers have to be reachable, configured and trusted.

Rejected: forwarding a question to the router that has the partition. It needs addresses, tokens and certificates
between routers and a way through network policies, and each answer would wait for the slowest router. It could say
nothing about a partition whose router is down, which is when operators ask.

The price: numbers are a second or two old, and counts by due time and target a few seconds more. A look-up is exact: it
reads C, W and the rules from the state topic (:mod:`sidecar.operations.status.lookup`).
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final

from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient, OffsetSpec

from index.buckets.target_counts import MOST_TARGETS
from index.errors import ConfigError
from index.partition.survey import BOUNDS_MS, HOUR_MS, MINUTE_MS, each_step
from index.pending.progress import Position
from index.protocol.record import Record
from index.protocol.schedule import ATTEMPT_LABELS, Attempted
from index.rules.retrying import Retry, ladder
from sidecar import clock
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.config.retry import RetryConfig
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.engine.ports import Place
from sidecar.kafka.client.admin import LogOffset, TopicFacts, offsets, topic_facts
from sidecar.lateness import quantile_ms
from sidecar.operations.finding import wanted as finding
from sidecar.operations.finding.finder import Finder
from sidecar.operations.finding.wanted import ScheduleFilter, SchedulePage
from sidecar.operations.status.answers import (
    UNSERVED,
    AttemptGroupAnswer,
    DueRange,
    ExhaustedAnswer,
    IdAnswer,
    LookupAnswer,
    PartitionAnswer,
    PendingAnswer,
    RetriesAnswer,
    StatusAnswer,
    TopicAnswer,
)
from sidecar.operations.status.id_search import IdSearch
from sidecar.operations.status.lookup import Lookup
from sidecar.operations.status.report_reader import Reports
from sidecar.operations.status.reports import Reported, Vitals, best, recent_lateness, targets_of
from sidecar.policies.table import Policies, effective

PARTITIONS_FOR_S: Final = 10.0
"""Time for which a partition count is cached: it seldom changes, and the request is the slowest part of an answer."""

FIRST_READ_S: Final = 10.0
MOST_EXHAUSTED: Final = 10
_NEWEST: Final = 1 << 62
_NOT_PUBLISHED: Final = "router.status_topic is empty: only its own router knows"

Statuses = Callable[[], Sequence[PartitionStatus]]


class GroupInquiries:
    """Answers the questions about the group for :class:`sidecar.operations.desk.Operations`, from any thread.

    In a router, ``own`` returns the statuses of its partitions, which are newer than any report, ``instance`` is its
    name and ``kernel`` the kernel that it runs with.
    """

    def __init__(
        self,
        config: Config,
        admin: AdminClient,
        policies: Policies,
        reports: Reports,
        *,
        own: Statuses = tuple,
        instance: str = "",
        kernel: str = "",
    ) -> None:
        self._config = config
        self._admin = admin
        self._policies = policies
        self._own = own
        self._instance = instance
        self._kernel = kernel
        self._lookup = Lookup(config, admin, clock.now_ms)
        self._finder = Finder(config, admin)
        self._ids = IdSearch(config, admin, self._finder)
        self._lock = threading.Lock()
        self._counts: dict[str, tuple[float, int]] = {}
        self._reports = reports if config.router.status_topic else None

    def start(self) -> "GroupInquiries":
        """Begin to follow the status topic, until ``close``, where ``reports`` follow it in a thread."""
        if self._reports is not None:
            self._reports.start()
        return self

    def close(self) -> None:
        """Close the clients that read the status topic and the pages of schedules."""
        self._finder.close()
        if self._reports is not None:
            self._reports.close()

    def status(self, topic: str = "") -> StatusAnswer:
        """Return the status of all delay topics, or of one."""
        if not self._instance:
            # A router follows the policies, and a command has to read them.
            self._policies.settle()
        configured = [self._config.require_delay_topic(topic)] if topic else self._config.delay_topics
        counts = self._partition_counts([each.name for each in configured])
        reported, kernels = self._reported()
        now = clock.now_ms()
        found = {place: each for place, each in best(reported).items() if place[0] in counts}
        there = {(name, number) for name, count in counts.items() for number in range(count)}
        unserved = self._unserved(there - found.keys(), now)
        served: dict[str, list[Reported]] = {name: [] for name in counts}
        for (name, _), each in found.items():
            served[name].append(each)
        return StatusAnswer(
            topics=tuple(self._topic(name, served[name], unserved, now) for name in counts),
            instances=tuple(sorted(kernels)),
            kernels={name: kernel for name, kernel in sorted(kernels.items()) if kernel},
        )

    def pending(self, topic: str) -> PendingAnswer:
        """Return the counts of the pending records of one delay topic."""
        configured = self._config.require_delay_topic(topic)
        count = self._partition_counts([configured.name])[configured.name]
        reported, _ = self._reported()
        found = {
            each.status.partition: each.status
            for each in best([each for each in reported if each.status.topic == topic]).values()
        }
        counted = {number: status for number, status in found.items() if status.by_due and status.ready}
        unserved = sorted({*range(count), *found} - counted.keys())
        return pending_answer(topic, counted.values(), unserved)

    def lookup(self, topic: str, partition: int, offset: int) -> LookupAnswer:
        """Return the fate of one record."""
        return self._lookup.of(self._topic_with(topic, partition, offset), partition, offset)

    def record(self, topic: str, partition: int, offset: int, due_ms: int) -> Record | None:
        """Return one record; None where it is gone."""
        return self._finder.record(self._topic_with(topic, partition, offset), Position(due_ms, offset), partition)

    def find(self, topic: str, deliver_id: bytes) -> IdAnswer:
        """Return everything that was found of an id."""
        configured = self._config.require_delay_topic(topic)
        return self._ids.of(configured, self._partition_counts([topic])[topic], deliver_id)

    def schedules(self, wanted: ScheduleFilter, begin: str, most: int, partition: int | None = None) -> SchedulePage:
        """Return a page of pending schedules of one partition, or of all, from the end of the page before."""
        configured = self._config.require_delay_topic(wanted.topic)
        count = self._partition_counts([configured.name])[configured.name]
        first, end = (0, count) if partition is None else (partition, partition + 1)
        if partition is not None and end > count:
            raise ConfigError(f"{wanted.topic} has no partition {partition}: it has {count}, from 0 on")
        place = finding.PagePlace.parse(begin) if begin else finding.PagePlace(first)
        if partition is not None and place.partition != partition:
            raise ConfigError(f"{begin} is no place in partition {partition} of {wanted.topic}")
        return self._finder.page(configured, end, wanted, place, most)

    def routers(self) -> tuple[list[Reported], dict[str, str], dict[str, Vitals]]:
        """Return the partitions as their routers report them, and the kernel and the vitals of each router."""
        reported, kernels = self._reported()
        return [*best(reported).values()], kernels, {} if self._reports is None else self._reports.vitals()

    def _reported(self) -> tuple[list[Reported], dict[str, str]]:
        reported: list[Reported] = []
        kernels: dict[str, str] = {}
        if self._reports is not None:
            self._reports.wait(FIRST_READ_S)
            reported, kernels = self._reports.reported()
        own = self._own()
        if self._instance:
            # The published reports of this router are older than its own statuses.
            reported = [each for each in reported if each.instance != self._instance]
            reported += [Reported(status, self._instance, clock.now_ms(), _NEWEST) for status in own]
            kernels = {**kernels, self._instance: self._kernel}
        return reported, kernels

    def _topic_with(self, topic: str, partition: int, offset: int) -> DelayTopicConfig:
        configured = self._config.require_delay_topic(topic)
        count = self._partition_counts([topic])[topic]
        if not 0 <= partition < count:
            raise ConfigError(f"{topic}/{partition}: the delay topic has {count} partitions, from 0 on")
        if offset < 0:
            raise ConfigError(f"{topic}/{partition}/{offset}: offsets begin at 0")
        return configured

    def _partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        now_s = time.monotonic()
        with self._lock:
            asked = [name for name in topics if name not in self._counts or self._counts[name][0] < now_s]
        for name, facts in topic_facts(self._admin, asked).items():
            with self._lock:
                self._counts[name] = now_s + PARTITIONS_FOR_S, facts.partitions if isinstance(facts, TopicFacts) else 0
        with self._lock:
            return {name: self._counts[name][1] for name in topics}

    def _topic(
        self, topic: str, found: Sequence[Reported], unserved: Mapping[Place, PartitionAnswer], now: int
    ) -> TopicAnswer:
        answers = [partition_answer(each, now) for each in found]
        answers += [each for place, each in unserved.items() if place[0] == topic]
        partitions = tuple(sorted(answers, key=lambda each: each.partition))
        settings = effective(self._policies.table.at(now), self._config, topic)
        lateness = recent_lateness(each.status for each in found if each.status.is_served)
        retry = RetryConfig.model_validate(settings["retry"].value).rule
        return TopicAnswer(
            topic=topic,
            pending=sum(each.pending for each in partitions if each.state != UNSERVED),
            paused=bool(settings["paused"].value),
            drained=bool(settings["drained"].value),
            lateness_p50_ms=quantile_ms(lateness, 0.5),
            lateness_p99_ms=quantile_ms(lateness, 0.99),
            retries=None if retry is None else retries_answer(retry, found, [each.partition for each in partitions]),
            partitions=partitions,
        )

    def _unserved(self, places: Iterable[Place], now: int) -> dict[Place, PartitionAnswer]:
        """Return answers for partitions that no router reports; one request asks for the ends of all their logs."""
        if self._reports is None:
            return {place: unserved_answer(place[1], _NOT_PUBLISHED) for place in places}
        last = self._reports.last_told()
        answers = {place: unserved_answer(place[1], "no router has reported it lately") for place in places}
        latest = {place: OffsetSpec.latest() for place in answers.keys() & last.keys()}
        ends = offsets(self._admin, latest, IsolationLevel.READ_COMMITTED) if latest else {}
        for place, end in ends.items():
            answers[place] = last_answer(last[place], end.offset if isinstance(end, LogOffset) else None, now)
        return answers


def retries_answer(retry: Retry, found: Iterable[Reported], partitions: Iterable[int]) -> RetriesAnswer:
    """Return the attempts of a delay topic, summed over the partitions that report them."""
    told = {each.status.partition: each.status.attempts for each in found if each.status.is_served}
    counts = {partition: each for partition, each in told.items() if each is not None}
    released = _sums(each.released for each in counts.values())
    # Minutes that are not whole everywhere would add up to less than happens in a minute.
    is_known = bool(counts) and all(each.last_minute for each in counts.values())
    per_minute = _sums(each.last_minute for each in counts.values()) if is_known else None
    newest = sorted(((at, n, offset) for n, each in counts.items() for offset, at in each.exhausted), reverse=True)
    return RetriesAnswer(
        attempts=retry.attempts,
        dead_letter=retry.dead_letter,
        since_ms=min((each.since_ms for each in counts.values()), default=None),
        by_attempt=tuple(_attempt_groups(retry, released, per_minute)),
        exhausted=released[-1],
        exhausted_per_minute=None if per_minute is None else per_minute[-1],
        last_exhausted=tuple(
            ExhaustedAnswer(partition=partition, offset=offset, at_ms=at_ms)
            for at_ms, partition, offset in newest[:MOST_EXHAUSTED]
        ),
        uncounted=tuple(sorted(set(partitions) - counts.keys())),
    )


def _attempt_groups(
    retry: Retry, released: Sequence[int], per_minute: Sequence[int] | None
) -> Iterator[AttemptGroupAnswer]:
    waits: dict[str, tuple[int | None, int | None]] = {}
    for number, least_ms, most_ms, _ in ladder(retry):
        label = Attempted(number).label
        waits[label] = waits.get(label, (least_ms, most_ms))[0], most_ms
    for place, label in enumerate(ATTEMPT_LABELS):
        # A record with a limit of its own may have more attempts than the ladder has.
        if label in waits or released[place]:
            from_ms, to_ms = waits.get(label, (None, None))
            minute = None if per_minute is None else per_minute[place]
            yield AttemptGroupAnswer(
                attempt=label, wait_from_ms=from_ms, wait_to_ms=to_ms, released=released[place], per_minute=minute
            )


def _sums(columns: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip((0,) * (len(ATTEMPT_LABELS) + 1), *columns, strict=True)]


def partition_answer(reported: Reported, now: int) -> PartitionAnswer:
    """Return a report as an answer; ``now`` is epoch ms."""
    status, watermark = reported.status, reported.status.watermark
    return PartitionAnswer(
        partition=status.partition,
        state=status.state.value,
        why=status.why,
        instance=reported.instance,
        age_ms=max(0, now - reported.at_ms),
        pending=status.pending,
        lag=status.lag,
        cursor=status.cursor,
        watermark_due_ms=None if watermark is None else watermark.due_ms,
        watermark_offset=None if watermark is None else watermark.offset,
        next_due_ms=status.next_due_ms,
        furthest_due_ms=status.furthest_due_ms,
        buckets=status.buckets,
        held=status.held,
        held_since_ms=status.held_since_ms,
        snapshot_bytes=status.snapshot_bytes,
        needed_from=status.needed_from,
        needed_since_ms=status.needed_since_ms,
        retention_ms=status.retention_ms,
    )


def unserved_answer(partition: int, why: str) -> PartitionAnswer:
    """Return the answer for a partition that no router has ever reported."""
    return PartitionAnswer(partition=partition, state=UNSERVED, why=why, lag=None)


def last_answer(reported: Reported, log_end: int | None, now: int) -> PartitionAnswer:
    """Return the answer for a partition that no router reports now, from its last report and its present log end."""
    did = "stopped" if reported.status.state is PartitionState.STOPPED else "reported it last"
    lag = None if log_end is None else max(0, log_end - reported.status.cursor)
    why = f"no router has it: {reported.instance} {did}"
    unserved = {"state": UNSERVED, "why": why, "instance": "", "lag": lag, "held": 0}
    return partition_answer(reported, now).model_copy(update=unserved)


def pending_answer(topic: str, counted: Iterable[PartitionStatus], unserved: Iterable[int]) -> PendingAnswer:
    """Return the counts of a delay topic, summed over its partitions."""
    statuses = list(counted)
    sums = [sum(column) for column in zip_longest(*(status.by_due for status in statuses), fillvalue=0)]
    sums += [0] * (len(BOUNDS_MS) + 1 - len(sums))
    targets: Counter[str] = Counter()
    others = 0
    for status in statuses:
        named, rest = targets_of(status)
        targets.update(named)
        others += rest
    spread = [sum(column) for column in zip(*(status.spread for status in statuses if status.spread), strict=True)]
    largest = sorted(targets.items(), key=lambda each: (-each[1], each[0]))
    bounds_s = [*(bound_ms / 1_000 for bound_ms in BOUNDS_MS), None]
    return PendingAnswer(
        topic=topic,
        records=sum(sums),
        by_due=tuple(DueRange(within_s=bound, records=count) for bound, count in zip(bounds_s, sums, strict=False)),
        next_hour=each_step(spread, MINUTE_MS, 60),
        next_week=each_step(spread, HOUR_MS, 168),
        by_target=dict(largest[:MOST_TARGETS]),
        other_targets=others + sum(count for _, count in largest[MOST_TARGETS:]),
        unserved=tuple(unserved),
    )
