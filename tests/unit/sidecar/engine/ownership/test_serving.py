"""The decisions of the loop that serves a partition: when it asks the group, and how long it pauses after each end."""

from collections import deque
from contextlib import AbstractContextManager, nullcontext
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from index.errors import ClusterError, ClusterTrouble, ConnectionLostError, NotYetError, RefusedError
from index.partition.transaction_size import TransactionSize
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.context import PartitionContext
from sidecar.engine.limits import LIMITS
from sidecar.engine.ownership import serving
from sidecar.engine.ownership.serving import ServingLoop
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.metrics import Metrics
from tests.support.hand_clock import HandClock

SESSION_TIMEOUT_S = 10.0
UNANSWERED = ClusterError(ClusterTrouble.UNANSWERED, "no answer", code="_TIMED_OUT")
FENCED = ClusterError(ClusterTrouble.OTHER, "fenced", code="_FENCED")


class Scene:
    """The process of one loop: its rounds meet ``ends`` in order, then no error; the group gives ``answers``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *ends: Exception | None) -> None:
        self.ends = deque(ends)
        self.answers: deque[bool | Exception] = deque()
        self.happened: list[str] = []
        self.is_now_stopping = self.is_now_drained = self.is_sealed = False
        monkeypatch.setattr(serving, "take_over", lambda *_: self._owned())
        monkeypatch.setattr(serving, "Rounds", lambda *_: SimpleNamespace(once=self._once))
        self.clock = HandClock()
        context = PartitionContext(DelayTopicConfig(name="d"), 0, "g", Metrics(), self.clock)
        size = TransactionSize(1 << 20, 60.0)
        self.loop = ServingLoop(context, self, size, 10, SESSION_TIMEOUT_S, "")
        self._steps = self.loop.steps()

    def step(self) -> tuple[PartitionState, float]:
        """Do a step, and return the state that the loop has told, and its pause."""
        pause_s = next(self._steps)
        return self.loop.told.last.state, pause_s

    def end(self) -> None:
        self.is_now_stopping = True
        assert not any(self._steps), "no pause follows"

    def happened_since(self) -> list[str]:
        happened, self.happened = self.happened, []
        return happened

    def host(self) -> Any:
        self.happened.append("host")
        self.made = SimpleNamespace(
            context=None,
            topic_ids={"d": "id"},
            is_apart=False,
            fence=lambda _: None,
            serve_client=lambda: None,
            close=lambda: self.happened.append("closed"),
        )
        return self.made

    def _owned(self) -> Any:
        progress = SimpleNamespace(cursor=1, watermark=(0, 0))
        part = SimpleNamespace(
            ledger=SimpleNamespace(replaying=False, committed=progress, pending=0),
            gate=SimpleNamespace(room_records=1, aside=SimpleNamespace(why=lambda _: "")),
            upkeep=SimpleNamespace(hidden=SimpleNamespace(why=lambda _: "")),
            settings=SimpleNamespace(drained=False, paused=False, why_paused=""),
            is_drained=False,
            maintain=lambda: None,
            status=lambda state, why: PartitionStatus("d", 0, state, why),
            drain=lambda: self.happened.append("draining"),
            give_back=lambda: self.happened.append("given back"),
            close=lambda: None,
        )
        self.part = part
        return part

    def _once(self) -> None:
        self.part.settings.drained = self.is_now_drained
        self.part.is_drained = self.is_sealed
        end = self.ends.popleft() if self.ends else None
        if end is not None:
            raise end

    def still_ours(self) -> bool:
        self.happened.append("asked")
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def is_stopping(self) -> bool:
        return self.is_now_stopping

    def is_drained(self) -> bool:
        return self.is_now_drained

    def doubt_topics(self) -> None:
        self.happened.append("doubted")

    def errors(self) -> AbstractContextManager[None]:
        return nullcontext()

    def why_slow(self, _: float) -> str:
        return ""


def test_an_assigned_partition_is_taken_over_at_once_and_given_back_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    assert scene.step() == (PartitionState.RESTORING, 0.0)
    assert (scene.loop.rounds is not None, scene.loop.topic_ids) == (True, {"d": "id"})
    assert scene.step() == (PartitionState.ACTIVE, 0.0)
    assert scene.happened_since() == ["host"]
    scene.end()
    assert scene.happened_since() == ["given back", "closed"]
    assert (scene.loop.rounds, scene.loop.told.last.state) == (None, PartitionState.STOPPED)
    assert vars(scene.made) == vars(scene.part) == {}, "no circle of references keeps a client"


def test_a_worker_that_was_fenced_asks_the_group_before_it_takes_over_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, FENCED)
    scene.step()
    assert scene.step() == (PartitionState.WAITING, 0.2)
    assert scene.happened_since() == ["host", "closed", "doubted"]
    scene.answers.extend([False, UNANSWERED, True])
    assert scene.step() == (PartitionState.WAITING, 0.4)
    assert scene.loop.told.last.why == "the group has given it to another member"
    assert scene.step() == (PartitionState.WAITING, 0.4)
    assert scene.loop.told.last.why == "_TIMED_OUT: no answer"
    assert scene.step() == (PartitionState.RESTORING, 0.0)
    assert scene.happened_since() == ["asked", "asked", "asked", "host"]
    assert scene.loop.told.last.why == "again, after: _TIMED_OUT: no answer"


@pytest.mark.parametrize("end", [NotYetError("not yet"), UNANSWERED])
def test_each_pause_is_longer_until_a_round_reports(monkeypatch: pytest.MonkeyPatch, end: Exception) -> None:
    scene = Scene(monkeypatch, *[end] * 8, None, end)
    scene.answers.extend([True] * 9)
    pauses_s = []
    for _ in range(8):
        scene.step()
        pauses_s.append(scene.step()[1])
    assert pauses_s == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, LIMITS.longest_pause_s, LIMITS.longest_pause_s]
    scene.step()
    assert scene.step() == (PartitionState.ACTIVE, 0.0)
    assert scene.step() == (PartitionState.WAITING, 0.2)
    assert "doubted" not in scene.happened


@pytest.mark.parametrize(("since_commit_s", "asks"), [(0.0, False), (4.9, False), (5.0, True), (inf, True)])
def test_after_a_lost_connection_only_a_fresh_commit_spares_the_question(
    monkeypatch: pytest.MonkeyPatch, since_commit_s: float, *, asks: bool
) -> None:
    error = ConnectionLostError("cut", 0.0)
    scene = Scene(monkeypatch, error)
    error.committed_s = scene.clock.running_s() - since_commit_s
    scene.answers.append(True)
    scene.step()
    assert scene.step() == (PartitionState.RESTORING, 0.0)
    assert scene.happened_since() == ["host", "closed"]
    scene.step()
    assert scene.happened_since() == [*["asked"] * asks, "host"]


@pytest.mark.parametrize("answer", [True, UNANSWERED])
def test_a_refusal_is_told_unless_the_partition_has_another_owner(
    monkeypatch: pytest.MonkeyPatch, answer: bool | Exception
) -> None:
    scene = Scene(monkeypatch, RefusedError("other log"), RefusedError("records are gone"))
    scene.answers.extend([answer, True, False])
    with capture_logs() as logs:
        scene.step()
        assert scene.step() == (PartitionState.REFUSED, LIMITS.look_again_s)
        assert scene.happened_since() == ["host", "closed", "asked", "doubted"]
        scene.step()
        assert scene.step() == (PartitionState.WAITING, 0.2)
    assert [line["why"] for line in logs if line["event"] == "partition_refused"] == ["other log"]


def test_a_defect_is_told_and_the_partition_taken_over_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ValueError("a defect"))
    scene.answers.append(True)
    with capture_logs() as logs:
        scene.step()
        assert scene.step() == (PartitionState.WAITING, LIMITS.look_again_s)
    assert [line["why"] for line in logs if line["event"] == "partition_failed"] == ["ValueError('a defect')"]
    assert scene.step() == (PartitionState.RESTORING, 0.0)


@pytest.mark.parametrize(
    "error",
    [ConnectionLostError("cut", -inf), NotYetError("soon"), RefusedError("never"), FENCED, ValueError("a defect")],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_a_lane_keeps_does_not_keep_the_ownership(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    scene = Scene(monkeypatch, error)
    scene.answers.extend([True, True])
    scene.step()
    scene.step()
    assert scene.happened_since()[:2] == ["host", "closed"], "the error has ended the ownership"
    assert error.__traceback__ is None


def test_a_drained_partition_is_sealed_and_given_back_and_served_again_after_the_drain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch)
    scene.step()
    scene.is_now_drained = True
    scene.step()
    assert scene.step() == (PartitionState.ACTIVE, 0.0)
    assert (scene.loop.told.last.why, scene.happened_since()) == ("draining", ["host", "draining"])
    scene.is_sealed = True
    scene.step()
    scene.step()
    assert scene.happened_since() == ["given back", "closed"]
    assert scene.step() == (PartitionState.DRAINED, 0.5)
    scene.is_now_drained = False
    scene.answers.append(True)
    assert scene.step() == (PartitionState.RESTORING, 0.0)


def test_a_partition_that_cannot_be_sealed_is_given_back_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.step()
    scene.is_now_drained = True
    scene.step()
    scene.step()
    scene.clock.go_on(LIMITS.drain_within_s)
    scene.step()
    assert scene.step() == (PartitionState.DRAINED, 0.5)


def test_after_a_drain_the_group_is_asked_even_if_the_partition_was_assigned_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch)
    scene.is_now_drained = True
    assert scene.step() == (PartitionState.DRAINED, 0.5)
    scene.is_now_drained = False
    scene.answers.append(False)
    assert scene.step() == (PartitionState.WAITING, 0.2)
    assert scene.happened_since() == ["asked"]


def test_a_partition_that_holds_up_its_lane_or_has_other_topics_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.answers.extend([True, True])
    scene.step()
    scene.made.is_apart = True
    scene.step()
    assert scene.step() == (PartitionState.RESTORING, 0.0)
    scene.loop.take_over_again()
    scene.step()
    assert scene.step() == (PartitionState.RESTORING, 0.0)
    assert scene.happened_since() == ["host", *["given back", "closed", "asked", "host"] * 2]
    assert scene.step() == (PartitionState.ACTIVE, 0.0), "the new knowledge of the topics holds"
