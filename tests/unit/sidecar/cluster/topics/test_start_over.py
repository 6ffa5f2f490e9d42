"""Commands that write the state of a partition, while a running router takes the partition back."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple, cast
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from index.errors import DelayRouterError, RefusedError
from index.named.series_in_log import SeriesInLog
from index.pending.progress import start_of
from sidecar.cluster.topics import reach, start_over
from sidecar.cluster.topics.start_over import ATTEMPTS, StartOver, done_unless_fenced
from sidecar.config.model import Config
from sidecar.kafka.doubts.look import DoubtFinder
from snapshots.state.claim import claim_key, encode_claim
from snapshots.state.state import PROGRESS_KEY, encode_progress


def failing(times: int, code: int) -> Callable[[], None]:
    """Return a write that fails as often as this."""
    left = [KafkaException(KafkaError(code))] * times

    def write() -> None:
        if left:
            raise left.pop()

    return write


@pytest.mark.parametrize(("times", "is_done"), [(0, True), (ATTEMPTS - 1, True), (ATTEMPTS, False)])
def test_a_fenced_write_is_tried_again(times: int, *, is_done: bool) -> None:
    assert done_unless_fenced(failing(times, KafkaError._FENCED)) is is_done


def test_another_error_is_not_tried_again() -> None:
    with pytest.raises(KafkaException):
        done_unless_fenced(failing(1, KafkaError.TOPIC_AUTHORIZATION_FAILED))


class Stored(NamedTuple):
    """A record of a state partition."""

    key: bytes
    value: bytes


class StateTopic:
    """Stands for the producers that have these rights, and for the state that they write."""

    def __init__(self, claimed: str, may_fence: set[str]) -> None:
        self.stored = [Stored(claim_key(claimed), encode_claim())]
        self.done: list[str] = []
        self._may_fence = may_fence

    def fence(self, _: Config, transactional_id: str) -> "StateTopic":
        if transactional_id not in self._may_fence:
            raise KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        self.done.append(transactional_id)
        return self

    def produce(self, _: str, value: bytes, key: bytes, __: int) -> None:
        self.stored.append(Stored(key, value))
        self.done.append("claim")

    def begin_transaction(self) -> None: ...

    def commit_transaction(self) -> None: ...

    def poll(self, _: float) -> None: ...


def configured(**router: int) -> Config:
    return Config.model_validate(
        {
            "kafka": {"bootstrap.servers": "b:9092"},
            "router": {"group_id": "new", **router},
            "delay_topics": [{"name": "d", "default_target": "out"}],
        }
    )


@pytest.mark.parametrize(
    ("may_fence", "done"),
    [({"new.d.0", "old.d.0"}, ["new.d.0", "old.d.0", "claim", "old.d.0"]), ({"new.d.0"}, ["new.d.0"])],
)
def test_a_claim_is_written_behind_a_fence_of_the_other_group(
    may_fence: set[str], done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other group is fenced again behind the claim; a command that may not fence it writes no claim."""
    state = StateTopic("old", may_fence)
    monkeypatch.setattr(start_over, "_fencing", state.fence)
    monkeypatch.setattr(DoubtFinder, "wait_for_state", lambda _: None)
    monkeypatch.setattr(start_over, "read_settled", lambda *_: list(state.stored))
    config = configured()
    lacks = "routers of group old have served d/0, and group new may not fence them: this user may not Write"
    grant = "--operation Write --transactional-id old. --resource-pattern-type prefixed"
    denied = pytest.raises(RefusedError, match=f"{lacks} transactional id old.d.0.* to grant it: .* {grant}")
    with nullcontext() if "old.d.0" in may_fence else denied:
        start_over.fenced_producer(config, cast("AdminClient", None), config.delay_topics[0], 0)
    assert state.done == done


PROGRESS = Stored(PROGRESS_KEY, encode_progress(start_of(0), "id"))
DAMAGED = Stored(PROGRESS_KEY, b"damaged")


@pytest.mark.parametrize(
    ("stored", "lanes", "members", "is_refused"),
    [
        ([], 1, 2, True),
        ([DAMAGED], 1, 2, True),
        ([PROGRESS], 1, 2, False),
        ([], 1, 0, False),
        ([], 0, 2, False),
    ],
    ids=["lost", "damaged", "known", "stopped", "no lanes"],
)
def test_no_state_is_replaced_that_a_router_may_write_by_an_unknown_lane(
    stored: list[Stored], lanes: int, members: int, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool
) -> None:
    config, replace = configured(lanes=lanes), Mock()
    monkeypatch.setattr(reach, "require_rights", Mock())
    monkeypatch.setattr(start_over, "read_settled", lambda *_: stored)
    monkeypatch.setattr(start_over, "member_count", lambda *_: members)
    monkeypatch.setattr(start_over, "_replace_state", replace)
    planned = StartOver(config.delay_topics[0], 0, 0, 0, len(stored), SeriesInLog())
    refused = pytest.raises(DelayRouterError, match=r"d/0: .* Group new still has members \(2\): stop its routers")
    with refused if is_refused else nullcontext():
        start_over.start_over(config, cast("AdminClient", None), planned)
    assert replace.called is not is_refused
