"""A transactional producer that is used up once a connection of it was lost under its transactions.

librdkafka repeats a request by itself when the connection it was sent on was lost. The first copy may be on its way
still, and it has neither a number nor the name of its transaction: an EndTxn that arrives late ends whatever is open by
then, and commits or aborts half of the *next* transaction of the same epoch (librdkafka has no KIP-890 client). So
after a loss no further transaction is begun here. Whoever takes the partition over has a new epoch, which fences
whatever is still on its way, and finds in the state topic what became of the last one.

How a loss is noticed (measured with librdkafka 2.16.0 on 4.3.1 brokers, 90 answers cut off with their connection):

* The error callback reported 30: never of the coordinator's connection, over which EndTxn goes.
* Log lines of warning or info showed 45: the same error on the same broker is not repeated within 30 s.
* Lines of the debug context ``broker`` showed all 90. The thread of the connection queues its line before it gives the
  requests on it back to be sent again, so that it lies in the queue before the answer to a repetition can: it is enough
  to poll when the next transaction begins. They cost three lines a transaction, which nobody is shown.
* Statistics count every loss, but come once a second at best, and not when they are asked for.

Should a version of librdkafka word or queue those lines otherwise, then not even the connections that ``init`` has
made are heard of: such a producer is refused before its first transaction.

What does not count: connections that failed before they were up, losses before the first transaction (what is repeated
then is ``init``, and a late copy of that fences), and connections on which nothing happened for a minute and nothing
was under way, which brokers close after ``connections.max.idle.ms``. Any other loss counts also while nothing is open:
a broker that went away may have left a transaction behind, which a take-over looks for, and a record that is due later
does not have to wait for it.

Lines come all the time so, and one way of confluent-kafka with errors has to be kept clear of. When a client meets its
last error, as one that is fenced does, that is raised from within poll or flush; but a flush of 0.2 s or more goes on
calling back with the error set. Python code that is called so fails anywhere, and what comes out of flush is a
SystemError, or a bare KafkaError, which is no exception and passes every ``except Exception`` (measured with 2.16.1).
"""

import logging
import math
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Producer

from index.errors import RefusedError
from sidecar.kafka.errors import tells_of_connection, tells_of_loss

_CONTEXT: Final = "broker"

_FLUSH_STEP_S: Final = 0.1
"""Below the 0.2 s from which on confluent-kafka divides a flush itself, and goes on after an error."""


class ConnectionLostError(Exception):
    """The producer must begin no further transaction: take the partition over again, whatever the last one came to.

    ``since_commit_s`` tells how long ago the last of its commits went through, infinity if none has.
    """

    def __init__(self, why: str, since_commit_s: float) -> None:
        super().__init__(why)
        self.since_commit_s = since_commit_s


class Connections:
    """The ``logger`` of a client: counts the connections it says to have lost, and passes its lines on.

    Lines are handed over while the client is polled, in the thread that polls. Those of level debug are passed on where
    ``shows_debug``, for they would not be there otherwise.
    """

    def __init__(self, sink: logging.Logger, *, shows_debug: bool = False) -> None:
        self._sink = sink
        self._shows_debug = shows_debug
        self.are_told_of = False
        self.lost = 0
        self.last_loss = ""

    def log(self, level: int, msg: str, /, *args: object) -> None:
        """Take one line: librdkafka's facility, the name of the client and the text are the arguments."""
        facility, text = str(args[0]), str(args[-1])
        if tells_of_loss(facility, text, is_debug=level <= logging.DEBUG):
            self.lost += 1
            self.last_loss = text
        self.are_told_of |= tells_of_connection(facility, text)
        if level > logging.DEBUG or self._shows_debug:
            self._sink.log(level, msg, *args)


class RenewableProducer(Producer):
    """A transactional producer of one thread that refuses to begin a transaction once a connection was lost."""

    def __init__(self, settings: Mapping[str, Any], sink: logging.Logger) -> None:
        """Settings are librdkafka's, callbacks included; what is needed to hear of connections is set here and wins."""
        debug = str(settings.get("debug", ""))
        # Before anything that librdkafka may log while it begins.
        self.connections = Connections(sink, shows_debug=bool(debug))
        self._lost_before: int | None = None
        self._committed_s = -math.inf
        own: dict[str, Any] = {
            "debug": ",".join(filter(None, (debug, _CONTEXT))),
            "log_level": 7,
            # Tells idle connections from others.
            "log.connection.close": True,
            # A request that was not answered in time takes its connection with it.
            "socket.max.fails": 1,
        }
        super().__init__({**settings, **own}, logger=self.connections)

    def init_transactions(self, timeout: float = -1) -> None:
        """As of the producer; RefusedError when it does not tell of its connections."""
        super().init_transactions(timeout)
        self.poll(0)
        if not self.connections.are_told_of:
            raise RefusedError(
                "this librdkafka does not log its connections as 2.16.0 does, so that a repeated EndTxn would not be"
                " noticed; run the router with the confluent-kafka of its requirements.lock"
            )

    def begin_transaction(self) -> None:
        """As of the producer; ConnectionLostError when a connection was lost since its first transaction began."""
        self.require_connections()
        if self._lost_before is None:
            self._lost_before = self.connections.lost
        super().begin_transaction()

    def commit_transaction(self, timeout: float = -1) -> None:
        """As of the producer."""
        super().commit_transaction(timeout)
        self._committed_s = time.monotonic()

    def flush(self, timeout: float = -1) -> int:
        """As of the producer; KafkaException when it is fenced meanwhile."""
        until_s = math.inf if timeout < 0 else time.monotonic() + timeout
        while True:
            left_s = max(until_s - time.monotonic(), 0)
            waiting = super().flush(min(left_s, _FLUSH_STEP_S))
            if not waiting or not left_s:
                return waiting

    def require_connections(self) -> None:
        """ConnectionLostError when no further transaction may begin; also serves what the client has to hand over."""
        self.poll(0)
        if self._lost_before is not None and self.connections.lost > self._lost_before:
            raise ConnectionLostError(self.connections.last_loss, time.monotonic() - self._committed_s)
