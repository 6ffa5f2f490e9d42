"""Reading the policies topic: the last policy of each scope, and what is kept of those that cannot be read."""

from collections import deque

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from sidecar.config.model import Config
from sidecar.kafka import clients
from sidecar.policies.policy import DEFAULT, Scope, encode, policy_of
from sidecar.policies.policy import topic_scope as topic
from sidecar.policies.table import NO_POLICIES, PolicyTable
from sidecar.policies.topic import PolicyReader

CONFIG = Config.model_validate(
    {"kafka": {"bootstrap.servers": "x:1"}, "delay_topics": [{"name": "d", "default_target": "out"}]}
)
D = topic("d")


class Message:
    """What a consumer hands over: a record, or an error at an offset."""

    def __init__(self, offset: int, key: bytes | None = None, value: bytes | None = None, code: int = 0) -> None:
        self._offset, self._key, self._value, self._code = offset, key, value, code

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def error(self) -> KafkaError | None:
        return KafkaError(self._code) if self._code else None


class Log:
    """A policies topic, and the consumer of it."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes | None, bytes | None]] = []
        self._queue: deque[Message] = deque()

    def write(self, scope: Scope, value: bytes | None = None, **values: object) -> None:
        self.records.append((scope.key, encode(policy_of(scope, values)) if values else value))

    def list_topics(self, topic: str, _: float) -> None:
        assert topic == CONFIG.router.policies_topic

    def assign(self, places: list[TopicPartition]) -> None:
        start = max(places[0].offset, 0)
        self._queue = deque(Message(n, *self.records[n]) for n in range(start, len(self.records)))
        self._queue.append(Message(len(self.records), code=KafkaError._PARTITION_EOF))

    def fail(self, code: int) -> None:
        self._queue.append(Message(0, code=code))

    def poll(self, _: float) -> Message | None:
        return self._queue.popleft() if self._queue else None

    def close(self) -> None:
        self._queue.clear()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    monkeypatch.setattr(clients, "policy_reader", lambda _: made)
    return made


def read(known: PolicyTable = NO_POLICIES) -> PolicyTable:
    reader = PolicyReader(CONFIG, known)
    assert reader.poll(0), "the end is reached"
    return reader.table


def test_the_last_policy_of_a_scope_holds(log: Log) -> None:
    log.write(D, tick="1ms")
    log.write(DEFAULT, tick="3ms")
    log.write(D, tick="2ms", paused=True)
    assert read().get(D) == policy_of(D, {"tick": "2ms", "paused": True})
    log.write(D)
    found = read()
    assert found.get(D) == policy_of(D, {})
    assert found.get(DEFAULT).tick_ms == 3


def test_the_end_is_told_again_when_asked_and_not_before(log: Log) -> None:
    reader = PolicyReader(CONFIG)
    assert (reader.poll(0), reader.poll(0)) == (True, False)
    log.write(D, tick="1ms")
    reader.look_again()
    assert reader.poll(0)
    assert (reader.next_offset, reader.table.get(D).tick_ms) == (1, 1)


@pytest.mark.parametrize("damaged", [b"{", b'{"version": 9}', b'{"version": 1, "default_target": "d.rejected"}'])
def test_what_cannot_be_read_keeps_the_last_good_one(log: Log, damaged: bytes) -> None:
    log.write(D, tick="1ms")
    log.write(D, damaged)
    found = read()
    assert found.get(D).tick_ms == 1
    assert list(found.unreadable) == ["topic/d"]
    assert not found.doubtful
    log.write(D, tick="2ms")
    assert read().unreadable == {}


def test_what_compaction_has_removed_is_known_from_an_earlier_read(log: Log) -> None:
    log.write(D, tick="1ms")
    known = read()
    log.records[:] = [(D.key, b"{")]
    found = read(known)
    assert (found.get(D).tick_ms, found.doubtful) == (1, frozenset())
    assert read().doubtful == {D}, "a new process does not know it"


def test_a_key_that_is_no_scope_is_told_and_changes_nothing(log: Log) -> None:
    log.records += [(b"queue/x", b"{}"), (None, None)]
    log.write(D, tick="1ms")
    found = read()
    assert list(found.unreadable) == ["b'queue/x'", "None"]
    assert (found.get(D).tick_ms, found.doubtful) == (1, frozenset())


def test_a_policy_of_another_routers_delay_topic_is_none_of_ours(log: Log) -> None:
    log.write(topic("other"), tick="1ms")
    assert read().unreadable == {}


def test_a_topic_that_cannot_be_read_is_an_error(log: Log) -> None:
    reader = PolicyReader(CONFIG)
    assert reader.poll(0)
    log.fail(KafkaError._AUTO_OFFSET_RESET)
    with pytest.raises(KafkaException):
        reader.poll(0)
