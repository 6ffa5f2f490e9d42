"""Tells the fate of one record, from the record, the state topic and, where needed, receipts and rejected records.

A router that took the partition over now would go by the state topic, so no answer can be more exact::

    offset >= C                      not indexed yet: pending, or to be rejected
    held                             due, and waits for its target
    rejected by the rules it met     rejected, with their code
    a control that cancels           answered: its receipt names the cancelled schedules
    masked, or pending nowhere       cancelled or replaced, as the receipt says that names it
    (due, offset) after W            pending
    at or before W                   released, if a target has its copy; otherwise, unless a receipt names it (the mask
                                     need not remember it by then) or the rejected topic has it (refused at release)

If neither topic has it, that counts only as long as both reach back to the record; afterwards its fate is unknown.

An answer shows the id, the due time, the targets and a code of the record and nothing else: payload, keys and header
values may be secrets. The message of a rejection quotes them, so it is not shown either.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from index.errors import FormatError
from index.named.queries import cancelling
from index.named.receipts import ControlOutcome
from index.pending.progress import Position
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE, Control, Decision, Reason, Rejection, Schedule, due_ms_of, schedule_of
from index.protocol.where import CancelWhere
from index.rules.retrying import Retry, attempts_of, wait_ms
from index.rules.unreadable import decide
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import MISSING, log_range, topic_id
from sidecar.kafka.client.errors import error_of
from sidecar.kafka.reading.offset_reader import OffsetReader
from sidecar.kafka.reading.scan import read_settled
from sidecar.operations.status.answers import AttemptAnswer, Fate, LookupAnswer
from sidecar.operations.status.receipt_search import query_about, receipt_about
from sidecar.operations.status.rejected_search import FoundRejection, rejected_code
from sidecar.operations.status.released_search import Copy, released_copy
from sidecar.operations.status.searching import NotFinished
from snapshots.state.state import StoredState, fold_state

AT_ONCE_LOOKUPS: Final = 2
"""Look-ups at a time. Each has clients of its own and reads a state partition, so more of them would delay releases."""

CLOCKS_MS: Final = 60_000
"""Largest difference of a router's and a broker's clock with which a search by time still begins early enough."""

PRODUCER_CLOCK_MS: Final = 3_600_000
"""Time by which a producer's clock may be ahead (KIP-1030)."""

NEXT_WAITS: Final = 8
"""Most waits in an answer; a ladder may have a thousand."""

_CLOSED: Final = MISSING | {KafkaError.TOPIC_AUTHORIZATION_FAILED}
_MAY_FAIL: Final = frozenset({Fate.PENDING, Fate.RELEASED})
_NAMED_AS: Final = {ControlOutcome.REPLACED: Fate.REPLACED, ControlOutcome.MOVED: Fate.MOVED}
"""Fate of a schedule that a receipt names, by the outcome of the receipt; with any other outcome it is cancelled."""

WHY: Final[Mapping[Reason, str]] = {
    Reason.MAX_DELAY_EXCEEDED: "the delay is longer than allowed",
    Reason.INVALID_SCHEDULE: "a control header cannot be read",
    Reason.UNIT_SUSPECTED: "the due time only makes sense in another unit",
    Reason.AMBIGUOUS_HEADER: "a control header is given more than once",
    Reason.TARGET_MISSING: "no target is named, and the delay topic has no default target",
    Reason.TARGET_NOT_ALLOWED: "the target is not allowed",
    Reason.TARGET_UNKNOWN: "the target, or the partition of it, does not exist",
    Reason.TARGET_DENIED: "the router may not write to the target",
    Reason.RECORD_TOO_LARGE: "the record is larger than the target takes",
    Reason.DELAY_DISABLED: "delivery is switched off",
    Reason.EXPIRED: "it would have been released too late",
    Reason.UNREADABLE: "its headers cannot be handed over as they are",
}

T = TypeVar("T")


class Lookup:
    """Looks records up, from any thread; raises KafkaException when the cluster does not answer."""

    def __init__(self, config: Config, admin: AdminClient, now_ms: Callable[[], int]) -> None:
        self._config = config
        self._admin = admin
        self._now_ms = now_ms
        self._room = threading.BoundedSemaphore(AT_ONCE_LOOKUPS)

    def of(self, topic: DelayTopicConfig, partition: int, offset: int) -> LookupAnswer:
        """Look up one record of a partition that exists."""
        with self._room:
            return _One(self._config, self._admin, topic, partition, offset, self._now_ms()).answer()


