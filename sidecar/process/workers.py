"""The workers of a process: one for each delay partition that the group assigns to it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sidecar.kafka.admin import Described, TopicFacts
from sidecar.kafka.membership import Partition
from sidecar.partition.shared import Shared
from sidecar.partition.status import PartitionStatus
from sidecar.partition.worker import Worker
from sidecar.process.garbage import GarbageCollection
from sidecar.process.health import ProcessHealth
from sidecar.process.heap import HeapTrim
from sidecar.process.served_topics import UsableTopics
from sidecar.topics.retention import retention_of

STOP_WITHIN_S = 20.0
"""For all workers together. With leaving the group it stays below the 30 s that the contract and Kubernetes give."""


class Workers:
    """Starts and stops workers as the group says; ``statuses`` may be asked from any thread."""

    def __init__(self) -> None:
        self._workers: dict[Partition, Worker] = {}
        self._troubles: dict[str, str] = {}
        self._gone: set[str] = set()
        self._ended_late: list[Worker] = []

    def start(self, shared: Shared, partitions: Sequence[Partition]) -> None:
        """Start a worker for each partition."""
        shared.budget.partitions = len(self._workers) + len(partitions)
        for name, number in partitions:
            topic = shared.config.delay_topic(name)
            assert topic is not None, f"assigned {name}, which was not subscribed"
            worker = Worker(shared, topic, number)
            self._workers[name, number] = worker
            worker.start()

    def give_up(self, partitions: Sequence[Partition]) -> bool:
        """Stop the workers of these, all at once, within one deadline; whether each of them ended."""
        ending = [self._workers.pop(each) for each in partitions if each in self._workers]
        for worker in ending:
            worker.stop()
        deadline_s = time.monotonic() + STOP_WITHIN_S
        for worker in ending:
            worker.join(max(0.0, deadline_s - time.monotonic()))
        late = [worker for worker in ending if worker.is_alive()]
        self._ended_late += late
        return not late

    def stop(self) -> None:
        """Stop every worker."""
        self.give_up(list(self._workers))

    @property
    def is_idle(self) -> bool:
        """Whether every worker that was stopped has ended."""
        return not any(worker.is_alive() for worker in self._ended_late)

    def statuses(self) -> list[PartitionStatus]:
        """The last snapshot of every partition."""
        return [
            worker.told.now().beside(self._troubles.get(topic, ""))
            for (topic, _), worker in list(self._workers.items())
        ]

    def learn(self, answers: Mapping[str, Described], troubles: Mapping[str, str]) -> None:
        """Pass on what the cluster says of the topics now, and what is wrong with delay topics.

        Partitions are taken over again whose topic is another one now, or is gone, asked twice; that refuses them, and
        says why. Created again quickly enough, a topic gives its clients no error: they would go on at the old offset.
        """
        self._troubles = dict(troubles)
        gone = {name for name, answer in answers.items() if answer is None}
        for (topic, _), worker in list(self._workers.items()):
            facts = answers.get(topic)
            if isinstance(facts, TopicFacts):
                worker.retention = retention_of(facts.settings)
            known = worker.topic_ids.items()
            if any(_is_another(answers.get(name), topic_id) or name in gone & self._gone for name, topic_id in known):
                worker.take_over_again()
        self._gone = gone


def _is_another(answer: Described, topic_id: str) -> bool:
    return isinstance(answer, TopicFacts) and answer.topic_id != topic_id


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the group member tells: passes partitions on to the workers, and signs of life to the probes."""

    _workers: Workers
    _shared: Shared
    _usable: UsableTopics
    _health: ProcessHealth
    _garbage: GarbageCollection
    _heap: HeapTrim

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """The group has given these to this process."""
        self._workers.start(self._shared, partitions)
        self._health.is_member()

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """These go to another member when this returns."""
        self._workers.give_up(partitions)

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
        self._heap.trim_if_worth()

    def topics(self) -> list[str]:
        """Delay topics to serve, as of the last look."""
        return list(self._usable.topics)
