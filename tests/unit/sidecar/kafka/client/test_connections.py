"""Log lines of librdkafka 2.16.0 that count as a lost connection, and lines that are passed on."""

import ctypes
import logging
import threading
import time

import pytest
from confluent_kafka import KafkaError, KafkaException, ThrottleEvent, cimpl

from sidecar.kafka.client.connections import Connections, RenewableProducer, Silence
from sidecar.kafka.client.errors import Verdict, classify, error_of
from tests.support.hand_clock import HandClock

COORDINATOR = "[thrd:TxnCoordinator]: TxnCoordinator/1: 127.0.0.1:9092:"
LEADER = "[thrd:127.0.0.1:9092/1]: 127.0.0.1:9092/1:"
RESET = "Disconnected: connection reset by peer"
SUPPRESSED = ": identical to last error: error log suppressed"
CLOSED = "Disconnected: connection closed by peer: receive 0 after POLLIN"

LOST = [
    (logging.INFO, "FAIL", f"{COORDINATOR} {RESET} (after 334ms in state UP)"),
    (logging.WARNING, "FAIL", f"{LEADER} {RESET} (after 367ms in state UP, 1 identical error(s) suppressed)"),
    (logging.DEBUG, "FAIL", f"{COORDINATOR} {RESET} (after 21ms in state UP) (_TRANSPORT){SUPPRESSED}"),
    (logging.DEBUG, "FAIL", f"{COORDINATOR} Closing connection due to nodename change (after 19ms in state UP)"),
    (logging.DEBUG, "FAIL", f"{LEADER} Decommissioning this broker (after 17ms in state UP) (_DESTROY_BROKER)"),
    (logging.ERROR, "FAIL", f"{LEADER} 2 request(s) timed out: disconnect (after 60000ms in state UP)"),
    (logging.ERROR, "FAIL", f"{LEADER} Receive failed: SSL error (after 5ms in state REAUTH)"),
    (logging.ERROR, "FAIL", f"{LEADER} {'x' * 500}"),
    (
        logging.WARNING,
        "REQTMOUT",
        f"{LEADER} Timed out 1 in-flight, 0 retry-queued, 0 out-queue requests",
    ),
]
NOT_LOST = [
    (logging.DEBUG, "FAIL", f"{COORDINATOR} {RESET} (after 334ms in state UP) (_TRANSPORT)"),
    (logging.DEBUG, "FAIL", f"{LEADER} {CLOSED} (after 605018ms in state UP) (_TRANSPORT)"),
    (
        logging.ERROR,
        "FAIL",
        f"{LEADER} Connect to ipv4#127.0.0.1:9092 failed (after 0ms in state CONNECT)",
    ),
    (
        logging.DEBUG,
        "FAIL",
        f"{COORDINATOR} Closing due to nodename change (after 1053ms in state TRY_CONNECT)",
    ),
    (logging.ERROR, "FAIL", f"{LEADER} {RESET} (after 3ms in state APIVERSION_QUERY)"),
    (logging.DEBUG, "STATE", f"{LEADER} Broker changed state UP -> DOWN"),
    (logging.DEBUG, "WAKEUP", "[thrd:main]: Wake-up sent to 2 broker threads in state >= INIT: begin transaction"),
]


