"""``delay-router end-transaction``: ends a transaction that the brokers have forgotten, with the outcome it had.

An operator compares producer ids first: ``kafka-transactions.sh describe-producers`` names the producer that has the
transaction open, and its first offset; ``kafka-transactions.sh describe`` names the producer id of a delay partition.
The command ends only a transaction of the producer id of the delay partition or of its lane, by a marker of that
producer, which ends no transaction of another producer. It ends the transaction only where it is the first open one, so
that no record in front of it is taken for one of it. A transaction of a lane has records of several delay partitions;
the operator names them, since their other transactions may lie behind it.

::

    1 fence       become the only writer of the delay partition; refuse another producer id or another first offset
    2 note        write `ending` to the state, by another producer: its marker leaves the open transaction open.
                  From here on routers refuse the partition, and the command, run again, goes on at 3.
                  Fence all writers of the state again, which may have taken over before
    3 abort       write to the place and abort: the marker ends the forgotten transaction there as well
    4 write again one transaction, of a new epoch: the committed records of the forgotten one, a tombstone for the note

Each step may be the last one of this process. The lane is fenced once more for step 3, since a router takes it back for
other partitions within seconds. In step 2 each lane is fenced that the state names by then: a router may have taken the
delay partition into another one before it found the note. An aborted transaction needs no records in step 4. A
committed one is aborted, too, and written again: a commit in step 3 that is interrupted would abort it for good. Its
records get other offsets; notes of records in transit (:mod:`index.named.transit`) follow them. A record in transit
that a control has cancelled since is not written again: the mask names its former offset.

Other records behind the open transaction may be copies: applications forward released records with their headers. So an
operator tells which records are of the transaction: by the batches of the producer id (:mod:`.batches`), or by the
statement that no application forwards records to the place. Then each record counts that names the delay partition and
that nobody sees after step 3, since the transaction is aborted by then. The state and the snapshots have records of the
router alone.

Segments cannot be written again, since manifests name their offsets. On a snapshots partition both outcomes are right
for the router as long as the manifest that names a segment is not committed, so step 3 commits there.
"""

import time
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from index.errors import ConfigError, DelayRouterError
from index.named.transit import relocated
from index.protocol.record import Record
from sidecar import failpoints
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.engine.ports import Place, Stored
from sidecar.engine.release.aside import PlaceEnds
from sidecar.kafka.client import clients
from sidecar.kafka.client.errors import Verdict, classify, error_of
from sidecar.kafka.doubts.batches import Batches
from sidecar.kafka.doubts.coordinator_log import outcome_of_last
from sidecar.kafka.doubts.hidden import Hidden, has_answered, has_left, read_hidden, read_visible, sources_of
from sidecar.kafka.doubts.look import DoubtFinder
from sidecar.kafka.doubts.producer_id import ProducerId
from sidecar.kafka.doubts.shown import Shown, command_of
from sidecar.kafka.reading.scan import read_settled
from sidecar.kafka.writing.lanes import group_of
from sidecar.kafka.writing.transactions import abort, commit, naming_right, write_all
from snapshots.state.ending import ENDING_KEY, Ending, encode_ending
from snapshots.state.lane import LaneName
from snapshots.state.state import StoredState, fold_state
from snapshots.state.transit import encode_transit

ATTEMPTS: Final = 5
"""Most attempts: until it finds the note, a running router takes its partition back and fences the command."""

FENCE_WITHIN_S: Final = 60.0
ENDED_WITHIN_S: Final = 10.0
_PAUSE_S: Final = 0.05

EVERY_OFFSET: Final = range(1 << 63)

TOUCH_KEY: Final = b"delay-router: ends a transaction"
"""Key of the record that is aborted in step 3: a compacted topic takes none without."""


