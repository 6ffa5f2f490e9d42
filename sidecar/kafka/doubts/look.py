"""Asks the brokers which partitions hold a transaction that they may have forgotten (see :mod:`sidecar.kafka.doubts`).

One look costs one request for metadata and two to each broker. Partitions that are taken over together share the
requests (:mod:`sidecar.kafka.client.together`). A look reads at most one record of each partition that has an open
transaction: neither the length of the transaction nor the records behind it matter.
"""

import math
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from confluent_kafka import IsolationLevel, KafkaError
from confluent_kafka.admin import AdminClient, OffsetSpec, PartitionMetadata

from index.errors import NotYetError
from index.rules.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.engine.ports import Place
from sidecar.engine.release.aside import Doubt, Doubts, PlaceEnds, doubt_of, open_since
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import MISSING, REQUEST_TIMEOUT_S, Described, LogOffset, offsets, visible_settings
from sidecar.kafka.client.together import Together
from sidecar.kafka.reading.scan import PartitionScan, ScanError, place_of
from snapshots.state.state import StoredState

SETTLED_WITHIN_S: Final = 10.0
"""Longest time that a take-over waits for a settled state before it reports and begins anew."""

LOG_SETTLED_WITHIN_S: Final = 120.0
"""Longest wait for transactions of producers on a delay topic; Flink has some of a minute open between checkpoints."""

READ_WITHIN_S: Final = 1.5
"""Longest time that a look waits for the first records of open transactions; a record that is not read leaves a doubt.
"""

ANSWER_WITHIN_S: Final = 2.0
"""Longest time that a look waits for the ends of a partition that others do without. Where a broker is gone whose
partitions the cluster has not given to others yet, a longer time would hold up all other partitions of the lane."""

SUSPECTS_FOR_S: Final = 60.0
"""Time after a silence of the brokers for which a partition is taken to refuse records while less than the majority of
its replicas is in sync, where the router may not see how many its topic demands."""

_PAUSE_S: Final = 0.02

_NOTHING_OF_OURS: Final = MISSING | {KafkaError.TOPIC_AUTHORIZATION_FAILED}
"""The router writes nothing to a topic that is gone, or that it may not describe."""


Partitions = Mapping[int, PartitionMetadata]
"""The partitions of a topic by number, each with its leader, its replicas and its in-sync replicas."""


@dataclass
class Looks:
    """The questions that the partitions of one delay topic ask together, and whether they suspect partitions.

    ``topics`` are asked about by name. ``found`` has the partitions of each topic by number, without keys: all topics
    of the cluster. ``demands`` has ``min.insync.replicas`` by topic. ``ends`` are asked about by place.
    """

    topics: Together[str, Described] = field(default_factory=Together)
    found: Together[str, Partitions] = field(default_factory=Together)
    demands: Together[str, int] = field(default_factory=Together)
    ends: Together[Place, PlaceEnds | None] = field(default_factory=Together)
    suspects_until_s: float = -math.inf

    def suspect(self) -> None:
        """Suspect each partition with few in-sync replicas for a while: the brokers have taken no record for long."""
        self.suspects_until_s = time.monotonic() + SUSPECTS_FOR_S


