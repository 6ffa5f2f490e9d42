"""Settings of every librdkafka client: one function for each role, with the reason beside each value.

The settings that the user writes under ``[kafka]`` go to all clients. The settings on which a guarantee depends are
set last, so they win; the configuration refuses them (see :mod:`sidecar.config.librdkafka_keys`).
"""

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from sidecar.config.model import Config
from sidecar.kafka.client.connections import OnThrottle, RenewableProducer
from sidecar.kafka.client.tokens import connection
from sidecar.kernel.librdkafka import WatchedConsumer
from sidecar.logs import events

OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]
OnError = Callable[[KafkaError], None]

TAIL_FETCH_WAIT_MS = 100
"""Longest wait of a fetch at the end of delay partitions. New records end the wait at once. A partition that is added,
or has room for messages again, waits for the end of a fetch that is under way."""

TAIL_FETCHED_BYTES: Final = 8 * 1_048_576
"""Most bytes of a fetch of several delay partitions: the client unpacks a fetch as a whole."""

IDLE_FETCH_WAIT_MS = 500
"""Longest wait of a fetch of a topic that seldom has new records. A wait of 500 ms costs 1 ms of CPU a second, and a
wait of 10 ms costs 11 (notes on Kafka, 3.8)."""

POLICY_FETCH_WAIT_MS = 100
"""Longest wait of a fetch for policies. A new policy ends the wait at once; a take-over may wait so long to learn that
there is none."""

STATE_FETCH_WAIT_MS = 10
"""Longest wait of a fetch of state. A restore ends with the end-of-partition event, which costs one empty fetch, so the
wait is short."""

LOOK_AT_TOPICS_MS = 30_000
"""Time between two looks at the partitions of a topic; librdkafka alone looks every five minutes."""

_LOOK: Final = "topic.metadata.refresh.interval.ms"

MAX_MESSAGE_BYTES = 16 * 1_048_576
"""Size limit of the client; the limit of the broker, which is usually lower, decides which records are refused."""


def transactional_id(config: Config, topic: str, partition: int, group: str | None = None) -> str:
    """Return the id that fences the old owner of a delay partition; ACLs are given on its prefix, the group id.

    ``group`` is another group, whose owner is to be fenced.
    """
    return f"{group or config.router.group_id}.{topic}.{partition}"


def _client_id(config: Config, role: str) -> str:
    # One client.id per role, so that quotas and broker logs tell them apart.
    return f"{config.router.group_id}-{role}"


def producer(config: Config, transactional_id: str, on_throttle: OnThrottle | None = None) -> RenewableProducer:
    """Make a producer that releases records, of one delay partition or of a lane.

    ``on_throttle`` is called in the thread that polls or commits.
    """
    message_timeout_ms = _message_timeout_ms(config.router.transaction_timeout_ms)
    return RenewableProducer(
        {
            # After a loss the producer goes on with the addresses it knows, and only until its transaction has ended.
            # Beginning with the bootstrap servers again takes 1.9 s instead of 0.05 s (measured with one broker), and
            # the take-over that follows does that anyway.
            "metadata.recovery.strategy": "none",
            "reconnect.backoff.max.ms": 1_000,
            **connection(config),
            "client.id": _client_id(config, "release"),
            "transactional.id": transactional_id,
            "transaction.timeout.ms": config.router.transaction_timeout_ms,
            "message.timeout.ms": message_timeout_ms,
            # A commit flushes at once, so a lone record never waits for the linger time. With 0 a burst goes out in
            # small requests, at two thirds of the rate.
            "linger.ms": 5,
            # The partitioner of Java producers; the default of librdkafka would send a key to another partition.
            "partitioner": "murmur2_random",
            "message.max.bytes": MAX_MESSAGE_BYTES,
            # A transaction is bounded by batch_records and by bytes; the queue must hold one without blocking it.
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 262_144,
            # A transaction waits so long for a target that has vanished from the metadata (30 s by default).
            "topic.metadata.propagation.max.ms": 5_000,
            "socket.nagle.disable": True,
        },
        events.librdkafka_logger(),
        # Half of the message timeout, 10 s by default: a bit more than the session of a dead broker (9 s by default).
        # A take-over after that hears at once which partitions have no leader.
        silence_s=message_timeout_ms / 2_000,
        on_throttle=on_throttle,
    )


