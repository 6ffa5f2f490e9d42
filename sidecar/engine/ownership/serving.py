"""Serves one delay partition while its process has it: decides when to take over, and how to go on after each error.

An ownership is producer, index and open batch, which live and die together
(:mod:`sidecar.engine.ownership.owned_partition`). After any error but a clean verdict of the broker about a record they
are thrown away, and the partition is taken over again: the log decides the next step, and not the memory. ::

      ┌──► may it take over? ──no──► a pause ──┐
      │           │ yes                        │
      │    fence, take over                    │
      │           │             any error      │
      │        replay ──────────────────────► a pause
      │           │                            │
      │        rounds ──drained──► seal        │
      │           │                 │          │
      │       give back ◄───────────┘          │
      └───────────┴────────────────────────────┘

A worker that was fenced must not fence the new owner in turn: only the group says which member has the partition. So
the loop asks the group before each take-over but the first one: no other member can have a partition that was assigned
a moment ago.

====================  =============================================  ====================  =========================
end of an ownership   meaning                                        asks the group        pause before the next one
====================  =============================================  ====================  =========================
``take_over_again``   the facts about its topics hold no longer      yes                   none
``is_apart``          the partition holds up the others of its lane  yes                   none
``drained``           the operator stops the delay topic             yes, after the drain  until the drain ends
ConnectionLostError   a repeated request may arrive late             if its last commit    none
                                                                     was long ago
NotYetError           an obstacle will end by itself                 yes                   longer each time
ClusterError          an outcome is unknown, or it was fenced        yes                   longer each time
RefusedError          the partition must not start                   yes, before the       ``look_again_s``
                                                                     alarm, too
any other error       a defect of the router                         yes                   ``look_again_s``
``is_stopping``       the group gives the partition to another one   the loop ends
====================  =============================================  ====================  =========================

A refusal is no reason for an alarm if the group has given the partition away: a worker that was fenced unawares may
miss records that the new owner has removed.

The loop is a generator, so that it needs no thread: the worker of a process (:mod:`sidecar.process.host.worker`) waits
where the loop pauses, and the simulation lets other routers act there.
"""

from collections.abc import Generator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TypeAlias, TypeVar

from index.errors import ClusterError, ClusterTrouble, ConnectionLostError, NotYetError, RefusedError, forget_frames
from index.partition.transaction_size import TransactionSize
from sidecar import failpoints
from sidecar.config.retention import Retention
from sidecar.engine.context import PartitionContext
from sidecar.engine.ownership.lanes import Claims
from sidecar.engine.ownership.owned_partition import OwnedPartition, take_over
from sidecar.engine.ownership.ports import HostingProcess, ServedHost
from sidecar.engine.ownership.rounds import Rounds
from sidecar.engine.ownership.status import PartitionState, PartitionStatus, ToldStatus
from sidecar.logs.events import Trouble

T = TypeVar("T")
Steps: TypeAlias = Generator[float, None, T]
"""Steps of a loop: each ends with the pause before the next one, in seconds."""

GIVEN_AWAY = "the group has given it to another member"


