"""A double of a group with 300 delay topics, for tests and measurements of long lists."""

from pathlib import Path
from typing import Any, Final

from index.protocol.recurring import Occurrence, Recurrence
from sidecar.config.model import Config
from sidecar.operations.finding.wanted import Pending, ScheduleFilter, SchedulePage
from sidecar.operations.schedules import schedules_answer
from sidecar.operations.status.answers import PartitionAnswer, SchedulesAnswer, StatusAnswer, TopicAnswer
from tests.support.admin_api import FakeOperations

TOPICS: Final = 300

DUE_MS: Final = 1_893_486_600_000
"""2030-01-01 09:30 in Berlin, a Tuesday."""


class Many(FakeOperations):
    """Operations with TOPICS delay topics; number 7 is not served, and of number 9 records are held.

    The schedules of each recur.
    """

    turn = 0

    def status(self, topic: str = "") -> StatusAnswer:
        wanted = (each for each in enumerate(self.topics) if topic in ("", each[1]))
        return StatusAnswer(topics=tuple(self._topic(*each) for each in wanted), instances=("one",))

    def schedules(self, wanted: ScheduleFilter, begin: str, most: int, upcoming: int = 0) -> SchedulesAnswer:
        self.wanted = wanted
        recurrence = Recurrence(cron="30 9 * * 1-5", zone="Europe/Berlin", occurrence=Occurrence(3, 8, DUE_MS))
        found = Pending(DUE_MS, 0, 7, ("out",), b"report", 3, None, None, recurrence)
        return schedules_answer(wanted.topic, SchedulePage([found], None), upcoming)

    def _topic(self, number: int, name: str) -> TopicAnswer:
        state = "unserved" if number == 7 else "active"
        # The order by pending records changes with each answer.
        pending = (number * 7 + self.turn) % TOPICS
        partitions = tuple(
            PartitionAnswer(partition=each, state=state, instance="one", pending=pending, held=5 * (number == 9))
            for each in range(3)
        )
        return TopicAnswer(topic=name, pending=3 * pending, paused=False, drained=False, partitions=partitions)


def many_topics(tokens: Path, **admin: Any) -> Config:
    """Return the configuration of these topics, with the page."""
    topics = [{"name": f"{'eu' if n % 2 else 'us'}.topic-{n:03}", "default_target": "out"} for n in range(TOPICS)]
    listener = {"listen": "127.0.0.1:0", "token_file": str(tokens), "page": True, **admin}
    return Config.model_validate({"kafka": {"bootstrap.servers": "b:1"}, "admin": listener, "delay_topics": topics})
