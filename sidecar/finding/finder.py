"""Pages of what is pending, read from Kafka; any thread may ask."""

import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from index.bucket import SegmentRef
from index.errors import DelayRouterError, FormatError
from index.id_pages import IdPage, IdPageRef
from index.progress import start_of
from index.record import Record
from index.rule_history import RuleHistory
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.finding.known_ids import KnownIds
from sidecar.finding.known_pages import KnownPages
from sidecar.finding.known_state import KnownStates
from sidecar.finding.walk import Walk
from sidecar.finding.wanted import Page, Pending, Place, Wanted
from sidecar.intake.offset_reader import OffsetReader
from sidecar.kafka import clients
from sidecar.kafka.admin import MISSING, is_there, log_range, topic_id
from sidecar.kafka.compacted import read_since
from sidecar.kafka.errors import error_of, is_unreadable
from snapshots.segment import StoredEntry, decode_segment
from snapshots.state import StoredState, fold_state

MOST_READ: Final = 50_000
"""Records that are read for one page, and those of the segment in which it ends."""

READ_FOR_S: Final = 5.0

AT_ONCE_PAGES: Final = 2
"""Each has clients of its own and reads a state partition: more at a time would be felt by what is released."""


class Finder:
    """KafkaException when the cluster does not answer, DelayRouterError when what is stored cannot be read."""

    def __init__(self, config: Config, admin: AdminClient) -> None:
        self._config = config
        self._admin = admin
        self._room = threading.BoundedSemaphore(AT_ONCE_PAGES)
        self._ids = KnownIds()
        self._states = KnownStates()
        self._pages = KnownPages()

    def page(self, topic: DelayTopicConfig, partitions: int, wanted: Wanted, begin: Place, most: int) -> Page:
        """At most ``most`` pending schedules from ``begin`` on; there may be fewer on a page that is not the last."""
        allowance, found = _Bounds(), list[Pending]()
        with self._room:
            for number in range(begin.partition, partitions):
                place = begin if number == begin.partition else Place(number)
                if allowance.is_spent():
                    return _page(found, place)
                next_from = self._read(topic, wanted, place, allowance, most - len(found), found)
                if next_from == begin:
                    raise DelayRouterError(f"{topic.name}/{number}: segments that its state names are not there")
                if next_from is not None:
                    return _page(found, next_from)
        return _page(found, None)

    def _read(
        self,
        topic: DelayTopicConfig,
        wanted: Wanted,
        place: Place,
        allowance: "_Bounds",
        most: int,
        found: list[Pending],
    ) -> Place | None:
        stored = _KafkaStored(self._config, self._admin, topic, place.partition, self._pages)
        try:
            state = self._state(topic, place.partition)
            walk = Walk(place.partition, state, wanted, stored, allowance, self._ids, most)
            try:
                next_from = walk.read(place)
            except KafkaException as exception:
                if not is_unreadable(error_of(exception)):
                    raise
                # Segments do not have what nobody can read.
                walk = Walk(place.partition, state, wanted, stored, allowance, None, most)
                next_from = walk.read(place)
        except FormatError as error:
            raise DelayRouterError(f"{topic.name}/{place.partition}: {error}") from error
        finally:
            stored.close()
        found += walk.found
        return next_from

    def _state(self, topic: DelayTopicConfig, partition: int) -> StoredState:
        state = self._stored_state(topic, partition)
        if state is None:
            # No router has served it yet: all that it holds is still to come.
            return StoredState(start_of(0), "", RuleHistory.beginning(0, self._config.rules_for(topic)))
        if state.delay_topic_id != topic_id(self._admin, topic.name):
            raise DelayRouterError(f"{topic.name} was created again, and its state is about the old one")
        return state

    def _stored_state(self, topic: DelayTopicConfig, partition: int) -> StoredState | None:
        if not is_there(self._admin, topic.state):
            return None
        place = topic.state, topic_id(self._admin, topic.state), partition
        read = partial(read_since, self._config, topic.state, partition, self._admin)
        try:
            return fold_state(self._states.latest(place, read).items())
        except KafkaException as exception:
            if error_of(exception).code() not in MISSING:
                raise
            return None


def _page(found: list[Pending], next_from: Place | None) -> Page:
    return Page(sorted(found), next_from)


class _Bounds:
    """Of one page."""

    def __init__(self) -> None:
        self._left = MOST_READ
        self._until_s = time.monotonic() + READ_FOR_S

    def is_spent(self) -> bool:
        """Whether the page has to end."""
        return self._left <= 0 or time.monotonic() > self._until_s

    def spend(self, records: int) -> None:
        """So many were read."""
        self._left -= records


class _KafkaStored:
    """One partition, with consumers that are made when they are needed."""

    def __init__(
        self, config: Config, admin: AdminClient, topic: DelayTopicConfig, partition: int, pages: KnownPages
    ) -> None:
        self._admin = admin
        self._pages = pages
        self._topic = topic
        self._partition = partition
        self._reader = OffsetReader(partial(clients.reader, config), partial(clients.bulk_reader, config))

    def segment(self, ref: SegmentRef) -> Sequence[StoredEntry] | None:
        """As ``Stored.segment``."""
        read = self._reader.read_large(self._topic.snapshots, self._partition, [ref.record_offset])
        record = read[ref.record_offset]
        return None if record is None or record.value is None else decode_segment(record.value)

    def id_page(self, ref: IdPageRef) -> IdPage | None:
        """As ``Stored.id_page``."""
        place = self._topic.snapshots, self._partition

        def read() -> bytes | None:
            record = self._reader.read(*place, [ref.record_offset])[ref.record_offset]
            return None if record is None else record.value

        return self._pages.page(place, ref, read)

    def records(self, offsets: Sequence[int]) -> dict[int, Record | None]:
        """As ``Stored.records``."""
        return self._reader.read(self._topic.name, self._partition, offsets)

    def log(self, from_offset: int, to_offset: int | None = None) -> Iterator[tuple[int, Record]]:
        """As ``Stored.log``."""
        start, end = log_range(self._admin, self._topic.name, self._partition)
        to_offset = end if to_offset is None else min(to_offset, end)
        return self._reader.scan(self._topic.name, self._partition, max(start, from_offset), to_offset)

    def log_start(self) -> int:
        """As ``Stored.log_start``."""
        return log_range(self._admin, self._topic.name, self._partition)[0]

    def close(self) -> None:
        """Give the consumers back."""
        self._reader.close()