@dataclass(frozen=True, slots=True)
class _One:
    _config: Config
    _admin: AdminClient
    _topic: DelayTopicConfig
    _partition: int
    _offset: int
    _now_ms: int

    def answer(self) -> LookupAnswer:
        log_start, log_end = log_range(self._admin, self._topic.name, self._partition)
        if self._offset >= log_end:
            return self._unknown(f"there is no such record yet: the partition ends at offset {log_end}")
        record = self._read() if self._offset >= log_start else None
        try:
            stored = read_settled(self._config, self._topic.state, self._partition, self._admin)
            state = fold_state((each.key, each.value) for each in stored)
        except FormatError as error:
            return self._unknown(f"the state topic cannot be read: {error}")
        except KafkaException as exception:
            if error_of(exception).code() not in MISSING:
                raise
            return self._unknown(f"state topic {self._topic.state} does not exist")
        held = next((each for each in state.held if each.offset == self._offset), None) if state else None
        if held is not None:
            waits = self._judged(Fate.PENDING, held.schedule, held.record, "due, and waits for its target")
            retry = None if state is None or self._is_forgotten(state) else state.history.at(self._offset).retry
            return _counted(_dated(waits, held.record, indexed=True), held.schedule, retry, held.record)
        if record is None:
            return self._unknown(self._why_gone(log_start, state))
        if state is None:
            return _dated(self._unjudged("no router has served the partition yet"), record, indexed=False)
        if state.delay_topic_id != topic_id(self._admin, self._topic.name):
            return self._unknown("the delay topic was created again, and the state is about the old one")
        return _dated(self._by_state(record, state), record, indexed=self._offset < state.progress.cursor)

    def _why_gone(self, log_start: int, state: StoredState | None) -> str:
        if self._offset >= log_start:
            return "there is no record at this offset, but a mark of a transaction"
        gone = f"it is gone from the delay topic, which begins at offset {log_start}"
        if state is None or state.bucket_at(self._offset) is None:
            return gone
        return (
            f"{gone}; if it is pending, a segment has it, and this lists it: delay-router schedules {self._topic.name}"
        )

    def _read(self) -> Record | None:
        reader = OffsetReader(lambda: clients.reader(self._config))
        try:
            return reader.read(self._topic.name, self._partition, [self._offset])[self._offset]
        finally:
            reader.close()

    def _is_forgotten(self, state: StoredState) -> bool:
        return self._offset < state.history.from_offset

    def _by_state(self, record: Record, state: StoredState) -> LookupAnswer:
        if self._is_forgotten(state):
            # No record below the first epoch is needed any more: it has left, by rules that are not kept.
            likely, _ = decide(state.history.at(self._offset), record, self._offset)
            return self._left(record, None, schedule_of(likely))
        rules = state.history.at(self._offset)
        decision, record = decide(rules, record, self._offset)
        return _counted(self._by_decision(decision, record, state), schedule_of(decision), rules.retry, record)

    def _by_decision(self, decision: Decision, record: Record, state: StoredState) -> LookupAnswer:
        offset, progress = self._offset, state.progress
        if offset >= progress.cursor:
            if isinstance(decision, Rejection):
                return self._rejected(Fate.PENDING, decision.reason, "not indexed yet; to be rejected: ")
            return self._judged(Fate.PENDING, decision, record, "not indexed yet")
        bucket, watermark = state.bucket_at(offset), state.watermark_at(offset)
        if isinstance(decision, Rejection):
            if bucket is not None and bucket.built_from is not None and watermark < Position(AT_ONCE, offset):
                return self._rejected(Fate.PENDING, decision.reason, "built by a backfill; to be rejected: ")
            return self._rejected(Fate.REJECTED, decision.reason)
        schedule = schedule_of(decision)
        if schedule is None:
            why = "it cancels others"
            return self._named_by_receipt(decision, record, why) or self._unknown(why)
        is_pending = (schedule.due_ms, offset) > watermark
        is_somewhere = bucket is not None or offset >= progress.sealed_to
        # The mask names a cancelled record only as long as a bucket could bring it back.
        if offset in state.mask or (schedule.deliver_id is not None and is_pending and not is_somewhere):
            why = "cancelled or replaced"
            gone = f"{why}, and {self._topic.receipts} has the receipt no more"
            unknown = self._judged(Fate.UNKNOWN, schedule, record, gone)
            return self._named_by_receipt(schedule, record, why) or unknown
        if not is_pending:
            return self._left(record, schedule)
        query = cancelling(state.queries, offset, schedule, record)
        if query is not None:
            return self._judged(Fate.CANCELLED, schedule, record, self._by_query(query.offset))
        return self._judged(Fate.PENDING, schedule, record)

    def _left(self, record: Record, schedule: Schedule | None, likely: Schedule | None = None) -> LookupAnswer:
        """Answer for a record that was released or rejected at release.

        Its ``schedule`` is None where its rules are not kept. Then ``likely`` is its schedule by the oldest rules that
        are, and tells only where a copy may be.
        """
        source = f"{self._topic.name}/{self._partition}/{self._offset}"
        copy = self._copy(schedule or likely, record, source)
        if copy is not None:
            released = self._judged(Fate.RELEASED, schedule, record)
            return released.model_copy(update={"released_to": copy.place, "released_ms": copy.timestamp_ms})
        due_ms = AT_ONCE if schedule is None else schedule.due_ms
        # A record that was due before it was written was rejected afterwards.
        from_ms = max(0, due_ms - CLOCKS_MS, record.timestamp_ms - PRODUCER_CLOCK_MS)
        may_have_id = schedule is None or schedule.deliver_id is not None
        if may_have_id and (named := self._named_by_receipt(schedule, record)) is not None:
            return named
        try:
            search = partial(rejected_code, self._config, self._admin, self._topic.rejected, source, from_ms)
            found = _of_readable(self._topic.rejected, search)
        except NotFinished as error:
            return self._judged(Fate.UNKNOWN, schedule, record, f"released, or rejected at release: {error}")
        if isinstance(found, FoundRejection):
            return self._judged(Fate.REJECTED, schedule, record, WHY.get(found.reason, ""), found.reason.value)
        return self._queried(schedule, record) or self._judged(Fate.RELEASED, schedule, record)

    def _copy(self, schedule: Schedule | None, record: Record, source: str) -> Copy | None:
        if schedule is None:
            return None
        # The record has left, so a later due time is wrong.
        due_ms = min(schedule.due_ms or max(record.timestamp_ms, 0), self._now_ms)
        # All targets got the record in one transaction, so one of them suffices.
        return released_copy(self._config, self._admin, schedule.targets[0], source, due_ms)

    def _queried(self, schedule: Schedule | None, record: Record) -> LookupAnswer | None:
        """Answer for a record that has left its place, and that no target has; None where no query is true of it."""
        receipts, since_ms = self._topic.receipts, max(0, record.timestamp_ms - PRODUCER_CLOCK_MS)
        place = self._partition, self._offset
        matches = partial(_matches, schedule, record)
        try:
            search = partial(query_about, self._config, self._admin, receipts, *place, since_ms, matches)
            query = _of_readable(receipts, search)
        except NotFinished as error:
            return self._judged(Fate.UNKNOWN, schedule, record, f"released, or cancelled by a query: {error}")
        if query is None:
            return None
        by_query = self._by_query(query.offset)
        if schedule is None or (schedule.due_ms or record.timestamp_ms) < query.receipt_ms:
            return self._judged(Fate.UNKNOWN, schedule, record, f"released, or cancelled {by_query}")
        return self._judged(Fate.CANCELLED, schedule, record, by_query)

    def _by_query(self, offset: int) -> str:
        return f"by the query {self._topic.name}/{self._partition}/{offset}"

    def _named_by_receipt(
        self, asked: Schedule | Control | None, record: Record, otherwise: str = "it may have been cancelled"
    ) -> LookupAnswer | None:
        """Answer from the receipt that names the record or answers it as a control; None where there is no receipt.

        ``otherwise`` is known of the record without the receipts, and is told where these cannot be looked through.
        """
        place = f"{self._topic.name}/{self._partition}"
        # The receipt was written after the record.
        since_ms = max(0, record.timestamp_ms - PRODUCER_CLOCK_MS)
        receipts = self._topic.receipts
        try:
            about = self._partition, self._offset, since_ms
            said = _of_readable(receipts, partial(receipt_about, self._config, self._admin, receipts, *about))
        except NotFinished as error:
            return self._judged(Fate.UNKNOWN, asked, record, f"{otherwise}: {error}")
        if said is None:
            return None
        if said.offset == self._offset:
            many = f"{said.cancelled} schedule{'s' if said.cancelled != 1 else ''} cancelled"
            return self._answer(Fate.ANSWERED, why=f"its receipt says {said.outcome}: {many}")
        fate = _NAMED_AS.get(said.outcome, Fate.CANCELLED)
        then = f", to be due at {said.due_ms}" if fate is Fate.MOVED else ""
        return self._judged(fate, asked, record, f"by {place}/{said.offset}{then}")

    def _rejected(self, fate: Fate, reason: Reason, before: str = "") -> LookupAnswer:
        return self._answer(fate, why=f"{before}{WHY[reason]}", code=reason.value)

    def _judged(
        self, fate: Fate, asked: Schedule | Control | None, record: Record, why: str = "", code: str = ""
    ) -> LookupAnswer:
        if asked is None:
            return self._answer(fate, why=why, code=code)
        # A schedule without a due time is due at the time of its record; the released record says the same.
        due_ms, schedule = due_ms_of(asked) or max(record.timestamp_ms, 0), schedule_of(asked)
        found = self._answer(fate, why=why, code=code, due_ms=due_ms, targets=schedule.targets if schedule else ())
        shown_id = None if asked.deliver_id is None else asked.deliver_id.decode("utf-8", "replace")
        return found.model_copy(update={"id": shown_id})

    def _unknown(self, why: str) -> LookupAnswer:
        return self._answer(Fate.UNKNOWN, why=why)

    def _unjudged(self, why: str) -> LookupAnswer:
        return self._answer(Fate.PENDING, why=why)

    def _answer(
        self, fate: Fate, *, why: str = "", code: str = "", due_ms: int | None = None, targets: tuple[str, ...] = ()
    ) -> LookupAnswer:
        return LookupAnswer(
            topic=self._topic.name,
            partition=self._partition,
            offset=self._offset,
            fate=fate,
            why=why,
            due_ms=due_ms,
            targets=targets,
            code=code,
        )


