"""Runs one worker of one delay partition in the test's own process, so that a test can lower its limits."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from index.buckets.bucket import Manifest
from sidecar.clock import SystemClock
from sidecar.config.model import Config
from sidecar.engine.context import PartitionContext
from sidecar.engine.limits import LIMITS, Limits
from sidecar.engine.ownership.origin import Origin
from sidecar.engine.ownership.takeover import read_origin
from sidecar.engine.release.rates import RateLimits
from sidecar.kafka.client import admin as cluster
from sidecar.kafka.client import clients
from sidecar.kafka.doubts.look import Looks
from sidecar.kafka.reading.tail_clients import TailClients
from sidecar.kafka.writing.lanes import Lanes
from sidecar.kafka.writing.target_directory import TargetDirectory
from sidecar.metrics import Metrics
from sidecar.process.host.budget import PayloadBudget
from sidecar.process.host.pool import LoaderPool
from sidecar.process.host.shared import Shared
from sidecar.process.host.staging import Staging
from sidecar.process.host.standing import KafkaStanding, OtherWriters
from sidecar.process.host.worker import Worker


class RunningWorker(Worker):
    """A worker of partition 0 of the only delay topic; ``metrics`` belong to its process."""

    def __init__(self, config: Config, limits: Limits = LIMITS) -> None:
        admin, clock = cluster.connect(config), SystemClock()
        self.metrics = Metrics()
        self.pool = LoaderPool(lambda: clients.reader(config))
        self.staging = Staging(lambda: clients.staging_reader(config), clock)
        shared = Shared(
            config=config,
            admin=admin,
            directory=TargetDirectory(admin, clock.running_s),
            budget=PayloadBudget(config.router.payload_memory_bytes),
            metrics=self.metrics,
            pool=self.pool,
            staging=self.staging,
            still_ours=lambda _topic, _partition: True,
            clock=clock,
            rates=RateLimits(clock.running_s, threading.Lock()),
            limits=limits,
            tails=TailClients(lambda limits: clients.tail(config, *limits)),
            looks={config.delay_topics[0].name: Looks()},
            lanes=Lanes(config.router.group_id, config.router.lanes, partial(clients.producer, config), clock),
        )
        super().__init__(shared, config.delay_topics[0], 0)

    def count(self, name: str) -> float:
        """Return a counter of the delay topic, or 0 if it does not exist."""
        return self.count_of(name)

    def count_of(self, name: str, **labels: str) -> float:
        """Return a counter with these labels in addition to the topic, or 0 if it does not exist."""
        labels = {"topic": self.status.topic, **labels}
        return self.metrics.registry.get_sample_value(f"delay_router_{name}_total", labels) or 0.0


@contextmanager
def one_worker(config: Config, limits: Limits = LIMITS) -> Iterator[RunningWorker]:
    """Run a worker until the end of the block."""
    worker = RunningWorker(config, limits)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()
        worker.join(20)
        worker.pool.stop()
        worker.staging.stop()
        assert not worker.is_alive(), "the worker did not end"


def stored_manifests(config: Config) -> tuple[Manifest, ...]:
    """Return the manifests in the state topic."""
    return origin_of(config).buckets


def origin_of(config: Config) -> Origin:
    """Return the origin from which an owner of partition 0 of the first delay topic would begin."""
    topic = config.delay_topics[0]
    context = PartitionContext(topic, 0, config.router.group_id, Metrics(), SystemClock())
    standing = KafkaStanding(config, topic, 0, OtherWriters(print, print, print), Looks())
    return read_origin(context, standing, config.rules_for(topic))


def log_start(admin: AdminClient, topic: str) -> int:
    """Return the first remaining offset of partition 0."""
    return cluster.log_range(admin, topic, 0)[0]


def remove_below(admin: AdminClient, topic: str, offset: int) -> None:
    """Remove the records of partition 0 below an offset, as retention does."""
    (future,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    future.result(30)