def ending_producer(config: Config, transactional_id: str, on_statistics: Callable[[str], None]) -> Producer:
    """Make the producer of ``end-transaction``; its statistics tell its producer id (``eos.producer_id``)."""
    return Producer(
        {
            **connection(config),
            "client.id": _client_id(config, "ending"),
            "transactional.id": transactional_id,
            "transaction.timeout.ms": config.router.transaction_timeout_ms,
            "message.max.bytes": MAX_MESSAGE_BYTES,
            "linger.ms": 0,
            "statistics.interval.ms": 200,
            "stats_cb": on_statistics,
        },
        logger=events.librdkafka_logger(),
    )


def _message_timeout_ms(transaction_timeout_ms: int) -> int:
    """Return how long a transaction waits for the brokers to take a record.

    A target that was deleted a moment ago holds up its whole partition for this long, because librdkafka goes on asking
    for it (measured). The time must still suffice for the largest transaction on slow brokers.
    """
    return max(transaction_timeout_ms // 3, min(transaction_timeout_ms, 5_000))


def compresses(config: Config) -> bool:
    """Say whether producers compress, so that the size of a record tells nothing about the size of its batch."""
    return any(config.kafka.get(key, "none") != "none" for key in ("compression.type", "compression.codec"))


_SMALL_FETCHES: Final[Mapping[str, object]] = {
    "fetch.wait.max.ms": STATE_FETCH_WAIT_MS,
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 65_536,
    "fetch.queue.backoff.ms": 0,
}
"""Settings for reading single records that lie far apart."""


def tail(config: Config, prefetched_bytes: int, fetched_bytes: int) -> Consumer:
    """Make an assign-only consumer that follows delay partitions.

    Of each it fetches up to ``fetched_bytes`` at once and prefetches up to ``prefetched_bytes``.
    """
    return _consumer(
        config,
        "tail",
        {
            "fetch.wait.max.ms": TAIL_FETCH_WAIT_MS,
            "queued.max.messages.kbytes": prefetched_bytes // 1_024,
            # The client prefetches up to this much (compressed) beyond the limit above, because it unpacks all batches
            # of a fetch together.
            "fetch.message.max.bytes": fetched_bytes,
            "fetch.max.bytes": TAIL_FETCHED_BYTES,
            # When the queue is full, look again soon: the default stalls for 1 s while the partition catches up.
            "fetch.queue.backoff.ms": 10,
        },
    )


def reader(config: Config) -> Consumer:
    """Make an assign-only consumer for scattered reads by offset: small fetches, no prefetch (notes on Kafka, 3.9)."""
    return _consumer(config, "reader", _SMALL_FETCHES)


def known_reader(config: Config) -> Consumer:
    """Make a consumer for scattered reads of committed records by offset, such as a record that the router appended.

    Another producer may have a transaction open in front of them, behind which other consumers see nothing.
    """
    return _consumer(config, "reader", {**_SMALL_FETCHES, "isolation.level": "read_uncommitted"})


def bulk_reader(config: Config) -> Consumer:
    """Make an assign-only consumer for long reads: of segments, and of neighbouring records of a delay topic."""
    return _consumer(
        config,
        "reader",
        {
            "fetch.wait.max.ms": STATE_FETCH_WAIT_MS,
            "queued.min.messages": 10_000,
            "queued.max.messages.kbytes": 2_048,
            "fetch.message.max.bytes": 1_048_576,
            # With 0 the client would check a full queue without a pause, and use a whole core for that.
            "fetch.queue.backoff.ms": 2,
        },
    )


def prober(config: Config) -> Consumer:
    """Make an assign-only consumer that reads single batches which may be damaged."""
    return _consumer(
        config,
        "probe",
        {
            **_SMALL_FETCHES,
            # This consumer expects errors; with the default it would wait 500 ms after each.
            "fetch.error.backoff.ms": 1,
        },
    )


def state_reader(config: Config) -> Consumer:
    """Make an assign-only consumer that reads a state partition once, from its beginning to its end."""
    return _consumer(
        config,
        "state",
        {
            "fetch.wait.max.ms": STATE_FETCH_WAIT_MS,
            # The consumer lives for less time than it needs to begin with the bootstrap servers again after a loss.
            "metadata.recovery.strategy": config.kafka.get("metadata.recovery.strategy", "none"),
        },
    )


def first_reader(config: Config) -> Consumer:
    """Make an assign-only consumer that reads one record of each partition, including records of open transactions."""
    return _consumer(
        config,
        "first",
        {**_SMALL_FETCHES, "isolation.level": "read_uncommitted", "queued.max.messages.kbytes": 4_096},
    )


def hidden_reader(config: Config) -> Consumer:
    """Make an assign-only consumer that reads all records behind an open transaction."""
    return _consumer(
        config, "hidden", {"isolation.level": "read_uncommitted", "fetch.wait.max.ms": STATE_FETCH_WAIT_MS}
    )


def policy_reader(config: Config) -> Consumer:
    """Make an assign-only consumer that follows the policies topic."""
    return _consumer(config, "policies", {"fetch.wait.max.ms": POLICY_FETCH_WAIT_MS})


def policy_writer(config: Config, timeout_s: float) -> Producer:
    """Make a producer that writes a single policy."""
    return Producer(
        {
            **connection(config),
            "client.id": _client_id(config, "policies"),
            "enable.idempotence": True,
            "message.timeout.ms": int(timeout_s * 1_000),
            "linger.ms": 0,
        },
        logger=events.librdkafka_logger(),
    )


def report_reader(config: Config) -> Consumer:
    """Make an assign-only consumer that follows the status topic."""
    return _consumer(config, "status", {"fetch.wait.max.ms": POLICY_FETCH_WAIT_MS, "auto.offset.reset": "latest"})


def report_writer(config: Config, timeout_s: float) -> Producer:
    """Make a producer of reports. It waits for the leader only: a lost report is soon followed by the next one."""
    return Producer(
        {
            **connection(config),
            "client.id": _client_id(config, "status"),
            # Settings that the user may have made for all producers would conflict with idempotence.
            "enable.idempotence": False,
            "acks": 1,
            "retries": 0,
            "message.timeout.ms": int(timeout_s * 1_000),
            "linger.ms": 5,
            "compression.type": "lz4",
            "socket.nagle.disable": True,
        },
        logger=events.librdkafka_logger(),
    )


def staging_reader(config: Config) -> Consumer:
    """Make an assign-only consumer that follows the backfill topics of all partitions of a process, which are quiet."""
    return _consumer(
        config,
        "staging",
        {
            "fetch.wait.max.ms": IDLE_FETCH_WAIT_MS,
            "queued.min.messages": 100,
            "queued.max.messages.kbytes": 4_096,
            _LOOK: LOOK_AT_TOPICS_MS,
        },
    )


def group_member(
    config: Config, topics: Iterable[str], on_commit: OnCommit, on_error: OnError, instance_id: str
) -> Consumer:
    """Make the consumer that is this process's member of the group; it gets partitions and reads none of them."""
    session_ms = config.router.session_timeout_ms
    static = {"group.instance.id": _static_id(instance_id, topics)} if instance_id else {}
    return _consumer(
        config,
        "group",
        {
            **static,
            "on_commit": on_commit,
            "error_cb": on_error,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": max(session_ms // 5, 100),
            "queued.min.messages": 1,
            "fetch.message.max.bytes": 1_024,
            # It notices new partitions of the delay topics by this look.
            _LOOK: config.kafka.get(_LOOK, LOOK_AT_TOPICS_MS),
        },
    )


def _static_id(instance_id: str, topics: Iterable[str]) -> str:
    """Return the id of the static member, which depends on its topics.

    A coordinator hands a returning static member its old partitions without comparing its topics: a delay topic that
    was added to the configuration would belong to no member until the next rebalance.
    """
    digest = sha256("\n".join(sorted(topics)).encode()).hexdigest()
    return f"{instance_id}-{digest[:8]}"


def _consumer(config: Config, role: str, settings: Mapping[str, object]) -> WatchedConsumer:
    """Make a consumer that never skips a record silently, with the settings of its role on top."""
    return WatchedConsumer({**_reading(config, role), **settings}, logger=events.librdkafka_logger())


def _reading(config: Config, role: str) -> dict[str, object]:
    return {
        **connection(config),
        "client.id": _client_id(config, role),
        # Required by the client even where partitions are assigned by hand.
        "group.id": config.router.group_id,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # A missing offset must show; `earliest` would silently skip the records that retention removed.
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "check.crcs": True,
        "allow.auto.create.topics": False,
        "socket.nagle.disable": True,
    }