def _of_readable(topic: str, search: Callable[[], T]) -> T:
    """Return the result of a search of a topic; raise NotFinished also where the topic may not be read."""
    try:
        return search()
    except KafkaException as exception:
        if error_of(exception).code() not in _CLOSED:
            raise
        raise NotFinished(f"{topic} may not be read") from exception


def _matches(schedule: Schedule | None, record: Record, where: CancelWhere) -> bool:
    return schedule is None or where.matches(schedule, record)


def _dated(answer: LookupAnswer, record: Record, *, indexed: bool) -> LookupAnswer:
    # A record of the oldest format has no time.
    sent_ms = None if record.timestamp_ms < 0 else record.timestamp_ms
    return answer.model_copy(update={"sent_ms": sent_ms, "indexed": indexed})


def _counted(answer: LookupAnswer, schedule: Schedule | None, retry: Retry | None, record: Record) -> LookupAnswer:
    """Return the answer with the attempt of a record that may fail; ``retry`` is None where the rules are not kept."""
    attempt = None if schedule is None else schedule.attempt
    if attempt is None or answer.fate not in _MAY_FAIL:
        return answer
    number, most = attempt.number, None if retry is None else attempts_of(retry, record.headers)
    following = range(number + 1, (most or 0) + 1)
    told = AttemptAnswer(
        number=number,
        most=most,
        exhausted=attempt.exhausted,
        next_waits_ms=() if retry is None else tuple(wait_ms(retry, each) for each in islice(following, NEXT_WAITS)),
        dead_letter="" if retry is None else retry.dead_letter,
    )
    return answer.model_copy(update={"attempt": told})
