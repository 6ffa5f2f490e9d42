"""What tells how a transaction ended: the records it wrote, the coordinator's log, and what readers can see."""

from collections.abc import Iterable, Sequence
from typing import Final

from confluent_kafka.admin import AdminClient

from index.errors import FormatError
from index.headers import DELAY_ERROR
from index.occurrences import is_ours
from index.orphans import NOTHING_WRITTEN, WHEN_INDEXED, Done, Hidden, Outcome, of_state
from index.record import Record
from index.recurring import Recurrence, recurrence_of
from index.rules import Rules
from index.schedule import Reason, Rejection, Schedule
from sidecar.buckets.segments import SegmentSource
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.healing.hidden import Ends, Found, Read, ends_of, first_offsets, ours, read_hidden, read_seen
from sidecar.healing.transaction_log import outcome_of_last
from sidecar.intake.offset_reader import OffsetReader
from sidecar.kafka import clients
from sidecar.kafka.admin import REQUEST_TIMEOUT_S, Place
from sidecar.kafka.compacted import Stored
from sidecar.release.target_directory import Directory
from snapshots.owed import decode_owed
from snapshots.state import StoredState, fold_state

_ONLY_WHEN_INDEXED = frozenset(
    {
        Reason.AMBIGUOUS_HEADER.value.encode(),
        Reason.INVALID_SCHEDULE.value.encode(),
        Reason.UNIT_SUSPECTED.value.encode(),
        Reason.MAX_DELAY_EXCEEDED.value.encode(),
        Reason.TARGET_MISSING.value.encode(),
    }
)

MOST_BACK: Final = 200_000
"""So many offsets are looked at from the end of a partition whose timestamps do not say when it was written."""


