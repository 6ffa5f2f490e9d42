"""Tests of applications that forward released records with their headers in transactions, during take-overs.

Every reader of a target has the headers that the router writes, so headers do not identify the writer of a record. Here
applications of several kinds write such records to places where the router writes, too, and keep their transaction open
while the router is killed and started again. Each record is delivered once, each copy exists as often as its
application has committed it, and the router is ready soon, although the transaction is still open.

Most variants are written by a plain producer, since a test has to decide when a transaction ends. Kafka Streams decides
that itself; one test runs a Streams application (``exactly_once_v2``) across two restarts of the router.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from random import Random

import pytest

from sidecar.dev import local_kafka
from tests.conftest import StartCluster
from tests.faults.forwarding import (
    READY_WITHIN_S,
    Application,
    Feed,
    ForwardingStage,
    Scene,
    hidden,
    restarted,
    values,
)
from tests.faults.killed_redrive import redrive_and_die, reject_moved
from tests.faults.streams import StreamsApplication, class_path
from tests.integration.scenario import Header, now_ms, wait_until
from tests.wire import Broker, WireBatch, WireRecord
from tests.wire.batch import TRANSACTIONAL

COPIED = 10
BEHIND = 20
COMMIT_MS = 12_000
RESTARTS = 2
MOST_LATE_MS = 30_000
"""A router that starts within READY_WITHIN_S, and a busy machine."""

REJECTED: Header = ("deliver-at", b"soon")
ANSWERED: Header = ("deliver-cancel", b"nobody")
SLOW = pytest.mark.slow

SERIES_BEGIN_IN_MS = 12_000
TWICE: tuple[Header, ...] = (("deliver-every", b"2000"), ("deliver-times", b"2"))


@pytest.fixture
def stage(kafka: local_kafka.Cluster, tmp_path: Path) -> Iterator[ForwardingStage]:
    """Yield a stage of the test's own."""
    made = ForwardingStage(kafka.bootstrap, tmp_path)
    yield made
    made.print_logs()


@dataclass(frozen=True)
class Variant:
    """The topic to copy, the place of the copies, the end of their transaction, and the lanes of the router."""

    read: str = "out"
    to_same: bool = False
    commit: bool = True
    asks: Header = ("trace", b"1")
    lanes: int = 0


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(Variant(), id="commit"),
        pytest.param(Variant(commit=False), id="abort", marks=SLOW),
        pytest.param(Variant(to_same=True, lanes=1), id="same-target-commit-lane", marks=SLOW),
        pytest.param(Variant(to_same=True, commit=False, lanes=1), id="same-target-abort-lane"),
        pytest.param(Variant("rejected", asks=REJECTED), id="rejected-commit", marks=SLOW),
        pytest.param(Variant("rejected", asks=REJECTED, commit=False, lanes=1), id="rejected-abort-lane"),
        pytest.param(Variant("receipts", asks=ANSWERED, lanes=1), id="receipts-commit-lane"),
        pytest.param(Variant("receipts", asks=ANSWERED, commit=False), id="receipts-abort", marks=SLOW),
    ],
)
def test_a_copy_is_nobodys_but_the_application_that_wrote_it(variant: Variant, stage: ForwardingStage) -> None:
    scene = Scene.make(stage, variant.lanes)
    source = scene.out if variant.read == "out" else f"{scene.delay}.{variant.read}"
    target = scene.out if variant.to_same else scene.copy
    application = Application(stage)
    with scene.router as router:
        router.start_and_wait()
        scene.send(COPIED, variant.asks)
        read = stage.wait_records(source, COPIED)
        application.copy(read, target)
        scene.release(target, BEHIND, "behind")
        ready_s = restarted(router)
        if ready_s <= READY_WITHIN_S:
            _goes_on(scene)
        application.end(commit=variant.commit)
        scene.settle(target, values(read) if variant.commit else Counter())
        assert ready_s <= READY_WITHIN_S, "the router waited for a transaction of somebody else"
        assert router.stop() == 0


