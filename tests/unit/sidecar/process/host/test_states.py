"""Each transition of the table of states, made by the worker that ships, and no other."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random
from threading import Lock
from types import SimpleNamespace
from typing import Any, cast

import pytest

from index.errors import ClusterError, ClusterTrouble, ConnectionLostError, NotYetError, RefusedError
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.context import NO_TRACING
from sidecar.engine.limits import LIMITS
from sidecar.engine.ownership import serving
from sidecar.engine.ownership.status import FOLLOWED_BY, READY, SERVED, PartitionState, PartitionStatus
from sidecar.metrics import Metrics
from sidecar.process.host import worker
from sidecar.process.host.shared import Shared
from sidecar.process.host.worker import Worker
from tests.support.hand_clock import HandClock

EVENTS = 40
AT_ONCE = replace(LIMITS, first_pause_s=0, longest_pause_s=0, look_again_s=0, drained_look_s=0, report_every_s=0)
TRANSITIONS = {(state, after) for state, several in FOLLOWED_BY.items() for after in several}


class Play:
    """Lets one worker meet events at random, and notes the states that it tells; it is host, rounds and partition."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._left = EVENTS
        self._drained = self._paused = False
        self.states: list[PartitionState] = []
        config = SimpleNamespace(
            router=SimpleNamespace(
                group_id="g", transaction_timeout_ms=60_000, session_timeout_ms=10_000, batch_records=10
            ),
            bootstrap="",
        )
        shared = SimpleNamespace(
            clock=HandClock(),
            config=config,
            metrics=Metrics(),
            tracing=NO_TRACING,
            limits=AT_ONCE,
            policies=SimpleNamespace(table=None),
            still_ours=self._still_ours,
            topics_doubted=SimpleNamespace(set=lambda: None),
            turnstile=Lock(),
        )
        self.worker = Worker(cast("Shared", shared), DelayTopicConfig(name="d", default_target="out"), 0)
        tell = self.worker.loop.told.tell
        self.states.append(self.worker.status.state)

        def noted(status: PartitionStatus) -> None:
            self.states.append(status.state)
            tell(status)

        cast("Any", self.worker.loop.told).tell = noted
        self.topic_ids: dict[str, str] = {}
        self.context = None
        self.gate = SimpleNamespace(room_records=1, aside=SimpleNamespace(why=lambda _: ""))
        self.upkeep = SimpleNamespace(hidden=SimpleNamespace(why=lambda _: ""))
        self.serve_client = self.maintain = self.close = self.drain = lambda: None

    def _meet(self, *_: object) -> None:
        """Raise what brokers, the state or a defect may come to, change what policies say, or let all be well."""
        self._left -= 1
        if self._left <= 0:
            self.worker.stop()
        self._drained, self._paused = self._rng.random() < 0.2, self._rng.random() < 0.3
        events: list[Callable[[], object]] = [
            self.worker.stop,
            self.worker.loop.take_over_again,
            lambda: _raise(NotYetError("not yet")),
            lambda: _raise(RefusedError("never")),
            lambda: _raise(ClusterError(ClusterTrouble.UNANSWERED, "gone")),
            lambda: _raise(ConnectionLostError("cut", self._rng.choice([0.0, -100.0]))),
            lambda: _raise(ValueError("a defect")),
        ]
        if self._rng.random() < 0.3:
            self._rng.choice(events)()

    def _still_ours(self, *_: object) -> bool:
        if self._rng.random() < 0.2:
            raise ClusterError(ClusterTrouble.UNANSWERED, "gone")
        return self._rng.random() < 0.8

    def is_drained_by(self, *_: object) -> bool:
        self._left -= 1
        if self._left <= 0:
            self.worker.stop()
        self._drained = self._rng.random() < 0.2
        return self._drained

    def host(self, *_: object) -> "Part":
        self._meet()
        return Part(self)

    fence = replay = once = give_back = _meet

    def take_over(self, *_: object) -> "Part":
        self._meet()
        self._to_replay = self._rng.randrange(3)
        return Part(self)

    def rounds(self, *_: object) -> "Play":
        return self

    @property
    def settings(self) -> Any:
        return SimpleNamespace(drained=self._drained, paused=self._paused, why_paused="")

    @property
    def ledger(self) -> Any:
        self._to_replay -= 1
        committed = SimpleNamespace(cursor=9, watermark=(0, 0))
        return SimpleNamespace(replaying=self._to_replay >= 0, committed=committed, indexed_to=5, pending=0)

    @property
    def is_apart(self) -> bool:
        return self._rng.random() < 0.05

    @property
    def is_drained(self) -> bool:
        return self._rng.random() < 0.5

    def status(self, state: PartitionState, why: str) -> PartitionStatus:
        return PartitionStatus("d", 0, state, why)


class Part:
    """A host or an owned partition of a play: the worker empties it when the ownership ends."""

    def __init__(self, play: Play) -> None:
        self.play = play

    def __getattr__(self, name: str) -> Any:
        return getattr(self.play, name)


def _raise(error: Exception) -> None:
    raise error


def test_the_worker_makes_each_transition_of_the_table_and_no_other(
    rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: set[tuple[PartitionState, PartitionState]] = set()
    plays = 0
    while plays < 100 or (walked != TRANSITIONS and plays < 5_000):
        plays += 1
        play = Play(rng)
        monkeypatch.setattr(worker, "KafkaHost", play.host)
        monkeypatch.setattr(serving, "take_over", play.take_over)
        monkeypatch.setattr(serving, "Rounds", play.rounds)
        monkeypatch.setattr(worker, "is_drained", play.is_drained_by)
        play.worker.run()
        assert play.states[-1] is PartitionState.STOPPED
        walked |= {(before, after) for before, after in pairwise(play.states) if before is not after}
        assert walked <= TRANSITIONS
    assert walked == TRANSITIONS


def test_all_states_are_in_the_table_and_lead_to_the_end() -> None:
    assert FOLLOWED_BY.keys() == set(PartitionState)
    assert [state for state, after in FOLLOWED_BY.items() if PartitionState.STOPPED not in after] == [
        PartitionState.STOPPED
    ]
    assert SERVED < READY