class DoubtFinder:
    """Asks the brokers about the places of one delay partition; ``looks`` are shared by those of its delay topic."""

    def __init__(
        self,
        config: Config,
        topic: DelayTopicConfig,
        partition: int,
        admin: AdminClient,
        looks: Looks | None = None,
    ) -> None:
        self._config = config
        self._topic = topic
        self._partition = partition
        self._admin = admin
        self._looks = looks or Looks()

    def wait_for_state(self) -> None:
        """Wait until the state partition is settled up to its current end.

        Raise NotYetError where a transaction stays open. Only the owner writes there, and it has been fenced: without
        the end, the router would read an earlier state.
        """
        self._wait_for((self._topic.state, self._partition), SETTLED_WITHIN_S, "nothing is released before it ends")

    def wait_for_log(self) -> None:
        """Wait until the delay partition is settled up to its current end.

        Raise NotYetError where a transaction stays open. The pending occurrences of recurring schedules lie at the end.
        """
        at_risk = "recurring schedules whose pending occurrence lies behind it would go on twice"
        self._wait_for((self._topic.name, self._partition), LOG_SETTLED_WITHIN_S, at_risk)

    def _wait_for(self, place: Place, seconds: float, why: str) -> None:
        if not self._settles_within(place, seconds):
            name, partition = place
            raise NotYetError(
                f"an open transaction hides the end of {name}/{partition} from offset {self.ends_of(place).settled} on,"
                f" and {why}. A transaction that the brokers have forgotten stays open:"
                f" RUNBOOK, 'A transaction that nobody ends'; delay-router end-transaction {self._topic.name}/"
                f"{partition} {name}/{partition} shows it"
            )

    def settles_within(self, seconds: float) -> bool:
        """Wait until the state partition is settled up to its current end; return False if it takes longer."""
        return self._settles_within((self._topic.state, self._partition), seconds)

    def _settles_within(self, place: Place, seconds: float) -> bool:
        until_s = time.monotonic() + seconds
        end = self.ends_of(place).written
        while self.ends_of(place).settled < end:
            if time.monotonic() > until_s:
                return False
            time.sleep(_PAUSE_S)
        return True

    def look(self, known: StoredState) -> Doubts:
        """Return the places in doubt among all that the partition may write to; O(partitions of targets).

        Raise NotYetError where the snapshots or the backfill partition is among them, or the whole rejected topic.
        """
        topic, partition = self._topic, self._partition
        found = self._looks.found.answers((), lambda _: self._found())
        must = [(name, partition) for name in (topic.snapshots, topic.backfill) if partition in found.get(name, {})]
        targets = {*_targets_of(self._config, topic, known, found), topic.rejected} & found.keys()
        places = [(name, each) for name in sorted(targets) for each in found[name]]
        places += [(topic.name, partition), (topic.receipts, partition)]
        closed = self._closed([*must, *places], found)
        asked = [place for place in dict.fromkeys([*must, *places]) if place not in closed]
        ends = dict(self._looks.ends.answers(asked, partial(self._ends, timeout_s=ANSWER_WITHIN_S)))
        ends |= self._ends(place for place in must if place in ends and ends[place] is None)
        doubts = {**dict.fromkeys(closed), **self._doubts({place: ends[place] for place in asked if place in ends})}
        for place in must:
            if place in doubts:
                raise self._not_yet(place, doubts[place])
        rejected = [(topic.rejected, each) for each in found.get(topic.rejected, ())]
        if rejected and all(place in doubts for place in rejected):
            raise self._not_yet(rejected[0], doubts[rejected[0]])
        return doubts

    def look_again(self, doubts: Doubts) -> Doubts:
        """Return the places that are still in doubt."""
        found = self._found()
        # A topic that is gone holds nothing; its name may come back.
        there = [(name, each) for name, each in doubts if each in found.get(name, {})]
        closed = self._closed(there, found)
        ends = self._ends(place for place in there if place not in closed)
        left: dict[Place, Doubt | None] = {}
        unknown: list[Place] = []
        for place in there:
            doubt, now = doubts[place], ends.get(place)
            if now is None:
                left[place] = doubt
            elif doubt is None or doubt.first_epoch is None:
                unknown.append(place)
            elif now.settled < doubt.until_offset:
                left[place] = doubt._replace(from_offset=now.settled)
        for place, doubt in self._doubts(self._ends(unknown)).items():
            before = doubts[place]
            if doubt is not None and before is not None:
                # Records written since the first look are no reason to wait longer.
                if doubt.from_offset < before.until_offset:
                    left[place] = doubt._replace(until_offset=before.until_offset)
            else:
                left[place] = doubt
        return left

    def _doubts(self, ends: Mapping[Place, PlaceEnds | None]) -> dict[Place, Doubt | None]:
        opened = {place: each for place, each in ends.items() if each is not None and each.is_open}
        epochs = _first_epochs(
            self._config, {place: range(each.settled, each.written) for place, each in opened.items()}
        )
        found = {place: doubt_of(each, epochs.get(place)) for place, each in opened.items()}
        doubts = {place: doubt for place, doubt in found.items() if doubt is not None}
        return doubts | dict.fromkeys(place for place, each in ends.items() if each is None)

    def _ends(self, places: Iterable[Place], timeout_s: float = REQUEST_TIMEOUT_S) -> dict[Place, PlaceEnds | None]:
        """Return the ends of each partition, None where it gives no answer; partitions that are gone are left out."""
        wanted = {place: OffsetSpec.latest() for place in places}
        if not wanted:
            return {}
        # The order matters: a transaction that ends between the two requests is no longer open.
        written = offsets(self._admin, wanted, IsolationLevel.READ_UNCOMMITTED, timeout_s)
        answered = {place: spec for place, spec in wanted.items() if isinstance(written[place], LogOffset)}
        settled = written | offsets(self._admin, answered, IsolationLevel.READ_COMMITTED, timeout_s)
        ends: dict[Place, PlaceEnds | None] = {}
        for place in wanted:
            end, stable = written[place], settled[place]
            if isinstance(end, LogOffset) and isinstance(stable, LogOffset):
                ends[place] = PlaceEnds(min(stable.offset, end.offset), end.offset, stable.leader_epoch)
            elif not any(isinstance(each, KafkaError) and each.code() in _NOTHING_OF_OURS for each in (end, stable)):
                ends[place] = None
        return ends

    def ends_of(self, place: Place) -> PlaceEnds:
        """Return the ends of one partition; raise NotYetError where it gives no answer."""
        ends = self._ends([place]).get(place)
        if ends is None:
            raise NotYetError(f"{place[0]}/{place[1]} gives no answer: no broker leads it, or it does not exist")
        return ends

    def _found(self) -> dict[str, Partitions]:
        topics = self._admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        return {name: each.partitions for name, each in topics.items() if each.error is None or each.partitions}

    def _closed(self, places: Iterable[Place], found: Mapping[str, Partitions]) -> set[Place]:
        """Return the places that take no records: they have no leader, or too few in-sync replicas.

        A place with too few of them takes no marker either, so that a transaction with a record for it does not end.
        """
        there = {(name, each): found[name][each] for name, each in places if each in found.get(name, {})}
        short = {place[0] for place, each in there.items() if len(each.isrs) < len(each.replicas)}
        demands = self._looks.demands.answers(short, self._demands) if short else {}
        suspects = time.monotonic() < self._looks.suspects_until_s
        least = {place: demands.get(place[0], _majority(each) if suspects else 0) for place, each in there.items()}
        return {
            place
            for place, each in there.items()
            if each.leader < 0 or len(each.isrs) < min(least[place], len(each.replicas))
        }

    def _demands(self, names: Iterable[str]) -> dict[str, int]:
        """Return the in-sync replicas that each topic demands; topics that may not be described are left out."""
        settings = visible_settings(self._admin, names)
        return {name: int(each["min.insync.replicas"]) for name, each in settings.items()}

    def _not_yet(self, place: Place, doubt: Doubt | None) -> NotYetError:
        name, partition = place
        if doubt is None:
            return NotYetError(
                f"{name}/{partition} has no leader, too few in-sync replicas, or gives no answer; nothing can be"
                " released without it"
            )
        return NotYetError(
            f"nothing can be released without {name}/{partition}:"
            f" {open_since(name, partition, doubt, self._config.bootstrap)}"
        )