def test_two_applications_and_the_router_write_to_one_target_in_turn(stage: ForwardingStage) -> None:
    """One application commits, the other aborts, and some of the router's records lie between theirs."""
    scene = Scene.make(stage)
    commits, aborts = Application(stage, "commits"), Application(stage, "aborts")
    with scene.router as router:
        router.start_and_wait()
        scene.send(COPIED)
        read = stage.wait_records(scene.out, COPIED)
        for number, part in enumerate((read[:3], read[3:7], read[7:])):
            aborts.copy(part, scene.copy)
            scene.release(scene.copy, 5, f"between-{number}")
            commits.write(scene.copy, b"own-%d" % number)
            commits.copy(part, scene.copy)
            scene.release(scene.copy, 5, f"behind-{number}")
        ready_s = restarted(router)
        if ready_s <= READY_WITHIN_S:
            _goes_on(scene)
        commits.end(commit=True)
        aborts.end(commit=False)
        scene.settle(scene.copy, values(read) + Counter(b"own-%d" % number for number in range(3)))
        assert ready_s <= READY_WITHIN_S, "the router waited for a transaction of somebody else"
        assert router.stop() == 0


@pytest.mark.parametrize("commit", [pytest.param(True, id="commit"), pytest.param(False, id="abort", marks=SLOW)])
def test_a_copy_that_names_a_record_of_the_future(commit: bool, stage: ForwardingStage) -> None:
    """A topic of the same name in another cluster is ahead of this one, or the header is forged."""
    scene = Scene.make(stage)
    application = Application(stage)
    with scene.router as router:
        router.start_and_wait()
        scene.release(scene.copy, 1, "first")
        headers: list[Header] = [("delay-due", b"1"), ("delay-source", f"{scene.delay}/0/1000000".encode())]
        application.write(scene.copy, b"ahead", *headers)
        scene.release(scene.copy, BEHIND, "behind")
        ready_s = restarted(router)
        if ready_s <= READY_WITHIN_S:
            _goes_on(scene)
        application.end(commit=commit)
        scene.settle(scene.copy, Counter([b"ahead"] if commit else []))
        assert ready_s <= READY_WITHIN_S, "the router waited for a transaction of somebody else"
        assert router.stop() == 0


