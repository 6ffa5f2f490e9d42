"""Starts and stops the workers of a process: one for each delay partition that the group assigns to it."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sidecar.cluster.topics.retention import retention_of
from sidecar.engine.ownership.status import PartitionStatus
from sidecar.kafka.client.admin import Described, TopicFacts
from sidecar.kafka.client.membership import Partition
from sidecar.process.garbage import GarbageCollection
from sidecar.process.health import ProcessHealth
from sidecar.process.heap import HeapTrim
from sidecar.process.host.shared import Shared
from sidecar.process.host.worker import Worker
from sidecar.process.served_topics import UsableTopics

STOP_WITHIN_S = 20.0
"""Time for all workers together to stop. With leaving the group it stays below the 30 s that Kubernetes gives."""

SHORTEST_SWITCH_S = 0.001
"""Time for which a thread that only computes (deciding, encoding, merging) may hold up a thread with due records, while
there are few partitions: a transaction waits for it several times."""

LONGEST_SWITCH_S = 0.005
"""The same time with many partitions, the default of Python."""

SWITCH_EACH_S = 0.000_05
"""The same time for each partition: every thread that waits for the interpreter wakes up after it, to ask again."""


class Workers:
    """Starts and stops workers as the group assigns partitions; any thread may call ``statuses``."""

    def __init__(self) -> None:
        self._workers: dict[Partition, Worker] = {}
        self._troubles: dict[str, str] = {}
        self._gone: set[str] = set()
        self._ended_late: list[Worker] = []

    def start(self, shared: Shared, partitions: Sequence[Partition]) -> None:
        """Start a worker for each partition, and divide the memory among all of them."""
        count = len(self._workers) + len(partitions)
        shared.budget.partitions = shared.lanes.partitions = count
        sys.setswitchinterval(switch_threads_s(count))
        for name, number in partitions:
            topic = shared.config.delay_topic(name)
            assert topic is not None, f"assigned {name}, which was not subscribed"
            worker = Worker(shared, topic, number)
            self._workers[name, number] = worker
            worker.start()

    def give_up(self, partitions: Sequence[Partition]) -> bool:
        """Stop the workers of these partitions together, within one deadline, and say whether all of them ended."""
        ending = [self._workers.pop(each) for each in partitions if each in self._workers]
        for worker in ending:
            worker.stop()
        deadline_s = time.monotonic() + STOP_WITHIN_S
        for worker in ending:
            worker.join(max(0.0, deadline_s - time.monotonic()))
        late = [worker for worker in ending if worker.is_alive()]
        self._ended_late = [worker for worker in (*self._ended_late, *late) if worker.is_alive()]
        return not late

    def stop(self) -> None:
        """Stop all workers."""
        self.give_up(list(self._workers))

    @property
    def is_idle(self) -> bool:
        """Says that every stopped worker has ended."""
        return not any(worker.is_alive() for worker in self._ended_late)

    @property
    def served(self) -> int:
        """The number of partitions that have been taken over."""
        return sum(worker.status.is_served for worker in list(self._workers.values()))

    def statuses(self) -> list[PartitionStatus]:
        """Return the last status of every partition."""
        return [
            worker.loop.told.now().beside(self._troubles.get(topic, ""))
            for (topic, _), worker in list(self._workers.items())
        ]

    def learn(self, answers: Mapping[str, Described], troubles: Mapping[str, str]) -> None:
        """Tell the workers the present facts about their topics, and note the errors of delay topics.

        A worker takes its partition over again if one of its topics has another id now, or is missing in two checks in
        a row; the take-over then refuses the partition and says why. If a topic is quickly created again, its clients
        get no error: they would go on at the old offset.
        """
        self._troubles = dict(troubles)
        gone = {name for name, answer in answers.items() if answer is None}
        for (topic, _), worker in list(self._workers.items()):
            facts = answers.get(topic)
            if isinstance(facts, TopicFacts):
                worker.loop.retention = retention_of(facts.settings)
            known = worker.loop.topic_ids.items()
            if any(_is_another(answers.get(name), topic_id) or name in gone & self._gone for name, topic_id in known):
                worker.loop.take_over_again()
        self._gone = gone


def switch_threads_s(partitions: int) -> float:
    """Return the switch interval of the interpreter for a number of partitions, in seconds."""
    return min(max(SWITCH_EACH_S * partitions, SHORTEST_SWITCH_S), LONGEST_SWITCH_S)


def _is_another(answer: Described, topic_id: str) -> bool:
    return isinstance(answer, TopicFacts) and answer.topic_id != topic_id


@dataclass(frozen=True, slots=True)
class Assignment:
    """Receiver of the group member's news: passes partitions to the workers, and signs of life to the probes."""

    _workers: Workers
    _shared: Shared
    _usable: UsableTopics
    _health: ProcessHealth
    _garbage: GarbageCollection
    _heap: HeapTrim

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Start the workers of partitions that the group has assigned to this process, and have the group looked at."""
        self._workers.start(self._shared, partitions)
        self._shared.topics_doubted.set()
        self._health.is_member()

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Stop the workers of partitions that go to another member when this method returns."""
        self._workers.give_up(partitions)

    def not_a_member(self, why: str) -> None:
        """Report that the process is not ready: without partitions it would look ready."""
        self._health.waits_for(why)

    def cursors(self) -> dict[Partition, int]:
        """Return the committed cursor of every active partition."""
        statuses = self._workers.statuses()
        return {(status.topic, status.partition): status.cursor for status in statuses if status.is_served}

    def turned(self) -> None:
        """Tell the probes that the loop of the member is alive, and tidy memory if it is time."""
        self._health.turned()
        self._shared.lanes.serve_given_up()
        self._garbage.collect_if_quiet()
        self._heap.trim_if_worth()

    def topics(self) -> list[str]:
        """Return the delay topics to serve, by the last check."""
        return list(self._usable.topics)
