"""One transaction: everything that leaves a delay partition now, and the progress that says so.

1. Screen (:mod:`sidecar.screening`): no transaction is open yet.
2. Write: released and rejected records, then progress.
3. Commit. When the broker refuses a record, abort, find out which (:mod:`sidecar.refusals`), and write again without
   it. Any other failure is raised: the outcome may be unknown, and the partition must be taken over again.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from confluent_kafka import KafkaException, Producer

from index.adopting import Adoption
from index.errors import RefusedError
from index.pending import Entry
from index.progress import Progress
from index.rules import Rules
from index.schedule import Rejection
from sidecar.chores import NOTHING, Chores
from sidecar.expiry import NEVER, Expiry
from sidecar.gate import Gate
from sidecar.kafka_errors import Verdict, classify, error_of, reason_of
from sidecar.records import Refused, Scheduled
from sidecar.refusals import Suspect, find_refused, send_in_small_batches
from sidecar.screening import Decide, Leaving, ReadRecords, Screened, refused_by_target, screen
from sidecar.shortening import shortened
from sidecar.targets import TargetDirectory
from sidecar.transaction import PartitionWriter

MAX_REFUSAL_ROUNDS = 16
"""Every other one may be a repetition, and the rejected topic may have limits of its own. A broker that refuses
something new in every round is not one we understand: take over again, and report."""


@dataclass(frozen=True, slots=True)
class Released:
    """What one committed transaction did; ``record_offsets`` are those of the segments written."""

    screened: Screened
    aborted: int
    truncated: int
    held: list[Entry[Scheduled]]
    record_offsets: list[int]
    refused_segments: str

    def by_target(self) -> Counter[str]:
        """Released records by target topic."""
        routes = Counter([payload[0][1] for _, _, payload in self.screened.released])
        counts: Counter[str] = Counter()
        for targets, count in routes.items():
            for target in targets:
                counts[target] += count
        return counts

    def by_reason(self) -> Counter[str]:
        """Rejected records by code."""
        return Counter(refused.rejection.reason.value for _, refused in self.screened.rejected)


@dataclass(slots=True)
class Releaser:
    """Turns batches into committed transactions of one delay partition; used by its worker only."""

    writer: PartitionWriter
    rules: Rules
    directory: TargetDirectory
    read: ReadRecords
    compresses: bool
    decide: Decide
    now_ms: Callable[[], int]
    gate: Gate
    expiry: Expiry = NEVER
    crowded: dict[str, int] = field(default_factory=dict)

    def release(self, batch: Leaving, chores: Chores = NOTHING, resumed: Sequence[Entry[Scheduled]] = ()) -> Released:
        """Commit a batch with its progress; KafkaException when that was not possible or its outcome is unknown.

        ``resumed`` was held until now, and leaves first. What a target may not be given yet is held from now on.
        Segments and what is withdrawn are left out when the broker refuses something: what is due must not suffer from
        housekeeping.
        """
        screened, held = self._screened(batch, resumed)
        truncated: set[int] = set()
        refused_segments = ""
        for aborted in range(MAX_REFUSAL_ROUNDS):
            try:
                record_offsets = self._write(screened, batch.progress, chores)
                commit(self.writer.producer)
            except KafkaException as exception:
                # Before anything else can fail: a new owner of the partition asks the same directory.
                self.directory.forget()
                verdict = classify(error_of(exception))
                if verdict not in (Verdict.REFUSED, Verdict.AGAIN):
                    raise
                self.writer.producer.abort_transaction()
                if verdict is Verdict.REFUSED and isinstance(chores.installs, Adoption):
                    # Progress speaks of it, so it cannot be left out: whoever takes over goes on without.
                    raise
                if verdict is Verdict.REFUSED and (chores.segments or chores.withdrawn):
                    chores, refused_segments = chores.without_refusable(), error_of(exception).str()
                elif verdict is Verdict.REFUSED:
                    # It was a record, so nothing is said against the segments: they are written the next time.
                    refused_segments = ""
                    screened = self._without_refused(screened, truncated, exception)
            else:
                offsets = [record_offsets[number] for number in range(len(chores.segments))]
                self.gate.committed()
                return Released(screened, aborted, len(truncated), held, offsets, refused_segments)
        raise RefusedError(f"a batch of {len(batch)} records was refused {MAX_REFUSAL_ROUNDS} times in a row")

    def _screened(self, batch: Leaving, resumed: Sequence[Entry[Scheduled]]) -> tuple[Screened, list[Entry[Scheduled]]]:
        """What leaves, and what has to wait for its target."""
        if resumed:
            batch = replace(batch, late=[*resumed, *batch.late])
        screened = screen(batch, self.rules, self.directory, self.read, self.decide)
        expired = self.expiry.refused(screened.released, self.now_ms())
        if expired:
            screened = screened.without(expired)
        held = self.gate.hold(screened.released, frozenset(offset for _, offset, _ in resumed))
        if held:
            screened = screened.holding(held)
        return screened, held

    def _write(self, screened: Screened, progress: Progress, chores: Chores) -> dict[int, int]:
        writer = self.writer
        writer.producer.begin_transaction()
        if self.crowded:
            send_in_small_batches(writer.producer, self._suspects(screened), self.crowded)
        else:
            writer.release(screened.released)
            for offset, refused in screened.rejected:
                writer.reject(offset, refused)
        writer.write_held(self.gate.state())
        record_offsets = writer.write_chores(chores)
        writer.write_progress(progress)
        return record_offsets

    def _without_refused(self, screened: Screened, truncated: set[int], cause: KafkaException) -> Screened:
        by_target = refused_by_target(screened.released, self.rules, self.directory)
        if by_target:
            return screened.without(by_target)
        findings = find_refused(self.writer.producer, self._suspects(screened), by_size=not self.compresses)
        self.crowded |= findings.crowded
        errors = findings.refused
        rejected: list[tuple[int, Refused]] = []
        for offset, refused in screened.rejected:
            if offset in errors:
                shorter = shortened(refused)
                if shorter is None:
                    raise cause
                truncated.add(offset)
                rejected.append((offset, shorter))
            else:
                rejected.append((offset, refused))
        refusals = {offset: Rejection(reason_of(error), error.str()) for offset, error in errors.items()}
        return replace(screened, rejected=rejected).without(refusals)

    def _suspects(self, screened: Screened) -> list[Suspect]:
        writer = self.writer
        released = [
            Suspect(offset, scheduled.schedule.targets, scheduled.record, partial(writer.release, [entry]))
            for entry in screened.released
            for _, offset, scheduled in [entry]
        ]
        rejected = [
            Suspect(offset, (writer.rejected_topic,), refused.record, partial(writer.reject, offset, refused))
            for offset, refused in screened.rejected
        ]
        return released + rejected


def commit(producer: Producer) -> None:
    """Commit the open transaction; a commit that timed out is resumed by calling it again."""
    while True:
        try:
            producer.commit_transaction()
        except KafkaException as exception:
            if classify(error_of(exception)) is not Verdict.RETRY:
                raise
        else:
            return
