"""Ending, at every take-over, what transactions of this partition the brokers have left open (KAFKA-20734).

Between fencing and the first commit nobody else writes for the partition, and everything its coordinator knew of is
settled; what is open even so, nobody will end but us. What outcome it has is decided by :mod:`index.orphans`; here is
how it gets that. Each step may be the last one of this process, and the next owner begins at the first one again:

* *Aborted*: a transaction that writes to all these partitions, and is aborted, ends them.
* *Committed, on a target*: committing another one would do, but not safely: one that is fenced half way aborts them
  both. So the hidden records are copied to the state (:mod:`snapshots.owed`), then they are aborted, then the copies
  are written to where they belong, with their tombstones. So is what was appended to the delay partition, and notes of
  where it lies (:mod:`index.transit`) follow it to its new offset.
* *Committed, on the state*: the same, but the copies cannot come from the same producer, whose next marker would end
  the orphan, too: they are written by a second one, that nobody else uses.

When nothing is wrong, all this costs two requests to each broker. Under load the transactions of other partitions are
open on a target nearly always; a look ends when all that was written before it began is settled.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from index.errors import NotYetError
from index.orphans import NOTHING_WRITTEN, Done, Outcome, of_records
from index.record import Record
from sidecar import failpoints
from sidecar.config.model import Config
from sidecar.context import PartitionContext
from sidecar.healing import in_front as in_front_of
from sidecar.healing.evidence import Evidence, folded, is_copied
from sidecar.healing.hidden import ENDED_WITHIN_S, Ends, Found, ends_of, read_hidden, still_open, wait_until_ended
from sidecar.healing.payment import Payment
from sidecar.healing.short_transactions import SECOND_TOUCH_KEY, TOUCH_KEY, ShortTransactions
from sidecar.kafka import clients
from sidecar.kafka.admin import Place
from sidecar.kafka.compacted import read_settled
from sidecar.kafka.errors import error_of
from sidecar.kafka.transactions import fence
from sidecar.release.target_directory import Directory
from sidecar.topics.check_brokers import too_long_remedy
from snapshots.owed import OWED_PREFIX, Owed, encode_owed
from snapshots.state import StoredState, fold_state

MARKERS_WITHIN_S: Final = 0.5
"""Markers that are on their way are there by then; looking longer at what is none of ours would only hold up."""

SKEW_MS: Final = 60_000
"""By which the clocks of a broker and a router may differ."""


class Healing:
    """Of one take-over; ``producer`` is fenced."""

    def __init__(
        self,
        context: PartitionContext,
        config: Config,
        directory: Directory,
        admin: AdminClient,
        producer: Producer,
    ) -> None:
        topic, partition = context.topic, context.partition
        self._config = config
        self._metrics = context.metrics
        self._topic = topic
        self._partition = partition
        self._admin = admin
        self._source = f"{topic.name}/{partition}/"
        self._timeout_s = config.router.transaction_timeout_ms / 1_000
        self._main = ShortTransactions(producer, self._source, self._timeout_s)
        self._second: ShortTransactions | None = None
        self._state: Place = (topic.state, partition)
        self._evidence = Evidence(config, directory, topic, partition, admin)
        self._log = context.log

    def heal_own(self) -> None:
        """End what is open on the router's own topics; NotYetError where its outcome cannot be known."""
        snapshots, backfill = (self._topic.snapshots, self._partition), (self._topic.backfill, self._partition)
        found = self._open([self._state, snapshots, backfill], MARKERS_WITHIN_S)
        if self._state in found:
            self._heal_state(found[self._state])
        if snapshots in found:
            self._main.write([(snapshots, Record(TOUCH_KEY, None, (), 0))])
        if backfill in found:
            self._main.end_as_aborted([backfill])

    def pay(self, owed: Collection[Owed], stored: StoredState | None) -> None:
        """Write owed records to where they belong; those of the state first, and alone."""
        payment = Payment(owed, stored, self._state, (self._topic.name, self._partition))
        places = {each.place for each in payment.again} - {self._state}
        gone = places - ends_of(self._admin, places).keys()
        self._end_on_targets(payment.first_offsets(places - gone))
        failpoints.passing("heal.ended")
        again = [each for each in payment.again if each.place not in gone]

        def in_state(offsets: Sequence[int]) -> list[tuple[Place, Record]]:
            return [(self._state, record) for record in payment.in_state(again, offsets)]

        self._main.write([(each.place, each.record) for each in again], in_state)
        failpoints.passing("heal.paid")
        of_state = bool(payment.of_state)
        self._log.warning("orphan_written_again", records=len(again), gone=sorted(gone), of_state=of_state)
        self._open([self._state], ENDED_WITHIN_S)

    def heal_targets(self, origin: StoredState) -> bool:
        """End what is open where others write, too; True where that left something to be paid.

        NotYetError where an outcome cannot be known.
        """
        waiting = self._open(self._evidence.targets(origin), MARKERS_WITHIN_S)
        done = Done(origin.progress, origin.buckets, frozenset(entry.offset for entry in origin.held))
        found = {place: self._found(origin, place, ends) for place, ends in waiting.items()}
        outcomes = {place: self._outcome(done, origin, place, each) for place, each in found.items() if each}
        self._abort_on_targets([place for place, each in outcomes.items() if each is Outcome.ABORTED], found)
        others = {place: waiting[place] for place, each in outcomes.items() if each is not Outcome.ABORTED}
        # It may be open behind somebody else's, and the main producer's records behind it do not tell.
        self._end_of_second([at for at in others if any(each.is_of_second for each in found[at])])
        in_front, behind = in_front_of.split(self._admin, others, found)
        in_front, hidden = self._replicated(in_front, found)
        behind += hidden
        committed = [self._seen_through(done, origin, place) for place in in_front]
        if not any(committed):
            if behind:
                raise in_front_of.wait_for_others(behind[0], found[behind[0]])
            return False
        # What lies behind others is looked at again once this is paid: they may be waiting for this to end.
        owed = [each for some in committed for each in some]
        self._main.write(self._encoded(owed))
        self._count(Outcome.COMMITTED, [(each.topic, each.partition, each.offset) for each in owed])
        failpoints.passing("heal.copied")
        self._open([self._state], ENDED_WITHIN_S)
        return True

    def _heal_state(self, ends: Ends) -> None:
        hidden = list(read_hidden(self._config, self._state, ends.settled, ends.written))
        settled = read_settled(self._config, *self._state, self._admin)
        stored = fold_state((record.key, record.value) for record in settled)
        number = stored.progress.number if stored else -1
        latest = {record.key: (offset, record) for offset, record, _ in hidden if record.key != TOUCH_KEY}
        copied = OWED_PREFIX + f"{self._topic.state}/".encode()
        tail = [each for key, each in latest.items() if key is not None and not key.startswith(copied)]
        log_has = ""
        if is_copied(hidden, copied, number):
            outcome = Outcome.COMMITTED
        elif all(record.key and record.key.startswith(OWED_PREFIX) and record.value for _, record in tail):
            # It only copied what is still where it was.
            outcome = Outcome.ABORTED
        else:
            with_it = [(key, record.value) for key, (_, record) in latest.items()]
            since_ms = min(record.timestamp_ms for _, record in tail) - int(self._timeout_s * 1_000) - SKEW_MS
            # What it wrote again had left before, so seeing it says nothing about this transaction.
            wrote_again = any(key and key.startswith(OWED_PREFIX) and value is None for key, value in with_it)
            then = None if wrote_again else folded(settled, with_it)
            if stored is not None and then is not None:
                self._end_of_second(self._evidence.hidden_by_second(stored))
            outcome, log_has = self._evidence.of_state(stored, then, since_ms)
        if outcome is Outcome.UNDECIDED:
            raise NotYetError(
                f"an open transaction hides the end of {self._state[0]}/{self._partition} from {ends.settled} on,"
                " and whether it was committed is not known: the coordinator's log may not be read or does not tell"
                f" ({log_has}); see OPERATIONS, 'A transaction that nobody ends'"
            )
        if outcome is Outcome.COMMITTED:
            owed = [Owed(*self._state, offset, record, number) for offset, record in tail]
            self._by_second().write(self._encoded(owed))
            failpoints.passing("heal.state_copied")
        self._end_on_state()
        self._count(outcome, [(*self._state, offset) for offset, _ in tail])
        failpoints.passing("heal.state_ended")

    def _replicated(self, in_front: list[Place], found: dict[Place, list[Found]]) -> tuple[list[Place], list[Place]]:
        """Those of them where ours is open on all replicas in sync, and those where another's hides whether it is."""
        if not in_front:
            return [], []
        before, second = ends_of(self._admin, in_front), self._by_second()
        # What it has left open itself hides what may well be committed, and is ended when it begins the next one.
        second.end_as_aborted(in_front)
        # The marker may be written and not replicated, which looks the same: once the replicas in sync have what was
        # written behind it, they have the marker.
        with second.standing_in(in_front):
            now = ends_of(self._admin, in_front)
        for topic, partition in [at for at in before if at in now and before[at].leader_epoch != now[at].leader_epoch]:
            raise NotYetError(f"{topic}/{partition} has another leader than when what is open there was looked at")
        left = {place: ends for place, ends in now.items() if ends.settled <= found[place][-1].offset}
        first = [place for place, ends in left.items() if ends.settled in {each.offset for each in found[place]}]
        return first, [place for place in left if place not in first]

    def _seen_through(self, done: Done, origin: StoredState, place: Place) -> list[Owed]:
        """What a committed transaction of ours that is the first open one hides; NotYetError when it is not that."""
        (ends,) = ends_of(self._admin, [place]).values()
        found = self._found(origin, place, ends)
        outcome = self._outcome(done, origin, place, found)
        written = [each for each in found if each.source_offset != NOTHING_WRITTEN]
        if outcome is Outcome.UNDECIDED:
            offsets = f"{place[0]}/{place[1]} at offsets {written[0].offset} to {written[-1].offset}"
            sources = ", ".join(f"{self._source}{each.source_offset}" for each in written[:5])
            raise NotYetError(
                f"an open transaction of this partition on {offsets} cannot be told to be committed or aborted: some of"
                f" its records have left by the state and some have not, or it is not known ({sources}); see"
                " OPERATIONS, 'A transaction that nobody ends'"
            )
        if outcome is Outcome.ABORTED:
            self._abort_on_targets([place], {place: found})
            return []
        return [Owed(*place, each.offset, each.record) for each in written]

    def _outcome(self, done: Done, origin: StoredState, place: Place, found: list[Found]) -> Outcome:
        return of_records(done, [self._evidence.hidden(done, origin, place, each) for each in found])

    def _abort_on_targets(self, places: list[Place], found: dict[Place, list[Found]]) -> None:
        if not places:
            return
        self._main.end_as_aborted(places)
        self._end_of_second([place for place in places if any(each.is_of_second for each in found[place])])
        self._open(places, MARKERS_WITHIN_S)
        written = [(*place, each.offset) for place in places for each in found[place]]
        self._count(Outcome.ABORTED, written)

    def _end_on_state(self) -> None:
        """End what we have open there, and see that it is ended; NotYetError when it is not."""
        self._main.end_as_aborted([self._state])
        written = ends_of(self._admin, [self._state])[self._state].written
        wait_until_ended(self._admin, self._state, lambda now: now.settled >= written)

    def _end_on_targets(self, copied: dict[Place, int]) -> None:
        """The same where others write, too; with the first offset of what was copied, which nothing was in front of.

        Others that lie behind it may wait for what we have elsewhere, so nobody waits for those to end.
        """
        if not copied:
            return
        before = ends_of(self._admin, copied)
        self._main.end_as_aborted(copied)
        # A producer gets to begin another transaction once the markers of the one before it are written.
        self._end_on_state()
        for place, then in ends_of(self._admin, copied).items():
            leader_epoch = before[place].leader_epoch

            def is_ended(now: Ends, place: Place = place, then: Ends = then, epoch: int | None = leader_epoch) -> bool:
                # Markers are only lost while a partition has no leader; those of another producer id end nothing.
                same_leader = epoch is not None and epoch == now.leader_epoch
                return now.settled >= then.written or (same_leader and now.settled > copied[place])

            wait_until_ended(self._admin, place, is_ended)

    def _open(self, places: Iterable[Place], within_s: float) -> dict[Place, Ends]:
        return still_open(self._admin, places, within_s)

    def _found(self, origin: StoredState, place: Place, ends: Ends) -> list[Found]:
        try:
            return self._evidence.found(origin, place, ends)
        except KafkaException as exception:
            if error_of(exception).code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
        # As it was before targets were read at all: it may be anybody's, and without the right nobody can tell.
        self._log.warning(
            "open_transaction_not_seen",
            target=f"{place[0]}/{place[1]}",
            why="the router may not read it, and so not end one of its own that a broker has lost",
            remedy="grant Read; delay-router check --acls prints the command",
        )
        return []

    def _encoded(self, owed: Iterable[Owed]) -> list[tuple[Place, Record]]:
        return [(self._state, Record(key, value, (), 0)) for each in owed for key, value in encode_owed(each)]

    def _by_second(self) -> ShortTransactions:
        if self._second is None:
            producer = clients.healer(self._config, self._topic.name, self._partition)
            fence(producer, lambda: False, too_long_remedy())
            self._second = ShortTransactions(producer, self._source, self._timeout_s, SECOND_TOUCH_KEY)
        return self._second

    def _end_of_second(self, places: list[Place]) -> None:
        """End what the second producer may have left open there, which is never anything to be seen."""
        if places:
            self._by_second().end_as_aborted(places)

    def _count(self, outcome: Outcome, written: Collection[tuple[str, int, int]]) -> None:
        if not written:
            return
        self._metrics.orphans.labels(self._topic.name, outcome.value).inc()
        first, last = min(written), max(written)
        self._log.warning(
            "orphan_found",
            outcome=outcome.value,
            records=len(written),
            first=f"{first[0]}/{first[1]}/{first[2]}",
            last=f"{last[0]}/{last[1]}/{last[2]}",
        )
