"""Reading the policies topic: the last policy of each scope, and the facts kept of unreadable ones."""

from collections import deque
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_CREATE_TIME, KafkaError, KafkaException, TopicPartition

from index.errors import ConfigError
from index.protocol.headers import Headers
from sidecar.config.model import Config
from sidecar.kafka.client import clients
from sidecar.policies.origin import MAX_CHARACTERS, MOST_CHANGES, NOBODY, Change, ChangeOrigin
from sidecar.policies.policy import DEFAULT, Scope, encode, policy_of
from sidecar.policies.policy import topic_scope as topic
from sidecar.policies.table import NO_POLICIES, PolicyTable
from sidecar.policies.topic import PoliciesOnDemand, PolicyReader, write_policy

CONFIG = Config.model_validate(
    {"kafka": {"bootstrap.servers": "x:1"}, "delay_topics": [{"name": "d", "default_target": "out"}]}
)
D = topic("d")


class Message:
    """A message of a consumer: a record, or an error at an offset."""

    def __init__(
        self,
        offset: int,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Headers | None = None,
        code: int = 0,
    ) -> None:
        self._offset, self._key, self._value, self._headers, self._code = offset, key, value, headers, code

    def topic(self) -> str:
        return CONFIG.router.policies_topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers:
        if self._headers is None:
            raise SystemError("a name that is no UTF-8")
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, 1_000 + self._offset

    def error(self) -> KafkaError | None:
        return KafkaError(self._code) if self._code else None


class Log:
    """A policies topic, and the consumer of it."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes | None, bytes | None, Any]] = []
        self.headers: Any = []
        self.tells_end = True
        self.assigned: list[int] = []
        self._queue: deque[Message] = deque()

    def write(self, scope: Scope, value: bytes | None = None, **values: object) -> None:
        self.records.append((scope.key, encode(policy_of(scope, values)) if values else value, self.headers))

    def list_topics(self, topic: str, _: float) -> None:
        assert topic == CONFIG.router.policies_topic

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned += [place.offset for place in places]
        start = max(places[0].offset, 0)
        self._queue = deque(Message(n, *self.records[n]) for n in range(start, len(self.records)))
        if self.tells_end:
            self._queue.append(Message(len(self.records), code=KafkaError._PARTITION_EOF))

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        assert (place.topic, place.partition) == (CONFIG.router.policies_topic, 0)
        return 0, len(self.records)

    def fail(self, code: int) -> None:
        self._queue.append(Message(0, code=code))

    def poll(self, wait_s: float) -> Message | None:
        assert self._queue or self.tells_end or not wait_s, "it waits for what nobody has written"
        return self._queue.popleft() if self._queue else None

    def consume(self, count: int, wait_s: float) -> list[Message]:
        assert wait_s == 0
        return [self._queue.popleft() for _ in range(min(count, len(self._queue)))]

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


@pytest.mark.parametrize("written", [0, 1, 3])
def test_a_command_reads_what_there_is_and_waits_for_no_more(log: Log, written: int) -> None:
    log.tells_end = False
    for number in range(written):
        log.write(D, tick=f"{number + 1}ms")
    policies = PoliciesOnDemand(CONFIG)
    policies.settle()
    assert policies.table.get(D).tick_ms == (written or None)


def test_the_end_is_told_again_when_asked_and_not_before(log: Log) -> None:
    reader = PolicyReader(CONFIG)
    assert (reader.poll(0), reader.poll(0)) == (True, False)
    log.write(D, tick="1ms")
    reader.look_again()
    assert reader.poll(0)
    reader.look_again()
    assert (log.assigned, reader.table.get(D).tick_ms) == ([OFFSET_BEGINNING, 0, 1], 1)


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
    log.records[:] = [(D.key, b"{", [])]
    found = read(known)
    assert (found.get(D).tick_ms, found.doubtful) == (1, frozenset())
    assert read().doubtful == {D}, "a new process does not know it"


def test_a_key_that_is_no_scope_is_told_and_changes_nothing(log: Log) -> None:
    log.records += [(b"queue/x", b"{}", []), (None, None, [])]
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


def test_who_changed_what_is_read_with_it(log: Log) -> None:
    alice, token = (
        ChangeOrigin("alice", "command", "host"),
        ChangeOrigin("token 0123 (operate)", "admin API", "10.0.0.1"),
    )
    log.headers = alice.headers()
    log.write(D, max_delay="1h")
    log.headers = token.headers()
    log.write(D)
    # A console producer wrote this record, or a router that gave no origin.
    log.headers = []
    log.write(DEFAULT, tick="1ms")
    one_hour, one_ms = policy_of(D, {"max_delay": "1h"}), policy_of(DEFAULT, {"tick": "1ms"})
    assert read().changes == (
        Change(D, one_hour, alice, 1_000),
        Change(D, None, token, 1_001),
        Change(DEFAULT, one_ms, NOBODY, 1_002),
    )


@pytest.mark.parametrize(
    ("headers", "by"),
    [
        ([("changed-by", b"\xff<b>")], "\ufffd<b>"),
        ([("changed-by", None), ("other", b"x")], ""),
        ([("changed-by", b"first"), ("changed-by", b"last")], "last"),
        ([("changed-by", b"x" * 10_000)], "x" * MAX_CHARACTERS),
        (None, ""),
    ],
)
def test_whatever_its_headers_are_a_policy_holds(log: Log, headers: Headers | None, by: str) -> None:
    log.headers = headers
    log.write(D, max_delay="1h")
    table = read()
    assert (table.policies[D].max_delay_ms, table.changes[0].origin) == (3_600_000, ChangeOrigin(by))


def test_the_newest_changes_are_remembered(log: Log) -> None:
    for number in range(MOST_CHANGES + 5):
        log.write(D, max_delay=f"{number}h")
    log.write(D, value=b"not a policy")
    changes = read().changes
    assert len(changes) == MOST_CHANGES
    assert changes[-1].policy == policy_of(D, {"max_delay": f"{MOST_CHANGES + 4}h"})


def test_without_a_policies_topic_the_steps_to_one_are_told() -> None:
    without = CONFIG.model_copy(update={"router": CONFIG.router.model_copy(update={"policies_topic": ""})})
    with pytest.raises(ConfigError, match=r'\("__delay_router_policies"\), create the topic with delay-router init'):
        write_policy(without, D, policy_of(D, {"paused": True}))