class Evidence:
    """About one delay partition, at one take-over."""

    def __init__(
        self, config: Config, directory: Directory, topic: DelayTopicConfig, partition: int, admin: AdminClient
    ) -> None:
        self._config = config
        self._directory = directory
        self._topic = topic
        self._partition = partition
        self._admin = admin
        self._source = f"{topic.name}/{partition}/"
        self._delay: Place = (topic.name, partition)
        self._made_of: dict[int, Record | None] = {}

    def targets(self, origin: StoredState) -> list[Place]:
        """Every partition of every target that may be released to, and of the rejected topic.

        And those that belong to the delay partition: of the receipts, and itself, where next occurrences are written.
        """
        rules = [self._config.rules_for(self._topic), *(epoch.rules for epoch in origin.history.epochs)]
        named = {name for each in rules for name in (each.default_target, *each.allowed_targets) if name}
        names = {name for name in named if "*" not in name} | {self._topic.rejected}
        names |= {target for entry in origin.held for target in entry.schedule.targets}
        counts = {name: target.partitions for name, target in self._directory.resolve(sorted(names)).items()}
        if named - names:
            counts |= self._matching(rules)
        of_targets = [(name, partition) for name, count in counts.items() for partition in range(count)]
        return [*dict.fromkeys((*of_targets, (self._topic.receipts, self._partition), self._delay))]

    def _matching(self, rules: Sequence[Rules]) -> dict[str, int]:
        topics = self._admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        return {
            name: len(found.partitions) for name, found in topics.items() if any(each.allowed(name) for each in rules)
        }

    def hidden(self, done: Done, origin: StoredState, place: Place, found: Found) -> Hidden:
        """What a record says for the decision; one whose due time is not in it is decided again."""
        offset, is_rejected = found.source_offset, place[0] == self._topic.rejected
        if place[0] == self._topic.receipts:
            return Hidden(offset, WHEN_INDEXED)
        # What a rejected record says of a due time, or an occurrence, is not about what it was made of.
        tells_due = found.due_ms is not None and not is_rejected and place != self._delay
        if tells_due or not done.has_left(WHEN_INDEXED, offset):
            return Hidden(offset, found.due_ms)
        headers = dict(found.record.headers)
        if is_rejected and headers.get(DELAY_ERROR) in _ONLY_WHEN_INDEXED:
            return Hidden(offset, WHEN_INDEXED)
        return Hidden(offset, self._decided_again(origin, offset))

    def _written_by_us(self, origin: StoredState, place: Place, found: list[Found], settled: int) -> list[Found]:
        """Those of them that the router has written, on a partition where readers see all up to ``settled``.

        Whoever gets a released record may write it to the delay partition again, with all its headers. What the router
        has appended there is signed, or was made of a control that has moved it (:mod:`index.moving`).
        """
        if place != self._delay:
            return found
        # What it was made of had been read.
        found = [each for each in found if each.source_offset < settled]
        self._read([each.source_offset for each in found if each.source_offset != NOTHING_WRITTEN])
        return [each for each in found if self._is_appended(origin, each)]

    def _is_appended(self, origin: StoredState, found: Found) -> bool:
        recurrence = recurrence_of(found.record.headers)
        if isinstance(recurrence, Recurrence) and recurrence.occurrence is not None:
            return is_ours(found.record, recurrence, origin.progress.series_key)
        if found.source_offset == NOTHING_WRITTEN:
            return True
        decision = self._decision(origin, found.source_offset)
        return isinstance(decision, Schedule) and not decision.targets

    def _decided_again(self, origin: StoredState, offset: int) -> int | None:
        decision = self._decision(origin, offset)
        if decision is None:
            return None
        # A control is answered as soon as it is indexed, and releases nothing itself.
        return decision.due_ms if isinstance(decision, Schedule) and decision.targets else WHEN_INDEXED

    def _decision(self, origin: StoredState, offset: int) -> Schedule | Rejection | None:
        """About a record of the delay partition, by the rules of then; None when it is gone."""
        self._read([offset])
        record = self._made_of[offset]
        if record is None:
            return None
        return SegmentSource(self._topic, self._partition, origin.history).decide(offset, record)

    def _read(self, offsets: Iterable[int]) -> None:
        """Have these records of the delay partition, which are read once."""
        if not (missing := sorted(set(offsets) - self._made_of.keys())):
            return
        reader = OffsetReader(lambda: clients.reader(self._config))
        try:
            self._made_of |= reader.read(self._topic.name, self._partition, missing)
        finally:
            reader.close()

    def of_state(self, stored: StoredState | None, then: StoredState | None, since_ms: int) -> tuple[Outcome, str]:
        """How the transaction ended that is open on the state, and what the coordinator's log had of it.

        ``then`` is what the state would be with it, where that can be read; ``since_ms`` when it began.
        """
        transactional_id = clients.transactional_id(self._config, self._topic.name, self._partition)
        wrote_to = self._topic.state, self._partition
        by_log, found = outcome_of_last(self._config, self._admin, transactional_id, wrote_to)
        if by_log is not None or then is None:
            return by_log or Outcome.UNDECIDED, found
        if stored is None:
            # The first one of all: it only wrote the state, and nothing has left.
            return Outcome.ABORTED if not then.buckets else Outcome.UNDECIDED, found
        before, after = _done(stored), _done(then)
        visible, is_all = self._visible(stored, before, since_ms)
        return of_state(before, after, visible, all_looked_at=is_all), found

    def _visible(self, stored: StoredState, done: Done, since_ms: int) -> tuple[list[Hidden], bool]:
        """What readers can see of this partition on targets and on the rejected topic, and whether that is all."""
        by_time = self._topic.timestamp == "release"
        places = self.targets(stored)
        ends = ends_of(self._admin, places)
        starts = first_offsets(self._admin, ends, since_ms if by_time else None)
        is_all, visible = True, list[Hidden]()
        for place, (start, end) in {place: (starts[place], ends[place]) for place in ends if place in starts}.items():
            begin = start if by_time else max(start, end.settled - MOST_BACK)
            is_all &= begin == start and not self._hides_ours(stored, place, end)
            seen = read_seen(self._config, place, begin, end.settled, self._source)
            seen = self._written_by_us(stored, place, seen, end.settled)
            visible += [self.hidden(done, stored, place, each) for each in seen]
        return visible, is_all

    def hidden_by_second(self, stored: StoredState) -> list[Place]:
        """Where what only healed is open itself, in front of everything else, and may hide what is committed."""
        now = ends_of(self._admin, self.targets(stored))
        firsts = {place: self.found(stored, place, ends)[:1] for place, ends in now.items() if ends.is_open}
        return [place for place, first in firsts.items() if any(each.is_of_second for each in first)]

    def _hides_ours(self, stored: StoredState, place: Place, ends: Ends) -> bool:
        """Whether an open transaction lies in front of records of ours that is not the one which wrote them."""
        if not ends.is_open:
            return False
        written = [each for each in self.found(stored, place, ends) if not each.is_of_second]
        return bool(written) and written[0].offset != ends.settled

    def found(self, stored: StoredState, place: Place, ends: Ends) -> list[Found]:
        """What of ours lies behind an open transaction; KafkaException when it cannot be read."""
        hidden = ours(read_hidden(self._config, place, ends.settled, ends.written), self._source)
        return self._written_by_us(stored, place, hidden, ends.settled)


def _done(stored: StoredState) -> Done:
    return Done(stored.progress, stored.buckets, frozenset(entry.offset for entry in stored.held))


def folded(settled: Iterable[Stored], more: Iterable[tuple[bytes | None, bytes | None]]) -> StoredState | None:
    """What the state would be with the records of an open transaction; None when that cannot be told."""
    try:
        return fold_state([*((record.key, record.value) for record in settled), *more])
    except FormatError:
        return None


def is_copied(hidden: Iterable[Read], prefix: bytes, number: int) -> bool:
    """Whether copies of what an orphan of the state hides lie behind it: they are only made of a committed one."""
    copies = [(record.key, record.value) for _, record, _ in hidden if record.key and record.key.startswith(prefix)]
    try:
        return any(owed.after_number == number for owed in decode_owed(copies))
    except FormatError:
        # Some parts only: their transaction was not committed, so nothing has been done after it.
        return False
