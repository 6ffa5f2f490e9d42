"""Pages of what is pending, read from Kafka; any thread may ask."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from index.errors import ClusterError, ClusterTrouble, DelayRouterError, FormatError, RefusedError
from index.progress import start_of
from index.rule_history import RuleHistory
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.finding.kafka_stored import MOST_ENTRIES, Allowance, KafkaStored, KnownSegments
from sidecar.finding.kept_readers import About, KeptReaders, Readers
from sidecar.finding.known_ids import KnownIds
from sidecar.finding.known_manifests import KnownManifests
from sidecar.finding.known_pages import KnownPages
from sidecar.finding.known_state import KnownStates, Latest
from sidecar.finding.walk import Walk
from sidecar.finding.wanted import Page, Pending, Place, Wanted
from sidecar.kafka.admin import MISSING, topic_ids
from sidecar.kafka.errors import error_of
from snapshots.state import StoredState, fold_state

AT_ONCE_PAGES: Final = 2
"""Each has consumers of its own and reads a state partition: more at a time would be felt by what is released."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What one page is to show, of ``partitions`` from that of ``begin`` on."""

    topic: DelayTopicConfig
    about: About
    partitions: int
    wanted: Wanted
    begin: Place
    most: int


class Finder:
    """KafkaException or DelayRouterError when the cluster does not answer, or the state cannot be read."""

    def __init__(self, config: Config, admin: AdminClient) -> None:
        self._config = config
        self._admin = admin
        self._readers = KeptReaders(partial(Readers, config), AT_ONCE_PAGES)
        self._ids = KnownIds()
        self._states = KnownStates()
        self._manifests = KnownManifests()
        self._pages = KnownPages()
        self._segments = KnownSegments(MOST_ENTRIES)

    def page(self, topic: DelayTopicConfig, partitions: int, wanted: Wanted, begin: Place, most: int) -> Page:
        """At most ``most`` pending schedules from ``begin`` on; there may be fewer on a page that is not the last."""
        # Asked for each page: what is kept of a topic says nothing of another one that has its name now.
        ids = topic_ids(self._admin, [topic.name, topic.state])
        if ids[topic.name] is None:
            raise RefusedError(f"delay topic {topic.name} does not exist; create it: delay-router init")
        about = About(topic.name, ids[topic.name], ids[topic.state])
        return self._readers.read(about, partial(self._page, _Asked(topic, about, partitions, wanted, begin, most)))

    def close(self) -> None:
        """Close the consumers; those of a page that is under way are closed with it."""
        self._readers.close()

    def _page(self, asked: _Asked, readers: Readers) -> Page:
        allowance, found, begin = Allowance(), list[Pending](), asked.begin
        for number in range(begin.partition, asked.partitions):
            place = begin if number == begin.partition else Place(number)
            if allowance.is_spent():
                return _page(found, place)
            next_from = self._read(asked, readers, place, allowance, found)
            if next_from == begin:
                raise DelayRouterError(f"{asked.topic.name}/{number}: segments that its state names are not there")
            if next_from is not None:
                return _page(found, next_from)
        return _page(found, None)

    def _read(
        self, asked: _Asked, readers: Readers, place: Place, allowance: Allowance, found: list[Pending]
    ) -> Place | None:
        stored = KafkaStored(readers, asked.topic, asked.about, place.partition, self._pages, self._segments)
        most = asked.most - len(found)
        try:
            state = self._state(asked, stored, place.partition)
            walk = Walk(place.partition, state, asked.wanted, stored, allowance, self._ids, most)
            try:
                next_from = walk.read(place)
            except ClusterError as error:
                if error.kind is not ClusterTrouble.UNREADABLE:
                    raise
                # Segments do not have what nobody can read.
                walk = Walk(place.partition, state, asked.wanted, stored, allowance, None, most)
                next_from = walk.read(place)
        except FormatError as error:
            raise DelayRouterError(f"{asked.topic.name}/{place.partition}: {error}") from error
        found += walk.found
        return next_from

    def _state(self, asked: _Asked, stored: KafkaStored, partition: int) -> StoredState:
        state = self._stored_state(asked, stored, partition)
        if state is None:
            # No router has served it yet: all that it holds is still to come.
            return StoredState(start_of(0), "", RuleHistory.beginning(0, self._config.rules_for(asked.topic)))
        if state.delay_topic_id != asked.about.topic_id:
            raise DelayRouterError(f"{asked.topic.name} was created again, and its state is about the old one")
        return state

    def _stored_state(self, asked: _Asked, stored: KafkaStored, partition: int) -> StoredState | None:
        if asked.about.state_id is None:
            return None
        place = asked.topic.state, asked.about.state_id, partition
        try:
            return self._states.folded(place, stored.state_since, self._fold)
        except KafkaException as exception:
            if error_of(exception).code() not in MISSING:
                raise
            return None

    def _fold(self, latest: Latest) -> StoredState | None:
        return fold_state(latest.items(), self._manifests.manifest)


def _page(found: list[Pending], next_from: Place | None) -> Page:
    return Page(sorted(found), next_from)
