"""The end of a delay partition that an open transaction hides: the requests to the cluster, and the report."""

from collections.abc import Callable
from concurrent.futures import Future

from structlog.testing import capture_logs

from index.errors import ClusterError, ClusterTrouble
from sidecar.engine.buckets.hidden_end import AFTER_S, ASK_EVERY_S, Edges, HiddenEnd

PLACE = ("orders.delay", 3)


class Cluster:
    """A cluster with prepared answers."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Edges | Exception = Edges(10, 50)

    def ask(self) -> "Future[Edges]":
        self.asked += 1
        future: Future[Edges] = Future()
        if isinstance(self.answer, Exception):
            future.set_exception(self.answer)
        else:
            future.set_result(self.answer)
        return future


def watched(cluster: Cluster) -> tuple[HiddenEnd, Callable[[float, int, int], float]]:
    watch = HiddenEnd(cluster.ask, "kafka:9092", PLACE)

    def turn(now_s: float, indexed_to: int, lag: int) -> float:
        watch.turn(now_s, indexed_to, lag)
        watch.turn(now_s, indexed_to, lag)  # takes in the answer
        return watch.seconds(now_s)

    return watch, turn


def test_nobody_is_asked_while_it_moves_or_has_read_all() -> None:
    cluster = Cluster()
    _, turn = watched(cluster)
    for now_s in range(100):
        turn(now_s, 10 + now_s, 40)
        turn(now_s, 10 + now_s, 0)
    assert cluster.asked == 0


def test_intake_that_stands_still_before_what_it_could_read_is_not_hidden() -> None:
    cluster = Cluster()
    cluster.answer = Edges(30, 50)
    _, turn = watched(cluster)
    assert [turn(now_s, 10, 40) for now_s in (0, 5, 11, 30)] == [0, 0, 0, 0]
    cluster.answer = Edges(50, 50)
    assert turn(60, 10, 40) == 0


def test_it_ends_as_soon_as_the_transaction_does() -> None:
    cluster = Cluster()
    watch, turn = watched(cluster)
    assert [turn(now_s, 10, 40) for now_s in (0, 9, 11, 31)] == [0, 0, 11, 31]
    assert "--bootstrap-server kafka:9092 abort --topic orders.delay --partition 3 --start-offset 10" in watch.why(31)
    assert (turn(32, 50, 0), watch.why(32)) == (0, "")


def test_brokers_that_do_not_answer_are_asked_again() -> None:
    cluster = Cluster()
    cluster.answer = unanswered = ClusterError(ClusterTrouble.UNANSWERED, "no answer")
    _, turn = watched(cluster)
    assert [turn(now_s, 10, 40) for now_s in (0, 11, 12)] == [0, 0, 0]
    assert unanswered.__traceback__ is None, "the error keeps no frame, and so no index"
    cluster.answer = Edges(10, 50)
    assert turn(17, 10, 40) == 17


def test_the_cluster_is_asked_once_it_has_stood_still_for_long_and_then_now_and_then() -> None:
    cluster = Cluster()
    _, turn = watched(cluster)
    asked = []
    for now_s in (100, 100 + AFTER_S - 0.1, 100 + AFTER_S, 104.9 + AFTER_S, 100 + AFTER_S + ASK_EVERY_S):
        turn(now_s, 10, 1)
        asked.append(cluster.asked)
    assert asked == [0, 0, 1, 1, 2]
    turn(200, 11, 1)
    turn(200 + AFTER_S - 0.1, 11, 1)
    assert cluster.asked == 2, "it has moved, so the time counts anew"


def test_it_is_told_once_that_the_end_is_hidden_and_once_that_it_is_no_longer() -> None:
    cluster = Cluster()
    _, turn = watched(cluster)
    with capture_logs() as logs:
        for now_s in (0, 10, 15, 20):
            turn(now_s, 10, 40)
        turn(31.6, 11, 39)
        turn(32, 11, 39)
    assert [each["event"] for each in logs] == ["delay_topic_hidden", "delay_topic_no_longer_hidden"]
    assert "hides offsets 10 to 49 for 10 s. " in logs[0]["why"]
    assert logs[1]["after_s"] == 32


def test_an_end_that_is_settled_now_is_hidden_no_more() -> None:
    cluster = Cluster()
    _, turn = watched(cluster)
    turn(0, 10, 40)
    for now_s, shown in [(100, Edges(11, 50)), (200, Edges(10, 10))]:
        cluster.answer = Edges(10, 50)
        assert turn(now_s, 10, 40) == now_s
        cluster.answer = shown
        assert turn(now_s + 10, 10, 40) == 0