class ServingLoop:
    """The loop of one delay partition; one thread goes through its steps, and any thread may ask it to begin anew.

    ``size`` and ``batch_records`` are as in ``Rounds``. A session with the group lasts for ``session_timeout_s``.
    ``brokers`` are the addresses that a person needs who ends a transaction.
    """

    def __init__(
        self,
        context: PartitionContext,
        process: HostingProcess,
        size: TransactionSize,
        batch_records: int,
        session_timeout_s: float,
        brokers: str,
    ) -> None:
        self._context = context
        self._limits = context.limits
        self._clock = context.clock
        self._process = process
        self._size = size
        self._batch_records = batch_records
        self._session_timeout_s = session_timeout_s
        self._brokers = brokers
        self._again = False
        self._claims = Claims(context)
        # No other member can have the partition if it was assigned a moment ago, or if this worker itself let it go.
        self._ours = True
        self._pause_s = self._limits.first_pause_s
        self._after_what = ""
        self.trouble = Trouble(context.log, context.clock.running_s)
        self.told = ToldStatus(context.clock, PartitionStatus(*context.place, PartitionState.FENCING))
        self.rounds: Rounds | None = None
        """The rounds of the present ownership; None without one."""
        self.topic_ids: Mapping[str, str] = {}
        """The ids of the topics of the partition, by name; empty until the partition is restored."""
        self.retention: Retention | None = None
        """The retention of the delay topic; None until it was looked at after the take-over."""

    def take_over_again(self) -> None:
        """Begin anew soon: the knowledge of the topics no longer holds."""
        self._again = True

    def steps(self) -> Steps[None]:
        """Serve until the process stops the loop: a step is a take-over, a round, or an ownership that has ended."""
        while not self._process.is_stopping():
            yield (yield from self._survive())
        self._report(PartitionState.STOPPED, "given back to the group")

    def _survive(self) -> Steps[float]:
        """Take a turn, and return the pause after it, or after the error that ended it."""
        try:
            with self._process.errors():
                return (yield from self._turn())
        except Exception as error:  # noqa: BLE001 - a defect of the router must not end the thread in silence
            pause_s = self._after(error)
            # A lane may keep the error, and the error would keep the ownership with all its records.
            forget_frames(error)
            return pause_s

    def _turn(self) -> Steps[float]:
        if self._process.is_drained():
            # A drain may last for long, and the group may give the partition away meanwhile.
            self._ours = False
            return self._pause(PartitionState.DRAINED, "drained by a policy", self._limits.drained_look_s)
        if not self._may_take_over():
            return self._pause(PartitionState.WAITING, GIVEN_AWAY, self._pause_s)
        self._ours = False
        self._ours = yield from self._own()
        return 0.0

    def _may_take_over(self) -> bool:
        return self._ours or self._process.still_ours()

    def _own(self) -> Steps[bool]:
        """Take over and serve; return whether to take over again at once, without asking the group.

        The parts of an ownership refer to each other in circles, and Python looks for circles seldom
        (:mod:`sidecar.process.garbage`). They are taken apart here. A client that stayed would keep its threads, its
        connections and one of the 1,024 thread-local keys that a process has.
        """
        began_s = self._clock.running_s()
        self._report(PartitionState.FENCING, self._after_what)
        with ExitStack() as closing:
            try:
                host = self._process.host()
                closing.callback(vars(host).clear)
                closing.callback(host.close)
                host.fence(self._process.is_stopping)
                self._report(PartitionState.RESTORING, self._after_what)
                self._again = False
                self.retention = None
                owned = take_over(host, self._claims)
                closing.callback(vars(owned).clear)
                closing.callback(owned.close)
                self.topic_ids = host.topic_ids
                self.rounds = Rounds(host.context, owned, self._size, self._batch_records, self.told.asking)
                closing.callback(setattr, self, "rounds", None)
                yield 0.0
                yield from self._serve(host, owned, self.rounds, began_s)
            except ConnectionLostError as error:
                self._renew(error)
                forget_frames(error)
                # A worker that has committed a moment ago was not fenced, and its session had not ended. Where a lane
                # has committed, a new owner may have fenced the own id already: it then takes over once more.
                return self._clock.running_s() - error.committed_s < self._session_timeout_s / 2
        return False

    def _serve(self, host: ServedHost, owned: OwnedPartition, rounds: Rounds, began_s: float) -> Steps[None]:
        yield from self._replay(owned, rounds)
        failpoints.passing("recovery.replayed")
        if not self._process.is_stopping():
            self._became_active(owned, self._clock.running_s() - began_s)
        yield from self._go_round(host, owned, rounds)
        if owned.settings.drained and not self._process.is_stopping():
            yield from self._drain(owned, rounds)
        owned.give_back()

    def _replay(self, owned: OwnedPartition, rounds: Rounds) -> Steps[None]:
        while owned.ledger.replaying and not self._process.is_stopping():
            rounds.replay()
            left = owned.ledger.committed.cursor - owned.ledger.indexed_to
            self._report(PartitionState.REPLAYING, f"{max(left, 0)} records to index again", owned)
            yield 0.0

    def _go_round(self, host: ServedHost, owned: OwnedPartition, rounds: Rounds) -> Steps[None]:
        report_s = 0.0
        while not self._is_over(host, owned):
            rounds.once()
            host.serve_client()
            now_s = self._clock.running_s()
            if now_s >= report_s:
                if self.retention is not None:
                    owned.use_retention(self.retention)
                owned.maintain()
                self._report_active(owned, now_s)
                report_s = now_s + self._limits.report_every_s
                self._pause_s, self._after_what = self._limits.first_pause_s, ""
            yield 0.0

    def _is_over(self, host: ServedHost, owned: OwnedPartition) -> bool:
        return self._process.is_stopping() or self._again or owned.settings.drained or host.is_apart

    def _drain(self, owned: OwnedPartition, rounds: Rounds) -> Steps[None]:
        """Seal the records in memory, so that the next owner finds them in buckets, for at most ``drain_within_s``."""
        owned.drain()
        deadline_s = self._clock.running_s() + self._limits.drain_within_s
        while not owned.is_drained and not self._process.is_stopping() and self._clock.running_s() < deadline_s:
            rounds.once()
            self._report(PartitionState.ACTIVE, "draining", owned)
            yield 0.0
        cursor = owned.ledger.committed.cursor
        self._context.log.info("partition_drained", sealed=owned.is_drained, cursor=cursor)

    def _became_active(self, owned: OwnedPartition, seconds: float) -> None:
        self._context.metrics.recovery.labels(self._context.name).observe(seconds)
        committed = owned.ledger.committed
        self._context.log.info(
            "partition_active",
            seconds=round(seconds, 3),
            cursor=committed.cursor,
            watermark=list(committed.watermark),
            pending=owned.ledger.pending,
        )
        self.trouble.is_over()

    def _renew(self, error: ConnectionLostError) -> None:
        # No pause follows: if connections are cut all the time, each take-over is worth a transaction.
        self._context.log.info("partition_renewed", why=str(error))
        self._context.metrics.renewals.labels(self._context.name).inc()
        self._pause_s = self._limits.first_pause_s

    def _after(self, error: Exception) -> float:
        """Report the error that has ended an ownership, and return the pause after it."""
        match error:
            case NotYetError():
                self.trouble.tell("partition_waits", str(error))
                return self._pause_longer(str(error))
            case RefusedError():
                return self._refuse(error)
            case ClusterError():
                return self._interrupted(error)
            case _:
                self.trouble.tell("partition_failed", repr(error), level="error", exc_info=True)
                return self._pause(PartitionState.WAITING, f"internal error: {error!r}", self._limits.look_again_s)

    def _interrupted(self, error: ClusterError) -> float:
        self.trouble.tell("partition_interrupted", error=str(error), code=error.code, verdict=error.verdict)
        self._context.metrics.transactions.labels(self._context.name, "abandoned").inc()
        if error.kind is not ClusterTrouble.UNANSWERED:
            self._process.doubt_topics()
        return self._pause_longer(f"{error.code}: {error}")

    def _refuse(self, error: RefusedError) -> float:
        try:
            ours = self._process.still_ours()
        except ClusterError:
            ours = True
        if not ours:
            return self._pause(PartitionState.WAITING, GIVEN_AWAY, self._pause_s)
        self._process.doubt_topics()
        self.trouble.tell("partition_refused", str(error), level="error")
        return self._pause(PartitionState.REFUSED, str(error), self._limits.look_again_s)

    def _pause_longer(self, why: str) -> float:
        pause_s = self._pause(PartitionState.WAITING, why, self._pause_s)
        self._pause_s = min(self._pause_s * 2, self._limits.longest_pause_s)
        return pause_s

    def _pause(self, state: PartitionState, why: str, seconds: float) -> float:
        # The next state may last, too, and end by the same error, so its report names the error.
        self._after_what = f"again, after: {why}"
        self._report(state, why)
        return seconds

    def _report_active(self, owned: OwnedPartition, now_s: float) -> None:
        if owned.settings.paused:
            self._report(PartitionState.PAUSED, owned.settings.why_paused, owned)
            return
        full = "" if owned.gate.room_records else "as many records wait for their targets as can be held"
        slow = full or self._process.why_slow(now_s) or owned.upkeep.hidden.why(now_s)
        doubts = owned.gate.aside.why(self._brokers)
        told = "; ".join(filter(None, (owned.settings.why_paused, doubts, slow)))
        self._report(PartitionState.ACTIVE, told, owned)

    def _report(self, state: PartitionState, why: str = "", owned: OwnedPartition | None = None) -> None:
        if owned is not None:
            self.told.tell(owned.status(state, why))
        elif state is PartitionState.DRAINED:
            # A drained partition does not move: the numbers of the last report still hold.
            self.told.tell(replace(self.told.last, state=state, why=why))
        else:
            self.told.tell(PartitionStatus(*self._context.place, state, why))