class Sink(logging.Logger):
    """Keeps the lines that it is given."""

    def __init__(self) -> None:
        super().__init__("sink")
        self.lines: list[tuple[int, tuple[object, ...]]] = []

    def handle(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        assert record.getMessage()
        assert isinstance(record.args, tuple)
        self.lines.append((record.levelno, record.args))


def _given(sink: Sink, level: int, facility: str, text: str, *, shows_debug: bool = False) -> Connections:
    connections = Connections(sink, shows_debug=shows_debug)
    connections.log(level, "%s [%s] %s", facility, "g-release#producer-1", text)
    return connections


@pytest.mark.parametrize(("level", "facility", "text"), LOST)
def test_a_connection_was_lost(level: int, facility: str, text: str) -> None:
    connections = _given(Sink(), level, facility, text)
    assert (connections.lost, connections.last_loss) == (1, text)


@pytest.mark.parametrize(("level", "facility", "text"), NOT_LOST)
def test_no_request_was_under_way(level: int, facility: str, text: str) -> None:
    assert _given(Sink(), level, facility, text).lost == 0


def test_it_is_known_whether_connections_are_told_of() -> None:
    up = f"{LEADER} Broker changed state APIVERSION_QUERY -> UP"
    assert _given(Sink(), logging.DEBUG, "STATE", up).are_told_of
    assert not _given(Sink(), logging.DEBUG, "CONNECT", up).are_told_of
    assert not _given(Sink(), logging.DEBUG, "STATE", f"{LEADER} Broker changed state UP -> DOWN").are_told_of


@pytest.mark.parametrize(("level", "shown", "passed"), [(10, False, 0), (10, True, 1), (20, False, 1), (40, True, 1)])
def test_debug_lines_are_passed_on_where_they_were_asked_for(level: int, shown: bool, passed: int) -> None:
    sink = Sink()
    _given(sink, level, "FAIL", f"{LEADER} {RESET} (after 3ms in state UP)", shows_debug=shown)
    assert len(sink.lines) == passed


@pytest.mark.parametrize("debug", ["", "eos"])
def test_settings_of_the_user_do_not_make_it_deaf(debug: str) -> None:
    deaf: dict[str, str | int | float | bool] = {"log.connection.close": False, "log_level": 0, "debug": debug}
    sink = Sink()
    producer = RenewableProducer({**deaf, "bootstrap.servers": "127.0.0.1:1", "transactional.id": "t"}, sink)
    producer.poll(1)
    facilities = {args[0] for level, args in sink.lines if level == logging.DEBUG}
    # At its start, the client logs its list of brokers, in the context that is needed.
    assert "BROKER" in facilities if debug else not facilities


def test_whoever_is_fenced_while_it_flushes_hears_of_that() -> None:
    """The caller hears neither of a SystemError nor of a KafkaError that is no exception, even while log lines are
    handed over.
    """
    busy = {"enable.idempotence": True, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 10}
    for after_s in [0.0, 0.1] * 6:
        producer = RenewableProducer({**busy, "bootstrap.servers": "127.0.0.1:1"}, Sink())
        producer.produce("t", b"v")
        timer = threading.Timer(after_s, _fence, [producer])
        timer.start()
        with pytest.raises(KafkaException) as raised:
            producer.flush(5)
        assert error_of(raised.value).code() == KafkaError._FENCED
        assert error_of(raised.value).fatal()
        timer.join()


def test_a_flush_ends_when_its_time_is_up() -> None:
    producer = RenewableProducer({"bootstrap.servers": "127.0.0.1:1"}, Sink())
    producer.produce("t", b"v")
    for timeout_s in (0.0, 0.3):
        began_s = time.monotonic()
        assert producer.flush(timeout_s) >= 1
        assert time.monotonic() - began_s >= timeout_s
    producer.purge()
    assert producer.flush() == 0


def _fence(producer: RenewableProducer) -> None:
    """Cause a fatal error in librdkafka that ends the client."""
    fail = ctypes.CDLL(cimpl.__file__).rd_kafka_test_fatal_error
    fail.restype, fail.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    # A client of confluent-kafka holds its handle as its first field.
    fail(ctypes.c_void_p.from_address(id(producer) + object.__basicsize__), KafkaError._FENCED, b"another took over")


SILENCE_S = 0.3


def test_a_producer_gives_up_records_that_no_broker_takes() -> None:
    producer = RenewableProducer({"bootstrap.servers": "127.0.0.1:1"}, Sink(), silence_s=SILENCE_S)
    producer.produce("t", b"v")
    began_s = time.monotonic()
    with pytest.raises(KafkaException, match=r"taken no record of the transaction for 0\.3 s") as raised:
        producer.flush()
    assert SILENCE_S <= time.monotonic() - began_s < 10 * SILENCE_S
    assert classify(error_of(raised.value)) is Verdict.REBUILD
    producer.purge()


def test_a_record_that_the_brokers_take_ends_a_silence_and_a_line_that_is_logged_does_not() -> None:
    clock = HandClock()
    silence = _silence(clock)
    for waiting in (9, 8, 9, 8):
        silence.require_answers(waiting)
        clock.go_on(4.5)
    with pytest.raises(KafkaException):
        silence.require_answers(8)


def test_a_silence_begins_after_the_time_for_which_a_broker_throttles() -> None:
    clock = HandClock()
    silence = _silence(clock)
    silence.require_answers(1)
    silence.throttled(ThrottleEvent("broker", 1, 30.0))
    clock.go_on(39.0)
    silence.require_answers(1)
    clock.go_on(1.0)
    with pytest.raises(KafkaException):
        silence.require_answers(1)


def test_no_silence_without_records_and_a_new_one_for_other_records() -> None:
    clock = HandClock()
    silence = _silence(clock)
    silence.require_answers(0)
    clock.go_on(20.0)
    silence.require_answers(0)
    silence.begin()
    silence.require_answers(5)
    clock.go_on(9.0)
    silence.require_answers(5)


def _silence(clock: HandClock) -> Silence:
    return Silence(10.0, None, clock.running_s)
