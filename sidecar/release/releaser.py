"""One transaction: everything that leaves a delay partition now, and the progress that says so.

1. Screen (:mod:`sidecar.release.screening`): no transaction is open yet.
2. Write: released and rejected records, then progress.
3. Commit. When the broker refuses a record, abort, find out which (:mod:`sidecar.release.refusals`), and write again
   without it. Any other failure is raised: the outcome may be unknown, and the partition must be taken over again.

Rejected: waiting until the released records are written before the progress is, so that a transaction that is torn
doubles records and loses none. It costs two more round trips, half as much again for a record alone (24 and 38 ms on a
busy machine), and nothing tears a transaction any more that a producer of its own epoch alone has begun
(:mod:`sidecar.kafka.connections`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import structlog
from confluent_kafka import KafkaException, Producer

from index.adopting import Adoption
from index.errors import RefusedError
from index.pending import Entry
from index.progress import Progress
from index.rules import Rules
from index.schedule import Rejection
from sidecar.kafka.errors import Verdict, classify, error_of, reason_of, resumed
from sidecar.payload.records import Decide, Leaving, Refused, Scheduled
from sidecar.release.chores import NOTHING, Chores
from sidecar.release.expiry import NEVER, Expiry
from sidecar.release.gate import Gate
from sidecar.release.refusals import Findings, Suspect, find_refused, send_in_small_batches
from sidecar.release.screening import ReadRecords, Screened, refused_by_target, screen
from sidecar.release.shortening import shortened
from sidecar.release.target_directory import TargetDirectory
from sidecar.release.writer import PartitionWriter

MAX_REFUSAL_ROUNDS = 16
"""Every other one may be a repetition, and the rejected topic may have limits of its own. A broker that refuses
something new in every round is not one we understand: take over again, and report."""

SEARCH_S = 0.25
"""How long others wait while it is found out what a broker refuses; what is not decided by then is set aside."""


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
    tells_which: bool = False

    def release(self, batch: Leaving, chores: Chores = NOTHING, resumed: Sequence[Entry[Scheduled]] = ()) -> Released:
        """Commit a batch with its progress; KafkaException when that was not possible or its outcome is unknown.

        ``resumed`` was held until now, and leaves first. What a target may not be given yet is held from now on.
        Segments and what is withdrawn are left out when the broker refuses something: what is due must not suffer from
        housekeeping.
        """
        screened, held = self._screened(batch, resumed)
        truncated: set[int] = set()
        aside: list[Entry[Scheduled]] = []
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
                    screened, undecided = self._without_refused(screened, truncated, exception)
                    aside += undecided
            else:
                offsets = [record_offsets[number] for number in range(len(chores.segments))]
                self.writer.committed()
                self.gate.committed()
                return Released(screened, aborted, len(truncated), held + aside, offsets, refused_segments)
        raise RefusedError(f"a batch of {len(batch)} records was refused {MAX_REFUSAL_ROUNDS} times in a row")

    def _screened(self, batch: Leaving, resumed: Sequence[Entry[Scheduled]]) -> tuple[Screened, list[Entry[Scheduled]]]:
        """What leaves, and what has to wait for its target."""
        if resumed:
            batch = replace(batch, late=[*resumed, *batch.late])
        screened = screen(batch, self.rules, self.directory, self.read, self.decide, compresses=self.compresses)
        expired = self.expiry.refused(screened.released, self.now_ms())
        if expired:
            screened = screened.without(expired)
        held = self.gate.hold(screened.released, frozenset(offset for _, offset, _ in resumed))
        if held:
            screened = screened.holding(held)
        return screened, held

    def _write(self, screened: Screened, progress: Progress, chores: Chores) -> dict[int, int]:
        writer = self.writer
        writer.begin()
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

    def _without_refused(
        self, screened: Screened, truncated: set[int], cause: KafkaException
    ) -> tuple[Screened, list[Entry[Scheduled]]]:
        """The same without what is refused, and without what is set aside because there was no time to find out."""
        by_target = refused_by_target(screened.released, self.rules, self.directory, compresses=self.compresses)
        if by_target:
            return screened.without(by_target), []
        self.gate.refused()
        findings = self._findings(screened)
        for topic, most in findings.crowded.items():
            self.crowded[topic] = min(most, self.crowded.get(topic, most))
        self.tells_which |= findings.tells_which
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
        screened = replace(screened, rejected=rejected).without(refusals)
        return self._set_aside(screened, findings)

    def _findings(self, screened: Screened) -> Findings:
        suspects, by_size = self._suspects(screened), not self.compresses
        find = partial(find_refused, self.writer.producer, by_size=by_size)
        findings = find(suspects, tells_which=self.tells_which, within_s=SEARCH_S)
        aside = _aside(screened, findings)
        if self.writer.rejected_topic in findings.doubted or not self.gate.has_room_for(aside):
            # What is rejected has to leave now, and so has what there is no room for.
            return find(suspects, tells_which=findings.tells_which)
        return findings

    def _set_aside(self, screened: Screened, findings: Findings) -> tuple[Screened, list[Entry[Scheduled]]]:
        aside = _aside(screened, findings)
        if not aside:
            return screened, []
        self.gate.set_aside(aside, findings.doubted)
        structlog.get_logger().warning(
            "records_set_aside",
            topic=self.rules.topic,
            targets=sorted(findings.doubted),
            count=len(aside),
            why="a broker refuses some of them, and does not tell which: they are tried a few at a time",
        )
        return screened.holding(aside), aside

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


def _aside(screened: Screened, findings: Findings) -> list[Entry[Scheduled]]:
    """What a target that has refused something may refuse, too; what is undecided of others is written."""
    names = {each.name for each in findings.undecided if not findings.doubted.isdisjoint(each.route)}
    return [entry for entry in screened.released if entry[1] in names]


def commit(producer: Producer) -> None:
    """Commit the open transaction; a commit that timed out is resumed by calling it again."""
    resumed(producer.commit_transaction)
