"""Upkeep, a few times a second and never for long: trims, counts entries, looks for records that may be lost.

Nothing here decides about releases. Answers of the cluster are read when they have arrived.
"""

from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass

from index.buckets.retention import delay_topic_needed_from
from index.errors import ClusterError, forget_frames
from index.partition.survey import Survey, survey
from sidecar.config.retention import Retention
from sidecar.engine.buckets.hidden_end import HiddenEnd
from sidecar.engine.buckets.trimming import Trimming
from sidecar.engine.context import PartitionContext
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.packed_run import routes_in
from sidecar.engine.ports import Pool
from sidecar.engine.release.gate import Gate
from sidecar.engine.release.transaction import Request

COUNT_FOR_S = 0.002
"""Longest time that one turn counts before the release continues."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The part of the delay topic that must be kept; ``since_ms`` is the timestamp of the first record needed.

    It is None when the timestamp is not known yet, or when the topic holds no record that is still needed.
    """

    from_offset: int
    since_ms: int | None


class Upkeep:
    """Belongs to one owned partition; used by its worker only."""

    def __init__(
        self,
        context: PartitionContext,
        ledger: PartitionLedger,
        trimming: Trimming,
        pool: Pool,
        retention: Retention,
        gate: Gate,
        hidden: HiddenEnd,
    ) -> None:
        self.retention = retention
        self.hidden = hidden
        self.survey = Survey()
        self._ledger = ledger
        self._gate = gate
        self._trimming = trimming
        self._pool = pool
        self._place = context.place
        self._limits = context.limits
        self._counting: Generator[None, None, Survey] | None = None
        self._count_next_s = 0.0
        # The first look comes sooner where the end of the log is reached: until then the records are being read and
        # unpacked anyway.
        self._look_next_s = context.clock.running_s() + context.limits.look_every_s
        self._has_looked = False
        self._looking: Future[int | None] | None = None
        self._looked_from = 0
        self._must_be_there = False
        self._since: tuple[int, int | None] = (0, None)
        self._told_gone = False
        self._clock = context.clock
        self._log = context.log

    def turn(self, *, lag: int, being_read: tuple[int, ...]) -> None:
        """Do one step of each task; ``lag`` is the number of offsets of the delay topic that have not been indexed."""
        now_s, now_ms = self._clock.running_s(), self._clock.now_ms()
        ledger = self._ledger
        self._trimming.turn(now_s, ledger.committed, list(ledger.parts.buckets.values()), being_read)
        self._count(now_s, now_ms)
        self._look(now_s, at_end=not lag)
        self.hidden.turn(now_s, ledger.indexed_to, lag)

    @property
    def wants_commit(self) -> bool:
        """True while trimming waits for a transaction."""
        return self._trimming.wants_commit

    def request(self) -> Request | None:
        """Return the request of trimming for the next transaction; None most of the time."""
        return self._trimming.key_copy.request()

    def needs(self) -> Needs:
        """Return the part of the delay topic that must be kept, according to the committed progress."""
        from_offset = delay_topic_needed_from(self._ledger.committed, self._ledger.parts.buckets.values())
        looked_from, since_ms = self._since
        # The timestamp of an offset that was needed a while ago is still a fair and safe answer, unless nothing that
        # has been indexed since is needed any more.
        is_fair = looked_from == from_offset or looked_from < from_offset < self._ledger.indexed_to
        return Needs(from_offset, since_ms if is_fair else None)

    def _count(self, now_s: float, now_ms: int) -> None:
        if self._counting is None:
            if now_s < self._count_next_s:
                return
            self._count_next_s = now_s + self._limits.count_every_s
            parts, watermark = self._ledger.parts, self._ledger.committed.watermark
            self._counting = survey(parts, watermark, now_ms, routes_in, self._gate.waiting())
        try:
            while self._clock.running_s() < now_s + COUNT_FOR_S:
                next(self._counting)
        except StopIteration as finished:
            self.survey = finished.value
            self._counting = None

    def _look(self, now_s: float, *, at_end: bool) -> None:
        if self._looking is not None and self._looking.done():
            self._take_in(self._looking)
            self._looking = None
        is_first = at_end and not self._has_looked
        if self._looking is not None or not (is_first or now_s >= self._look_next_s):
            return
        self._has_looked = True
        self._look_next_s = now_s + self._limits.look_every_s
        needed_from = self.needs().from_offset
        if at_end and needed_from >= self._ledger.indexed_to:
            self._since = needed_from, None
            return
        self._looked_from = needed_from
        # The log may have no record at C yet; a record before C was there when it was indexed.
        self._must_be_there = needed_from < self._ledger.committed.cursor
        self._looking = self._pool.look(lambda reader: reader.first_timestamp_ms(*self._place, needed_from))

    def _take_in(self, looking: "Future[int | None]") -> None:
        try:
            since_ms = looking.result()
        except ClusterError as error:
            # The timestamp only informs people, and the next look asks again.
            forget_frames(error)
            return
        self._since = self._looked_from, since_ms
        gone = since_ms is None and self._must_be_there
        if gone and not self._told_gone:
            topic, _ = self._place
            self._log.error(
                "needed_records_gone",
                needed_from=self._looked_from,
                remedy=f"retention or somebody removed records of {topic} that are still pending; they are counted as"
                f" lost when they are due. Raise its retention above the longest delay, or use placement inline",
            )
        self._told_gone = gone