class EndTransaction:
    """Ends a transaction of one delay partition on one place, a partition of any topic that the router writes to.

    ``transactional_id`` is that of a lane, if a lane has the transaction open; ``others`` are then the other delay
    partitions with records in it. ``batches`` are the batches of the place; None: no application forwards records to
    the place. Raise ConfigError if the place is the own one of another delay partition: the state of that one tells
    which records it has to write again.
    """

    def __init__(
        self,
        config: Config,
        admin: AdminClient,
        topic: DelayTopicConfig,
        partition: int,
        place: Place,
        transactional_id: str | None = None,
        others: Iterable[Place] = (),
        batches: Batches | None = None,
    ) -> None:
        owner = config.owner_of(place)
        if owner not in (None, (topic.name, partition)):
            named, where = "{}/{}".format(*owner), "{}/{}".format(*place)
            raise ConfigError(f"{where} is of {named}: run delay-router end-transaction {named} {where}")
        self._config = config
        self._admin = admin
        self._topic = topic
        self._partition = partition
        self._place = place
        self._state: Place = (topic.state, partition)
        self._cluster = DoubtFinder(config, topic, partition, admin)
        self._own_id = clients.transactional_id(config, topic.name, partition)
        self.transactional_id = transactional_id or self._own_id
        self._sources = {(topic.name, partition), *others}
        self._batches = batches

    @property
    def has_foreign_records(self) -> bool:
        """Says that other producers may write to the place, so that its batches are needed."""
        topic = self._topic
        return self._place[0] not in (topic.state, topic.snapshots, topic.backfill)

    def show(self) -> Shown:
        """Look at the place, and change nothing; raise DelayRouterError when the place or a state gives no answer."""
        ends, stored = self._ends(), self._stored()
        self._wait_for_other_states()
        resumed = stored.ending if stored is not None else None
        hidden = self._hidden(range(ends.settled, ends.written))
        left = self._have_left(stored, hidden)
        log = outcome_of_last(self._config, self._admin, self.transactional_id, self._place)
        return Shown(
            self._place,
            ends.settled,
            ends.written,
            len(hidden),
            sum(left) if self._state_tells else 0,
            len(left) - sum(left) if self._state_tells else 0,
            log.found if log.committed is None else ("committed" if log.committed else "aborted"),
            resumed if resumed is not None and (resumed.topic, resumed.partition) == self._place else None,
        )

    def end(self, producer_id: int, start_offset: int, *, committed: bool) -> int:
        """End the transaction with this outcome; return how many records were written again.

        Raise DelayRouterError when the first open transaction of the place has another producer id or offset.
        """
        for _ in range(ATTEMPTS):
            try:
                return self._end(producer_id, start_offset, committed=committed)
            except KafkaException as exception:
                if classify(error_of(exception)) is not Verdict.FENCED:
                    raise
        raise DelayRouterError(
            f"{self._topic.name}/{self._partition}: a running router takes the partition back; stop it and try again"
        )

    def _end(self, producer_id: int, start_offset: int, *, committed: bool) -> int:
        if (stored := self._stored()) is not None and stored.ending is None:
            # Before the fence, which would interrupt all partitions of the other group's lane.
            self._refuse_others(stored)
        self._fence_writers()
        self._owner(producer_id)
        stored = self._stored()
        ending = stored.ending if stored is not None else None
        if committed and self._is_of_lane:
            self._refuse_unnamed(ending, producer_id)
            self._wait_for_other_states()
        if ending is None:
            ending = self._begun(producer_id, start_offset, committed=committed)
            self._note(encode_ending(ending))
            failpoints.passing("ending.noted")
        elif ending != (*self._place, start_offset, ending.to_offset, committed, producer_id):
            raise DelayRouterError(
                f"the command was begun otherwise; run it again as it was begun: {command_of(ending)}"
            )
        self._fence_writers()
        # A router has taken the lane back for its other partitions if the steps above took longer than a take-over.
        self._close(self._owner(producer_id), ending)
        failpoints.passing("ending.closed")
        return self._write_again(ending)

    @property
    def _is_of_lane(self) -> bool:
        return self.transactional_id != self._own_id

    def _fence_writers(self) -> None:
        """Fence every other writer of the state: own ids first, since an owner names its lane by such an id.

        Behind the note no router takes the partition over, so that no further writer follows. A group with a claim is
        from before the note, or has found the note since.
        """
        self._fencing(self._own_id)
        for group in self._others(self._stored()):
            other_id = clients.transactional_id(self._config, self._topic.name, self._partition, group=group)
            self._fencing(other_id, group=group)
        ended: LaneName | None = None
        while (stored := self._stored()) is not None and stored.lane not in (None, ended):
            ended = stored.lane
            self._fencing(ended.transactional_id, group=group_of(ended))

    def _owner(self, producer_id: int) -> Producer:
        """Fence the producer of the transaction, and return it; raise DelayRouterError if it has another id."""
        own = ProducerId()
        producer = self._fencing(self.transactional_id, own.note)
        if (told := own.wait(producer)) != producer_id:
            raise DelayRouterError(
                f"{self._topic.name}/{self._partition} has producer id {told}, not {producer_id}: the transaction"
                f" on {self._place[0]}/{self._place[1]} is not of this partition. Nothing was changed. To abort it for"
                " its owner: kafka-transactions.sh abort"
            )
        return producer

    def _fencing(
        self, transactional_id: str, on_statistics: Callable[[str], None] = lambda _: None, group: str | None = None
    ) -> Producer:
        """Return a producer that has fenced an id of the own group, or of ``group``."""
        producer = clients.ending_producer(self._config, transactional_id, on_statistics)
        group = group or self._config.router.group_id
        with naming_right(self._config, (self._topic.name, self._partition), transactional_id, group):
            producer.init_transactions(FENCE_WITHIN_S)
        return producer

    def _begun(self, producer_id: int, start_offset: int, *, committed: bool) -> Ending:
        ends, place = self._ends(), f"{self._place[0]}/{self._place[1]}"
        self._refuse_others(self._stored())
        if not ends.is_open:
            raise DelayRouterError(f"no transaction is open on {place}; nothing was changed")
        if ends.settled != start_offset:
            raise DelayRouterError(
                f"the first open transaction on {place} begins at offset {ends.settled}, not {start_offset}: end that"
                " one first, or wait for its end. Nothing was changed"
            )
        if committed and self._batches is not None:
            self._batches.offsets_of(producer_id, range(ends.settled, ends.written))
        if self.has_foreign_records:
            self._refuse_foreign(ends.settled)
        return Ending(*self._place, ends.settled, ends.written, committed, producer_id)

    def _refuse_others(self, stored: StoredState | None) -> None:
        if others := self._others(stored):
            raise DelayRouterError(
                f"routers of group {', '.join(others)}, not {self._config.router.group_id}, serve {self._topic.name}/"
                f"{self._partition}: run the command with that router.group_id. Nothing was changed"
            )

    def _refuse_foreign(self, offset: int) -> None:
        """Refuse a transaction whose first record is not of this partition.

        Step 3 would end the partition's own transaction behind it, with an outcome that it may not have had.
        """
        first = next(read_hidden(self._config, self._place, range(offset, offset + 1)), None)
        if first is not None and first.source not in self._sources:
            made_of = "/".join(map(str, first.source)) if first.source[0] else "no delay partition"
            raise DelayRouterError(
                f"offset {offset} of {self._place[0]}/{self._place[1]}, where the first open transaction begins, has a"
                f" record of {made_of}: the transaction is not of {self._topic.name}/{self._partition}, or it is of a"
                " lane, and --of does not name that delay partition. Compare with describe-producers again. Nothing was"
                " changed"
            )

    def _note(self, value: bytes | None) -> None:
        """Write the note by a producer whose markers leave the first producer's transaction open."""
        second = self._fencing(self._own_id if self._is_of_lane else f"{self._own_id}.ending")
        second.begin_transaction()
        write_all(second, [(self._state, Record(ENDING_KEY, value, (), 0))])
        commit(second)

    def _close(self, producer: Producer, ending: Ending) -> None:
        """Do step 3."""
        producer.begin_transaction()
        write_all(producer, [(self._place, Record(TOUCH_KEY, None, (), 0))])
        if self._place[0] == self._topic.snapshots:
            commit(producer)
        else:
            abort(producer)
        until_s = time.monotonic() + ENDED_WITHIN_S
        while self._ends().settled <= ending.from_offset:
            if time.monotonic() > until_s:
                self._note(None)
                raise DelayRouterError(
                    f"{self._place[0]}/{self._place[1]} is still open from offset {ending.from_offset} on: that"
                    f" transaction is not of producer id {ending.producer_id}. Compare with describe-producers again."
                    " No record was changed"
                )
            time.sleep(_PAUSE_S)
        if self._place == self._state:
            self._cluster.wait_for_state()

    def _write_again(self, ending: Ending) -> int:
        """Do step 4."""
        # The producer gets a new epoch: the client may have repeated the request that ended the transaction before.
        producer, stored = self._fencing(self._own_id), self._stored()
        again = self._owed(stored, ending) if ending.committed else []
        producer.begin_transaction()
        offsets = write_all(producer, [(self._place, each.record) for each in again])
        state: list[Record] = [Record(ENDING_KEY, None, (), 0)]
        if stored is not None and self._place[0] == self._topic.name:
            moved = {each.offset: at for each, at in zip(again, offsets, strict=True)}
            notes = relocated(stored.transit, moved).items()
            state += (Record(*encode_transit(lot, each), (), 0) for lot, each in notes)
        write_all(producer, [(self._state, each) for each in state])
        commit(producer)
        return len(again)

    def _owed(self, stored: StoredState | None, ending: Ending) -> list[Hidden]:
        if self._place[0] == self._topic.snapshots:
            return []
        hidden = self._hidden(range(ending.from_offset, ending.to_offset), self._own_offsets(ending))
        if stored is not None and self._place[0] == self._topic.name:
            return [each for each in hidden if each.offset not in stored.mask]
        if stored is None or not self._state_tells:
            return hidden
        return [each for each, left in zip(hidden, self._have_left(stored, hidden), strict=True) if left]

    def _own_offsets(self, ending: Ending) -> frozenset[int]:
        """Return the offsets of the transaction, and of records that name no delay partition."""
        within, (topic, partition) = range(ending.from_offset, ending.to_offset), self._place
        if self._batches is not None:
            return self._batches.offsets_of(ending.producer_id, within)
        if (settled := self._ends().settled) < within.stop:
            raise DelayRouterError(
                f"another transaction is open on {topic}/{partition} from offset {settled} on, and its records may be"
                f" copies: wait for its end, and run the command again, or give --batches: {command_of(ending)}"
            )
        return frozenset(within) - read_visible(self._config, self._place, within)

    def _have_left(self, stored: StoredState | None, hidden: Sequence[Hidden]) -> list[bool]:
        """Say of each hidden record whether its source has left, by the settled state of its delay partition."""
        states: dict[Place, StoredState | None] = {(self._topic.name, self._partition): stored}
        for name, partition in sources_of(hidden) - states.keys():
            topic = self._config.require_delay_topic(name, "")
            states[name, partition] = _folded(read_settled(self._config, topic.state, partition, self._admin))
        left = has_answered if self._place[0] == self._topic.receipts else has_left
        return [(state := states[each.source]) is not None and left(state, each) for each in hidden]

    def _wait_for_other_states(self) -> None:
        """Wait for the states of the other delay partitions, where they tell which records of the place have left.

        Raise NotYetError where one stays open: by its settled part, no record has left, as after an abort.
        """
        others = self._sources - {(self._topic.name, self._partition)} if self._state_tells else ()
        for name, partition in others:
            topic = self._config.require_delay_topic(name, "--of: ")
            DoubtFinder(self._config, topic, partition, self._admin).wait_for_state()

    def _others(self, stored: StoredState | None) -> list[str]:
        return [] if stored is None else sorted(stored.groups - {self._config.router.group_id})

    def _refuse_unnamed(self, ending: Ending | None, producer_id: int) -> None:
        """Refuse to go on if records of a delay partition that was not named lie behind the transaction of a lane."""
        ends = self._ends()
        within = range(ends.settled, ends.written) if ending is None else range(ending.from_offset, ending.to_offset)
        own = within if self._batches is None else self._batches.offsets_of(producer_id, within)
        delayed = {topic.name for topic in self._config.delay_topics}
        sources = sources_of(each for each in read_hidden(self._config, self._place, within) if each.offset in own)
        unnamed = sorted(place for place in sources - self._sources if place[0] in delayed)
        if unnamed and len(self._sources) == 1:
            names = ", ".join(f"{topic}/{partition}" for topic, partition in unnamed)
            raise DelayRouterError(
                f"records of {names} lie behind the open transaction, too, and would be lost if they belong to it. Name"
                " each delay partition whose records do, this one included: --of TOPIC/PARTITION. kafka-dump-log.sh"
                f" prints the producer id of each batch of {self._place[0]}/{self._place[1]}. Nothing was changed"
            )

    @property
    def _state_tells(self) -> bool:
        """True when the state tells which records of the place have left.

        Of the router's own topics it tells this of receipts alone: they are written as soon as C passes their source.
        """
        topic = self._topic
        return self._place[0] not in (topic.name, topic.state, topic.snapshots, topic.backfill, topic.rejected)

    def _ends(self) -> PlaceEnds:
        return self._cluster.ends_of(self._place)

    def _stored(self) -> StoredState | None:
        """Return the state up to its first open transaction; the earlier state where the state topic itself is open."""
        if self._place != self._state:
            self._cluster.wait_for_state()
        return _folded(read_settled(self._config, *self._state, self._admin))

    def _hidden(self, within: range, own: Container[int] = EVERY_OFFSET) -> list[Hidden]:
        """Return the records of the delay partitions in a range: the first of each source, the last of each state key.

        ``own`` are the offsets that may belong to the transaction.
        """
        found: dict[object, Hidden] = {}
        for each in read_hidden(self._config, self._place, within):
            if each.offset not in own:
                continue
            if self._place == self._state:
                if each.record.key not in (TOUCH_KEY, ENDING_KEY):
                    found[each.record.key] = each._replace(source=(self._topic.name, self._partition))
            elif each.source in self._sources:
                found.setdefault((each.source, each.source_offset), each)
        return sorted(found.values(), key=lambda each: each.offset)


def _folded(records: Iterable[Stored]) -> StoredState | None:
    return fold_state((record.key, record.value) for record in records)
