"""Doubts are looked at again until none is left, and a silent cluster ends none."""

from concurrent.futures import Future

from index.errors import ClusterError, ClusterTrouble
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.context import PartitionContext
from sidecar.engine.release.aside import Doubt, Doubts
from sidecar.engine.release.watch import LOOK_EVERY_S, DoubtWatch
from sidecar.metrics import Metrics
from tests.support.hand_clock import HandClock

ONE, OTHER = ("out", 0), ("out", 1)
DOUBT = Doubt(1, 2, 0)


class Cluster:
    """Answers when the test calls it."""

    def __init__(self) -> None:
        self.asked: list[Doubts] = []
        self.answers: list[Future[Doubts]] = []

    def look_again(self, doubts: Doubts) -> "Future[Doubts]":
        self.asked.append(doubts)
        self.answers.append(Future())
        return self.answers[-1]


def test_doubts_end_when_the_cluster_says_so() -> None:
    clock, cluster, used = HandClock(), Cluster(), list[Doubts]()
    context = PartitionContext(DelayTopicConfig(name="d"), 0, "g", Metrics(), clock)
    watch = DoubtWatch(context, used.append, cluster.look_again)
    watch.turn()
    assert (cluster.asked, used) == ([], [])
    watch.begin({ONE: DOUBT, OTHER: None})
    assert used == [{ONE: DOUBT, OTHER: None}]
    watch.turn()
    watch.turn()
    assert len(cluster.asked) == 1
    unanswered = ClusterError(ClusterTrouble.UNANSWERED, "no answer")
    cluster.answers[0].set_exception(unanswered)
    watch.turn()
    assert len(used) == 1
    assert unanswered.__traceback__ is None, "the error keeps no frame, and so no gate"
    clock.sleep(LOOK_EVERY_S)
    watch.turn()
    cluster.answers[1].set_result({ONE: DOUBT})
    watch.turn()
    assert used[1:] == [{ONE: DOUBT}]
    clock.sleep(LOOK_EVERY_S)
    watch.turn()
    assert cluster.asked[-1] == {ONE: DOUBT}
    cluster.answers[2].set_result({})
    watch.turn()
    clock.sleep(LOOK_EVERY_S)
    watch.turn()
    assert (used[2:], len(cluster.asked)) == ([{}], 3)
