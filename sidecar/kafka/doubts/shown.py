"""Shows an open transaction for ``delay-router end-transaction``, so that an operator can compare and decide."""

from dataclasses import dataclass

from sidecar.engine.ports import Place
from snapshots.state.ending import Ending


@dataclass(frozen=True, slots=True)
class Shown:
    """The open transaction of a place, and the facts that the router and the coordinator know of it.

    ``left`` and ``pending`` count the hidden records of the delay partition that have left by its state, and the ones
    that have not. ``log_says`` is the outcome of the last transaction of the delay partition that wrote to the place.
    """

    place: Place
    from_offset: int
    to_offset: int
    records: int
    left: int
    pending: int
    log_says: str
    resumed: Ending | None

    @property
    def is_open(self) -> bool:
        """True when a transaction is open there, or when the end of one was begun and not finished."""
        return self.resumed is not None or self.from_offset < self.to_offset

    @property
    def by_state(self) -> str:
        """The outcome by the state: ``aborted``, or empty where the state does not tell.

        A record that has left is no proof of a commit. After an abort, while the place is in doubt, a record without a
        key leaves to another partition, and a record may expire or be cancelled.
        """
        return "aborted" if self.pending and not self.left else ""

    def as_json(self) -> dict[str, object]:
        """Return the facts in the form that a script reads."""
        topic, partition = self.place
        return {
            "topic": topic,
            "partition": partition,
            "open": self.is_open,
            "from_offset": self.from_offset,
            "to_offset": self.to_offset,
            "records": self.records,
            "by_state": self.by_state,
            "by_coordinator": self.log_says,
        }

    def lines(self, delay_partition: str, transactional_id: str, bootstrap: str) -> list[str]:
        """Return the lines for a person: the open transaction, how to find its owner, and the command that ends it."""
        topic, partition = self.place
        if not self.is_open:
            return [f"{topic}/{partition}: no transaction is open"]
        if self.resumed is not None:
            return [f"{topic}/{partition}: begun and not finished; go on with: {command_of(self.resumed)}"]
        tool = f"kafka-transactions.sh --bootstrap-server {bootstrap}"
        outcome = self.by_state or "OUTCOME"
        given = f"--producer-id ID --start-offset {self.from_offset} --outcome {outcome}"
        end = f"delay-router end-transaction {delay_partition} {topic}/{partition} {given}"
        return f"""\
{topic}/{partition}: a transaction is open from offset {self.from_offset} on; the log ends at {self.to_offset}
records of {delay_partition} behind it: {self.records}; by its state {self.left} have left and {self.pending} have not
(if none has left, it was aborted; a record that has left may have gone to another partition since)
the coordinator's log says of the last transaction there: {self.log_says}
1. The producer that has it open, and its first offset (CurrentTransactionStartOffset):
   {tool} describe-producers --topic {topic} --partition {partition}
2. The producer id of {delay_partition}:
   {tool} describe --transactional-id {transactional_id}
   and of each lane, which several delay partitions share (GROUP.lane.PROCESS.NUMBER): {tool} list
3. Where the two ids are the same, and the first offset is {self.from_offset}:
   {end}
   for a committed one with: --batches FILE, the output of kafka-dump-log.sh --files for its log segments, or
   --by-headers where no application forwards released records to {topic}
   for that of a lane with: --transactional-id ID --of TOPIC/PARTITION (each delay partition with records in it)
   Else it is somebody else's, and only its owner knows the outcome; to abort it:
   {tool} abort --topic {topic} --partition {partition} --start-offset {self.from_offset}""".splitlines()


def command_of(ending: Ending) -> str:
    """Return the arguments with which the command was begun."""
    outcome = "committed" if ending.committed else "aborted"
    return (
        f"... {ending.topic}/{ending.partition} --producer-id {ending.producer_id} --start-offset {ending.from_offset}"
        f" --outcome {outcome}"
    )
