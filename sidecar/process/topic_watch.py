"""Looking at the topics again and again while the router runs: what operators change there must show.

Retention that was lowered, a topic that was deleted or created again, rights taken away: the check of the start is
made anew, what is wrong is logged once and stands in the status, and the workers learn what concerns them. In a thread
of its own, since a cluster that does not answer holds up whoever asks.

A worker whose transaction is refused learns an error code from the client, and seldom which topic it is about: the
state topic that may not be written, say. So it has the topics looked at, and a finding names topic, right and command.
"""

import threading

import structlog
from confluent_kafka import KafkaException

from sidecar.kafka.errors import error_of
from sidecar.process.served_topics import UsableTopics
from sidecar.process.workers import Workers

EVERY_S = 15.0
APART_S = 1.0
"""However often workers ask for a look."""

END_WITHIN_S = 0.5


class TopicWatch:
    """Looks at the topics every ``EVERY_S``, and soon after ``doubted`` is set, from ``start`` to ``stop``."""

    def __init__(self, usable: UsableTopics, workers: Workers, doubted: threading.Event | None = None) -> None:
        self._doubted = threading.Event() if doubted is None else doubted
        self._usable = usable
        self._workers = workers
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topic watch", daemon=True)
        self._log = structlog.get_logger()

    def start(self) -> None:
        """Look every ``EVERY_S`` from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End, waiting for it a moment."""
        self._stopping.set()
        self._doubted.set()
        if self._thread.is_alive():
            self._thread.join(END_WITHIN_S)

    @property
    def is_idle(self) -> bool:
        """Whether it waits for no answer of the cluster, which would keep the interpreter from exiting."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.wait(APART_S):
            self._doubted.wait(max(0.0, EVERY_S - APART_S))
            self._doubted.clear()
            if self._stopping.is_set():
                return
            try:
                answers = self._usable.look()
            except KafkaException as exception:
                # Workers say that the cluster is away.
                self._log.debug("topics_not_seen", why=error_of(exception).str())
                continue
            except Exception:  # noqa: BLE001 - a defect of ours must not end it in silence
                self._log.exception("topic_watch_failed")
                continue
            self._workers.learn(answers, self._usable.troubles)