def _majority(partition: PartitionMetadata) -> int:
    return len(partition.replicas) // 2 + 1


def _targets_of(
    config: Config, topic: DelayTopicConfig, known: StoredState, existing: Iterable[str]
) -> Collection[str]:
    """Return the topics that may be released to by the current rules, by stored rules, or by records that are held."""
    rules: list[Rules] = [config.rules_for(topic), *(epoch.rules for epoch in known.history.epochs)]
    named = {name for each in rules for name in (each.default_target, *each.allowed_targets) if name}
    named |= {each.retry.dead_letter for each in rules if each.retry is not None}
    names = {name for name in named if "*" not in name}
    names |= {target for entry in known.held for target in entry.schedule.targets}
    if named - names:
        names |= {name for name in existing if any(each.allowed(name) for each in rules)}
    return names


def _first_epochs(config: Config, opened: Mapping[Place, range]) -> dict[Place, int]:
    """Return the leader epoch of the first record of each range; places that cannot be read are left out."""
    if not opened:
        return {}
    consumer = clients.first_reader(config)
    try:
        return _read_first(PartitionScan(consumer, opened, at_once=1))
    finally:
        consumer.close()


def _read_first(scan: PartitionScan) -> dict[Place, int]:
    epochs: dict[Place, int] = {}
    until_s = time.monotonic() + READ_WITHIN_S
    while scan.left and time.monotonic() < until_s:
        try:
            for message in scan.records(until_s):
                epoch = message.leader_epoch()
                if epoch is not None:
                    epochs[place_of(message)] = epoch
                scan.leave(place_of(message))
        except ScanError as error:
            scan.leave(error.place)
    return epochs