def test_the_first_record_that_is_open_has_a_header_that_no_client_can_name(stage: ForwardingStage) -> None:
    scene = Scene.make(stage)
    with scene.router as router, Broker(stage.bootstrap) as broker:
        router.start_and_wait()
        name = f"{stage.word}.stranger"
        producer_id, epoch = producer = broker.init_producer_id(name)
        broker.add_partitions_to_txn(name, producer, [(scene.copy, 0)])
        record = WireRecord(b"k", b"unnamed", [(b"\xff\xfe", b"1")])
        batch = WireBatch([record], flags=TRANSACTIONAL, producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
        broker.produce(scene.copy, 0, batch.encode(), transactional_id=name)
        scene.release(scene.copy, BEHIND, "behind")
        ready_s = restarted(router)
        assert ready_s <= READY_WITHIN_S, router.http("/readyz")[1]
        _goes_on(scene)
        broker.end_txn(name, producer, commit=False)
        scene.settle(scene.copy, Counter())
        assert router.stop() == 0


@SLOW
@pytest.mark.parametrize("to_same", [False, True], ids=["other-target", "same-target"])
def test_streams_goes_on_in_one_transaction_after_the_other(
    to_same: bool, stage: ForwardingStage, rng: Random, tmp_path: Path
) -> None:
    """A real application with exactly_once_v2 always has a transaction open when the router looks."""
    scene = Scene.make(stage)
    target = scene.out if to_same else scene.copy
    classes, feed = class_path(tmp_path), Feed(scene, rng)
    application = StreamsApplication(classes, stage, scene.out, target, commit_ms=COMMIT_MS, directory=tmp_path)
    with scene.router as router, application:
        router.start_and_wait()
        feed.until(lambda: bool(stage.copies(target)), "the first transaction of the application")
        ready_s: list[float] = []
        for _ in range(RESTARTS):
            feed.until(lambda: hidden(stage, target) >= 2 * BEHIND, "a transaction with releases behind it")
            ready_s.append(restarted(router, feed.post))
        stage.flush()
        router.wait_ready()
        stage.settle()
        report = scene.settle(target, values(stage.written_by_router(scene.out)))
        application.close()
        assert max(ready_s) <= READY_WITHIN_S, f"ready after {ready_s}: the router waited for somebody else"
        assert report.lateness_ms[-1] <= MOST_LATE_MS
        assert router.stop() == 0


@pytest.mark.parametrize("lanes", [0, 1])
def test_after_a_change_of_leader_only_records_for_that_place_wait(
    lanes: int, kafka_factory: StartCluster, tmp_path: Path
) -> None:
    """The place may have lost a marker of the router, so it writes nothing there until all of it is settled."""
    cluster = kafka_factory()
    stage = ForwardingStage(cluster.bootstrap, tmp_path)
    scene = Scene.make(stage, lanes)
    application = Application(stage)
    (node,) = cluster.nodes
    with scene.router as router:
        router.start_and_wait()
        scene.send(COPIED)
        read = stage.wait_records(scene.out, COPIED)
        application.copy(read, scene.copy)
        scene.release(scene.copy, BEHIND, "behind")
        router.kill()
        node.kill()
        node.start()
        router.start()
        wait_until(lambda: router.http("/metrics")[0] == HTTPStatus.OK, "a router that answers")
        scene.send(BEHIND, scene.to(scene.copy), name="held")
        scene.release(scene.out, BEHIND, "after")
        assert scene.released(scene.copy) == 0, "nobody knew yet whether a marker was lost there"
        application.end(commit=True)
        scene.settle(scene.copy, values(read))
        assert router.stop() == 0


def test_a_redrive_that_was_killed_with_moved_schedules_in_its_transaction(stage: ForwardingStage) -> None:
    """Its records have the ``delay-source`` of their moves; the router's own records on the delay topic are behind."""
    out = stage.target()
    delay = stage.delay(default_target=out, recurring=True, min_period="100ms")
    with stage.router() as router:
        router.start_and_wait()
        reject_moved(stage, delay, COPIED)
        first_due_ms = now_ms() + SERIES_BEGIN_IN_MS
        begins: Header = ("deliver-at", b"%d" % first_due_ms)
        for number in range(BEHIND):
            stage.post(delay, begins, *TWICE, value=b"series-%d" % number)
        stage.flush()
        redrive_and_die(router.config, delay)
        assert hidden(stage, delay) > 0
        assert now_ms() < first_due_ms, "the machine is too busy: occurrences lie in front of the redrive"
        stage.wait_records(out, BEHIND)
        assert hidden(stage, delay) >= COPIED + BEHIND, "next occurrences lie behind the redrive"
        ready_s = restarted(router)
        done = router.command("rejected", "redrive", delay, "--drop-header", "deliver-expire-after")
        assert done.returncode == 0, done.stdout + done.stderr
        router.wait_ready()
        stage.wait_records(out, COPIED + 2 * BEHIND)
        report = stage.settle()
        driven = [record for record in stage.records(delay) if "delay-redriven" in dict(record.headers)]
        assert max(values(driven).values()) == 1, "the router has written records of the redrive again"
        assert (report.rejected, report.moved) == (COPIED, COPIED)
        assert ready_s <= READY_WITHIN_S, "the router waited for a transaction of somebody else"
        assert router.stop() == 0


def _goes_on(scene: Scene) -> None:
    """Assert that the router releases to every target while the transaction is still open."""
    for target in (scene.out, scene.copy):
        scene.release(target, 5, f"after-{target}")
