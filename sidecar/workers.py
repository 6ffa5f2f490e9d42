"""The workers of a process: one for each delay partition that the group assigns to it."""

import time
from collections.abc import Mapping, Sequence

from sidecar.garbage import GarbageCollection
from sidecar.group import Partition
from sidecar.health import ProcessHealth
from sidecar.partition_status import PartitionStatus
from sidecar.shared import Shared
from sidecar.usable import UsableTopics
from sidecar.worker import Worker

STOP_WITHIN_S = 20.0
"""For all workers together. With leaving the group it stays below the 30 s that the contract and Kubernetes give."""


class Workers:
    """Starts and stops workers as the group says; ``statuses`` may be asked from any thread."""

    def __init__(self) -> None:
        self._workers: dict[Partition, Worker] = {}

    def start(self, shared: Shared, partitions: Sequence[Partition]) -> None:
        """Start a worker for each partition."""
        for name, number in partitions:
            topic = shared.config.delay_topic(name)
            assert topic is not None, f"assigned {name}, which was not subscribed"
            worker = Worker(shared, topic, number)
            self._workers[name, number] = worker
            worker.start()

    def stop(self, partitions: Sequence[Partition]) -> bool:
        """Stop the workers of these, all at once, within one deadline; whether each of them ended."""
        ending = [self._workers.pop(each) for each in partitions if each in self._workers]
        for worker in ending:
            worker.stop()
        deadline_s = time.monotonic() + STOP_WITHIN_S
        for worker in ending:
            worker.join(max(0.0, deadline_s - time.monotonic()))
        return not any(worker.is_alive() for worker in ending)

    def stop_all(self) -> bool:
        """Stop every worker; whether each of them ended in time."""
        return self.stop(list(self._workers))

    def statuses(self) -> list[PartitionStatus]:
        """The last snapshot of every partition."""
        now_s = time.monotonic()
        return [worker.status.as_of(now_s) for worker in list(self._workers.values())]

    def compare(self, topic_ids: Mapping[str, str]) -> None:
        """Have partitions taken over again whose delay topic is another one now; that refuses them, and says why.

        Created again quickly enough, a topic gives its consumers no error: they would go on at the old offset.
        """
        for (topic, _), worker in list(self._workers.items()):
            if worker.delay_topic_id and topic_ids.get(topic, worker.delay_topic_id) != worker.delay_topic_id:
                worker.take_over_again()

    def topics(self) -> list[str]:
        """Delay topics with a partition here."""
        return list(dict.fromkeys(topic for topic, _ in list(self._workers)))


class Assignment:
    """What the group member tells: passes partitions on to the workers, and signs of life to the probes."""

    def __init__(
        self,
        workers: Workers,
        shared: Shared,
        usable: UsableTopics,
        health: ProcessHealth,
        garbage: GarbageCollection,
    ) -> None:
        self._workers = workers
        self._usable = usable
        self._shared = shared
        self._health = health
        self._garbage = garbage

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """These are ours now."""
        self._workers.start(self._shared, partitions)
        self._health.is_member()

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """These go to another member when this returns."""
        self._workers.stop(partitions)

    def not_a_member(self, why: str) -> None:
        """Without partitions the process would look ready."""
        self._health.waits_for(why)

    def cursors(self) -> dict[Partition, int]:
        """The committed cursor of every active partition."""
        statuses = self._workers.statuses()
        return {(status.topic, status.partition): status.cursor for status in statuses if status.is_served}

    def turned(self) -> None:
        """The member's loop is alive."""
        self._health.turned()
        self._garbage.collect_if_quiet()

    def topics_again(self) -> list[str] | None:
        """Delay topics to serve, when that may have changed."""
        self._workers.compare(self._usable.ids(self._workers.topics()))
        return self._usable.again()
