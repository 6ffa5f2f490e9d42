"""Everything a worker owns of its partition between two take-overs; made and thrown away as a whole."""

from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import TopicPartition

from index.partition import PartitionIndex
from index.rules import Rules
from sidecar import admin as cluster
from sidecar import clients
from sidecar.budget import PayloadBudget
from sidecar.config import Config, DelayTopicConfig
from sidecar.intake import Indexed, Intake, PartitionLedger
from sidecar.metrics import Metrics
from sidecar.reader import OffsetReader
from sidecar.records import resident_bytes, scheduled_size
from sidecar.release import Released, Releaser, commit
from sidecar.screening import Leaving
from sidecar.takeover import Origin, fence, read_origin
from sidecar.targets import TargetDirectory
from sidecar.transaction import PartitionWriter

MAX_BATCH_BYTES = 64 * 1_048_576
"""Most payload in one transaction: at 100 MB/s it takes under a second, far below any transaction timeout."""

MAX_MESSAGE_BYTES = 16 * 1_048_576
"""Limit of the client; the broker's own limit, which is usually lower, decides what is refused."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the workers of a process have in common; each part is safe to use from any thread.

    ``still_ours`` asks the group whether this process is still assigned a partition, ``now_ns`` is the wall clock.
    """

    config: Config
    directory: TargetDirectory
    budget: PayloadBudget
    metrics: Metrics
    still_ours: Callable[[str, int], bool]
    now_ns: Callable[[], int]


class Owned:
    """A fenced partition: producer, tail, index and releaser."""

    def __init__(self, shared: Shared, topic: DelayTopicConfig, partition: int, rules: Rules) -> None:
        self._shared = shared
        self._producer = clients.producer(shared.config, topic.name, partition, MAX_MESSAGE_BYTES)
        self._topic = topic
        self.partition = partition
        self._rules = rules
        self._resident_bytes = 0
        self._reader = OffsetReader(lambda: clients.reader(shared.config), topic.name, partition)

    def fence(self, stopping: Callable[[], bool]) -> None:
        """Become the only writer of the partition."""
        fence(self._producer, stopping)

    def restore(self) -> Origin:
        """Read where the last owner stood, write what is new about that, and start to read the delay topic from S."""
        shared, topic, partition = self._shared, self._topic, self.partition
        # A client of its own: one that has lived through a restart of the brokers goes on asking with the leader epochs
        # of before, and is refused until it happens to refresh its metadata.
        origin = read_origin(shared.config, topic, partition, cluster.connect(shared.config), self._rules)
        writer = PartitionWriter(self._producer, topic, partition, self._rules, origin.delay_topic_id)
        if not origin.is_stored:
            self._producer.begin_transaction()
            writer.write_epochs(origin.epochs)
            writer.write_progress(origin.progress)
            commit(self._producer)
        self.ledger: PartitionLedger = PartitionIndex(origin.progress, scheduled_size)
        compresses = clients.compresses(shared.config)
        self._releaser = Releaser(writer, self._rules, shared.directory, self._reader, compresses)
        at = TopicPartition(topic.name, partition, self.ledger.indexed_to)
        self._intake = Intake(clients.tail(shared.config), at, self.ledger, origin.epochs, shared.budget)
        return origin

    def index(self, wait_s: float) -> Indexed:
        """Index what has arrived, waiting at most ``wait_s`` for the first record."""
        indexed = self._intake.fill(wait_s)
        self._resident_bytes += indexed.resident_bytes
        return indexed

    def release(self, batch: Leaving) -> Released:
        """Commit a batch that the index has planned."""
        released = self._releaser.release(batch)
        self.ledger.confirm()
        freed = resident_bytes(batch.late) + resident_bytes(batch.due)
        self._resident_bytes -= freed
        self._shared.budget.give_back(freed)
        return released

    def serve_client(self) -> None:
        """Let the producer hand over what it has logged; nothing else polls it while nothing is due."""
        self._producer.poll(0)

    def lag(self) -> int:
        """Offsets of the delay topic not indexed yet."""
        return self._intake.lag()

    def close(self) -> None:
        """Throw everything away; an open transaction is left to the next owner, who settles it by fencing."""
        self._shared.budget.give_back(self._resident_bytes)
        self._resident_bytes = 0
        self._reader.close()
        if hasattr(self, "_intake"):
            self._intake.close()
        self._producer.purge()
