"""Reads pages of pending schedules from Kafka."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from index.errors import ClusterError, ClusterTrouble, DelayRouterError, FormatError, RefusedError
from index.pending.progress import Position, start_of
from index.protocol.record import Record
from index.rules.rule_history import RuleHistory
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka.client.admin import MISSING, topic_ids
from sidecar.kafka.client.errors import error_of
from sidecar.operations.finding.cache import FinderCaches, Incarnation
from sidecar.operations.finding.store import Allowance, ReaderPool, Readers, StoredPartition
from sidecar.operations.finding.walk import Walk
from sidecar.operations.finding.wanted import PagePlace, Pending, ScheduleFilter, SchedulePage
from snapshots.state.state import StoredState, fold_state

AT_ONCE_PAGES: Final = 2
"""Each page has consumers of its own and reads a state partition; more pages at a time would delay releases."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The question of one page: at most ``most`` schedules of ``partitions``, beginning in that of ``begin``."""

    topic: DelayTopicConfig
    incarnation: Incarnation
    partitions: int
    wanted: ScheduleFilter
    begin: PagePlace
    most: int


class Finder:
    """Finds pending schedules; any thread may ask.

    Raises KafkaException or DelayRouterError when the cluster does not answer, or the state cannot be read.
    """

    def __init__(self, config: Config, admin: AdminClient) -> None:
        self._config = config
        self._admin = admin
        self._readers = ReaderPool(partial(Readers, config), AT_ONCE_PAGES)
        self._known = FinderCaches()

    def page(
        self, topic: DelayTopicConfig, partitions: int, wanted: ScheduleFilter, begin: PagePlace, most: int
    ) -> SchedulePage:
        """Return at most ``most`` pending schedules from ``begin`` on; a page before the last may have fewer."""
        asked = _Asked(topic, self._incarnation(topic), partitions, wanted, begin, most)
        return self._readers.read(asked.incarnation, partial(self._page, asked))

    def record(self, topic: DelayTopicConfig, place: Position, partition: int) -> Record | None:
        """Return the record at an offset; None where it is gone from the delay topic and kept nowhere.

        ``place`` has the due time of a schedule that is pending in a bucket, for which alone the due time matters.
        """
        incarnation = self._incarnation(topic)
        return self._readers.read(incarnation, partial(self._record, topic, incarnation, partition, place))

    def close(self) -> None:
        """Close the consumers; a page that is under way closes its own when it ends."""
        self._readers.close()

    def _incarnation(self, topic: DelayTopicConfig) -> Incarnation:
        # The ids are asked for each time: caches of a deleted topic do not hold for a new topic of its name.
        ids = topic_ids(self._admin, [topic.name, topic.state])
        if ids[topic.name] is None:
            raise RefusedError(f"delay topic {topic.name} does not exist; create it: delay-router init")
        return Incarnation(topic.name, ids[topic.name], ids[topic.state])

    def _record(
        self, topic: DelayTopicConfig, incarnation: Incarnation, partition: int, place: Position, readers: Readers
    ) -> Record | None:
        offset = place.offset
        stored = StoredPartition(readers, topic, incarnation, partition, self._known)
        start, end = stored.log_range()
        if offset >= end:
            return None
        record = stored.records([offset])[offset] if offset >= start else None
        if record is not None:
            return record
        try:
            state = self._state(stored)
            held = next((each.record for each in state.held if each.offset == offset), None)
            bucket = state.bucket_at(offset)
            return held if bucket is None or held is not None else stored.in_segment(bucket, place)
        except FormatError as error:
            raise DelayRouterError(f"{topic.name}/{partition}: {error}") from error

    def _page(self, asked: _Asked, readers: Readers) -> SchedulePage:
        allowance, found, begin = Allowance(), list[Pending](), asked.begin
        for number in range(begin.partition, asked.partitions):
            place = begin if number == begin.partition else PagePlace(number)
            if allowance.is_spent():
                return _page(found, place)
            next_from = self._read(asked, readers, place, allowance, found)
            if next_from == begin:
                raise DelayRouterError(f"{asked.topic.name}/{number}: segments that its state names are not there")
            if next_from is not None:
                return _page(found, next_from)
        return _page(found, None)

    def _read(
        self, asked: _Asked, readers: Readers, place: PagePlace, allowance: Allowance, found: list[Pending]
    ) -> PagePlace | None:
        stored = StoredPartition(readers, asked.topic, asked.incarnation, place.partition, self._known)
        most = asked.most - len(found)
        try:
            state = self._state(stored)
            walk = Walk(place.partition, state, asked.wanted, stored, allowance, self._known.blocks, most)
            try:
                next_from = walk.read(place)
            except ClusterError as error:
                if error.kind is not ClusterTrouble.UNREADABLE:
                    raise
                # Segments hold no record that cannot be read, so read them in place of the log.
                walk = Walk(place.partition, state, asked.wanted, stored, allowance, None, most)
                next_from = walk.read(place)
        except FormatError as error:
            raise DelayRouterError(f"{asked.topic.name}/{place.partition}: {error}") from error
        found += walk.found
        return next_from

    def _state(self, stored: StoredPartition) -> StoredState:
        state = self._stored_state(stored)
        if state is None:
            # No router has served the partition yet: all its records are still pending.
            return StoredState(start_of(0), "", RuleHistory.beginning(0, self._config.rules_for(stored.topic)))
        if state.delay_topic_id != stored.incarnation.topic_id:
            raise DelayRouterError(f"{stored.topic.name} was created again, and its state is about the old one")
        return state

    def _stored_state(self, stored: StoredPartition) -> StoredState | None:
        if stored.incarnation.state_id is None:
            return None
        place = stored.topic.state, stored.incarnation.state_id, stored.partition
        try:
            return self._known.states.folded(place, stored.state_since, fold_state)
        except KafkaException as exception:
            if error_of(exception).code() not in MISSING:
                raise
            return None


def _page(found: list[Pending], next_from: PagePlace | None) -> SchedulePage:
    return SchedulePage(sorted(found), next_from)
