"""A transactional producer that begins no further transaction once it has lost a connection under its transactions.

librdkafka repeats a request by itself when it has lost the connection on which it sent the request. The first copy may
still be on its way, and it carries neither a number nor the name of its transaction. An EndTxn that arrives late ends
the transaction that is open by then: it commits or aborts half of the *next* transaction of the same epoch (librdkafka
has no KIP-890 client). So after a loss this producer begins no further transaction. The take-over that follows gets a
new epoch, which fences every copy still on its way, and reads from the state topic how the last transaction ended.

How the producer notices a loss (measured with librdkafka 2.16.0 on 4.3.1 brokers, 90 answers cut off with their
connection):

* The error callback reported 30 losses, and none of the coordinator's connection, over which EndTxn goes.
* Log lines of warning or info showed 45: librdkafka does not repeat the same error on the same broker within 30 s.
* Lines of the debug context ``broker`` showed all 90. The thread of the connection queues its line before it gives the
  requests back to be sent again. So the line lies in the queue before the answer to a repetition can, and one poll at
  the beginning of the next transaction is enough. The cost is three lines a transaction, which no log shows.
* Statistics count every loss, but they come once a second at best, and never on request.

If a version of librdkafka words or queues these lines otherwise, the producer does not even hear of the connections
that ``init`` made. It is then refused before its first transaction.

Three kinds of loss do not count: connections that failed before they were up; losses before the first transaction (the
repeated request is then ``init``, and a late copy of it fences); and idle connections, with no traffic for a minute and
no request under way, which brokers close after ``connections.max.idle.ms``. An idle connection that goes within a
millisecond of the coordinator's counts, because the client has queued a request for metadata on it by then (measured);
that costs one take-over. Every other loss counts also while no transaction is open. A broker that went away may have
left a transaction behind; the take-over looks for it now, so that a record that is due later does not have to wait.

Lines thus arrive all the time, and one behaviour of confluent-kafka must be avoided. When a client meets its fatal
error, for instance because it is fenced, poll or flush raises it; but a flush of 0.2 s or more goes on calling back
with the error set. Python code called in that state fails at any point, and flush raises a SystemError, or a bare
KafkaError, which is no exception and passes every ``except Exception`` (measured with 2.16.1).

A dead broker to which the producer has had no connection shows no loss. Records for it wait until
``message.timeout.ms``, and the other partitions of the transaction with them. librdkafka then reports the same error as
for a topic that does not exist, so that two more attempts would follow: a lane stood still for 62 s (measured). So the
producer gives a transaction up after a *silence*: the brokers have taken none of its records for a while, and they have
not throttled it. The take-over that follows finds the partition that does not answer.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, ThrottleEvent

from index.errors import ConnectionLostError, RefusedError
from sidecar.kafka.client.errors import Verdict, classify, error_of, tells_of_connection, tells_of_loss
from sidecar.kernel.librdkafka import WatchedProducer

_CONTEXT: Final = "broker"

_FLUSH_STEP_S: Final = 0.1
"""Duration of one flush. From 0.2 s on confluent-kafka divides a flush itself, and goes on after an error."""

_COMMIT_STEP_S: Final = 0.5
"""The longest time between two looks whether the brokers take the records of a transaction that is to be committed."""

OnThrottle = Callable[[ThrottleEvent], None]


class Connections:
    """The ``logger`` of a client: counts the connections that the client reports as lost, and passes its lines on.

    The client delivers lines while it is polled, in the thread that polls. Debug lines are passed on only with
    ``shows_debug``: without that setting of the user they exist only for this count.
    """

    def __init__(self, sink: logging.Logger, *, shows_debug: bool = False) -> None:
        self._sink = sink
        self._shows_debug = shows_debug
        self.are_told_of = False
        self.lost = 0
        self.last_loss = ""

    def log(self, level: int, msg: str, /, *args: object) -> None:
        """Take one line; the arguments are the facility of librdkafka, the name of the client and the text."""
        facility, text = str(args[0]), str(args[-1])
        if tells_of_loss(facility, text, is_debug=level <= logging.DEBUG):
            self.lost += 1
            self.last_loss = text
        self.are_told_of |= tells_of_connection(facility, text)
        if level > logging.DEBUG or self._shows_debug:
            self._sink.log(level, msg, *args)


class Silence:
    """Notices that the brokers take no record of a transaction.

    It is apart from its producer, because a client refers to its callbacks: a cycle with the producer would stay while
    garbage collection is off. ``most_s`` is the longest silence. ``on_throttle`` hears of each throttled request.
    ``now_s`` returns seconds that only go forward.
    """

    def __init__(
        self, most_s: float, on_throttle: OnThrottle | None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._most_s = most_s
        self._on_throttle = on_throttle
        self._now_s = now_s
        self._least_waiting = math.inf
        self._from_s = -math.inf

    def begin(self) -> None:
        """Begin again, because records are to follow."""
        self._least_waiting = math.inf

    def throttled(self, event: ThrottleEvent) -> None:
        """Note that a broker takes the next request later by ``throttle_time``, so that a silence begins later."""
        self._from_s = max(self._from_s, self._now_s() + event.throttle_time)
        if self._on_throttle is not None:
            self._on_throttle(event)

    def require_answers(self, waiting: int) -> None:
        """Raise KafkaException if the number of records that wait has not fallen for too long."""
        now_s = self._now_s()
        if waiting < self._least_waiting:
            self._least_waiting, self._from_s = waiting, max(now_s, self._from_s)
        elif waiting and now_s - self._from_s >= self._most_s:
            why = f"the brokers have taken no record of the transaction for {self._most_s:g} s"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, why))


class RenewableProducer(WatchedProducer):
    """A transactional producer of one thread that refuses to begin a transaction once it has lost a connection.

    It gives a transaction up after a silence of ``silence_s``. ``on_throttle`` is called in the thread that polls or
    commits.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        sink: logging.Logger,
        *,
        silence_s: float = math.inf,
        on_throttle: OnThrottle | None = None,
    ) -> None:
        """Take settings of librdkafka; the settings that make connections and throttling audible win over them."""
        debug = str(settings.get("debug", ""))
        # Made first, because librdkafka may log while it begins.
        self.connections = Connections(sink, shows_debug=bool(debug))
        self._lost_before: int | None = None
        self._committed_s = -math.inf
        self._silence = Silence(silence_s, on_throttle)
        own: dict[str, Any] = {
            "debug": ",".join(filter(None, (debug, _CONTEXT))),
            "log_level": 7,
            # Distinguishes idle connections from others.
            "log.connection.close": True,
            # A request without a timely answer closes its connection.
            "socket.max.fails": 1,
            "throttle_cb": self._silence.throttled,
        }
        super().__init__({**settings, **own}, logger=self.connections)

    def init_transactions(self, timeout: float = -1) -> None:
        """Fence the old owner; raise RefusedError when this librdkafka does not report its connections."""
        super().init_transactions(timeout)
        self.poll(0)
        if not self.connections.are_told_of:
            raise RefusedError(
                "this librdkafka does not log its connections as 2.16.0 does, so that a repeated EndTxn would not be"
                " noticed; run the router with the confluent-kafka of its requirements.lock"
            )

    def begin_transaction(self) -> None:
        """Begin a transaction; raise ConnectionLostError when a connection was lost since the first one began."""
        self.require_connections()
        if self._lost_before is None:
            self._lost_before = self.connections.lost
        super().begin_transaction()
        self._silence.begin()

    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit the open transaction in steps, and note the time of the commit.

        Raise KafkaException when the commit has not ended within the timeout, which another call resumes, and after a
        silence.
        """
        until_s = math.inf if timeout < 0 else time.monotonic() + timeout
        while True:
            left_s = max(until_s - time.monotonic(), 0)
            try:
                super().commit_transaction(min(left_s, _COMMIT_STEP_S))
            except KafkaException as exception:
                if classify(error_of(exception)) is not Verdict.RETRY or not left_s:
                    raise
                # Log lines, which also count as records, are handed over first.
                self.poll(0)
                self._silence.require_answers(len(self))
            else:
                self._committed_s = time.monotonic()
                return

    def flush(self, timeout: float = -1) -> int:
        """Flush in short steps; raise KafkaException when the producer is fenced meanwhile, and after a silence."""
        until_s = math.inf if timeout < 0 else time.monotonic() + timeout
        while True:
            left_s = max(until_s - time.monotonic(), 0)
            waiting = super().flush(min(left_s, _FLUSH_STEP_S))
            if not waiting or not left_s:
                self._silence.begin()
                return waiting
            self._silence.require_answers(waiting)

    def require_connections(self) -> None:
        """Raise ConnectionLostError when no further transaction may begin; this also serves the client's callbacks."""
        self.poll(0)
        if self._lost_before is not None and self.connections.lost > self._lost_before:
            raise ConnectionLostError(self.connections.last_loss, self._committed_s)
