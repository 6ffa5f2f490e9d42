"""Checks the topics again and again while the router runs, so that changes by operators show.

Such changes are a lower retention, a topic that was deleted or created again, or a withdrawn right. The watch repeats
the check of the start. It logs each error once, puts it into the status, and tells the workers and the watch of the
policies the facts that concern them. Then it looks whether every partition has an owner. It has a thread of its own,
because a request blocks while the cluster does not answer.

A worker whose transaction is refused learns an error code from the client, and seldom the topic: for instance that the
state topic may not be written. So it requests a check, whose finding names topic, right and command.
"""

import threading
from collections.abc import Callable, Mapping

import structlog
from confluent_kafka import KafkaException

from sidecar.kafka.client.admin import Described
from sidecar.kafka.client.errors import error_of
from sidecar.process.served_topics import UsableTopics
from sidecar.process.workers import Workers

EVERY_S = 15.0
APART_S = 1.0
"""Least interval between checks, also when workers request them more often."""

END_WITHIN_S = 0.5


class TopicWatch:
    """Checks the topics every ``EVERY_S``, and soon after ``doubted`` is set, from ``start`` to ``stop``."""

    def __init__(
        self,
        usable: UsableTopics,
        workers: Workers,
        tell_policies: Callable[[Mapping[str, Described]], None],
        look_at_group: Callable[[], None],
        doubted: threading.Event,
    ) -> None:
        self._doubted = doubted
        self._usable = usable
        self._workers = workers
        self._tell_policies = tell_policies
        self._look_at_group = look_at_group
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topic watch", daemon=True)
        self._log = structlog.get_logger()

    def start(self) -> None:
        """Start to check every ``EVERY_S``."""
        self._thread.start()

    def stop(self) -> None:
        """Stop checking, and wait a moment for the thread to end."""
        self._stopping.set()
        self._doubted.set()
        if self._thread.is_alive():
            self._thread.join(END_WITHIN_S)

    def _run(self) -> None:
        while not self._stopping.wait(APART_S):
            self._doubted.wait(max(0.0, EVERY_S - APART_S))
            self._doubted.clear()
            if self._stopping.is_set():
                return
            try:
                self._look()
            except KafkaException as exception:
                # Workers report that the cluster is away.
                self._log.debug("topics_not_seen", why=error_of(exception).str())
            except Exception:  # noqa: BLE001 - a defect of ours must not end the thread silently
                self._log.exception("topic_watch_failed")

    def _look(self) -> None:
        answers = self._usable.look()
        self._workers.learn(answers, self._usable.troubles)
        self._tell_policies(answers)
        self._look_at_group()
