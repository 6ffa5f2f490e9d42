"""Transactions whose markers the brokers have lost, one of every kind, and a router that takes over.

Each has a delay topic of its own; one router serves them all before, is killed, and starts again after.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient

from sidecar import failpoints, local_kafka
from sidecar.config.model import load
from sidecar.healing import evidence
from sidecar.kafka.admin import log_range, uncommitted_end
from tests.faults.orphans import UNVERIFIED, ForgottenProducer, Scene
from tests.integration.one_worker import one_worker
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Stage, wait_until
from tests.wire import Broker, WireRecord

Make = Callable[[Scene, ForgottenProducer], None]


@dataclass(frozen=True)
class Kind:
    """What is left open, on how many targets the record is to be, and whether it recurs."""

    make: Make
    outs: int = 1
    recurs: bool = False


def _aborted_on_target(scene: Scene, router: ForgottenProducer) -> None:
    router.decide([scene.state_topic], commit=False)
    router.write(scene.outs[0], [scene.released()])


def _aborted_everywhere(scene: Scene, router: ForgottenProducer) -> None:
    router.decide([scene.state_topic], commit=False)
    for out in scene.outs:
        router.write(out, [scene.released()])
    router.write(scene.state_topic, [scene.moved()])


def _committed_on_target(scene: Scene, router: ForgottenProducer) -> None:
    router.write(scene.outs[0], [scene.released()])
    router.write(scene.state_topic, [scene.moved()])
    router.decide([scene.state_topic], commit=True)


def _committed_on_some(scene: Scene, router: ForgottenProducer) -> None:
    for out in scene.outs:
        router.write(out, [scene.released()])
    router.write(scene.state_topic, [scene.moved()])
    router.decide([scene.state_topic, scene.outs[0]], commit=True)


def _committed_without_state(scene: Scene, router: ForgottenProducer) -> None:
    """One target shows it, the state does not know, and the other target hides it."""
    for out in scene.outs:
        router.write(out, [scene.released()])
    moved = scene.moved()
    router.decide([scene.state_topic, scene.outs[0]], commit=True)
    router.write(scene.state_topic, [moved])


def _seen_nowhere(scene: Scene, router: ForgottenProducer) -> None:
    """Committed, and nobody has seen any of it."""
    moved = scene.moved()
    router.decide([scene.state_topic], commit=True)
    router.write(scene.outs[0], [scene.released()])
    router.write(scene.state_topic, [moved])


def _snapshots(scene: Scene, router: ForgottenProducer) -> None:
    router.write(f"{scene.delay}.delay-snapshots", [WireRecord(b"00000000000000000009/000000", b"left")])


def _rejected(scene: Scene) -> WireRecord:
    record = scene.waiting
    headers: list[tuple[bytes, bytes | None]] = [(name.encode(), content) for name, content in record.headers]
    ours = [(b"delay-error", b"EXPIRED"), (b"delay-error-message", b"!"), (b"delay-source", record.place.encode())]
    return WireRecord(record.key, record.value, [*headers, *ours])


def _rejection_aborted(scene: Scene, router: ForgottenProducer) -> None:
    router.decide([scene.state_topic], commit=False)
    router.write(f"{scene.delay}.rejected", [_rejected(scene)])


def _rejection_committed(scene: Scene, router: ForgottenProducer) -> None:
    router.write(f"{scene.delay}.rejected", [_rejected(scene)])
    router.write(scene.state_topic, [scene.moved()])
    router.decide([scene.state_topic], commit=True)


def _receipt_aborted(scene: Scene, router: ForgottenProducer) -> None:
    scene.control()
    receipt, _ = scene.answered()
    router.decide([scene.state_topic], commit=False)
    router.write(f"{scene.delay}.receipts", [receipt])


def _receipt_committed(scene: Scene, router: ForgottenProducer) -> None:
    scene.control()
    receipt, progress = scene.answered()
    router.write(f"{scene.delay}.receipts", [receipt])
    router.write(scene.state_topic, [progress])
    router.decide([scene.state_topic], commit=True)


def _occurrence_aborted(scene: Scene, router: ForgottenProducer) -> None:
    router.decide([scene.state_topic], commit=False)
    router.write(scene.delay, [scene.next_occurrence()])


def _occurrence_committed(scene: Scene, router: ForgottenProducer) -> None:
    router.write(scene.outs[0], [scene.first_occurrence()])
    router.write(scene.delay, [scene.next_occurrence()])
    router.write(scene.state_topic, [scene.moved()])
    router.decide([scene.state_topic, scene.outs[0]], commit=True)


def _opens_first(scene: Scene, broker: Broker) -> ForgottenProducer:
    """Somebody else, whose transaction is open in front of whatever follows on the first target."""
    stranger = ForgottenProducer(broker, f"{scene.delay}.stranger")
    stranger.write(scene.outs[0], [WireRecord(b"x", b"stranger")])
    return stranger


OWN_TOPICS: Final = ("delay-state", "delay-snapshots", "rejected", "receipts")

KINDS: Final = {
    "aborted-on-target": Kind(_aborted_on_target),
    "aborted-everywhere": Kind(_aborted_everywhere, outs=2),
    "committed-on-target": Kind(_committed_on_target),
    "committed-on-some": Kind(_committed_on_some, outs=2),
    "committed-without-state": Kind(_committed_without_state, outs=2),
    "seen-nowhere": Kind(_seen_nowhere),
    "snapshots": Kind(_snapshots),
    "rejection-aborted": Kind(_rejection_aborted),
    "rejection-committed": Kind(_rejection_committed),
    "receipt-aborted": Kind(_receipt_aborted),
    "receipt-committed": Kind(_receipt_committed),
    "occurrence-aborted": Kind(_occurrence_aborted, recurs=True),
    "occurrence-committed": Kind(_occurrence_committed, recurs=True),
}


@pytest.fixture(scope="module")
def unverified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[local_kafka.Cluster]:
    """A broker that takes transactional records of which the coordinator does not know."""
    try:
        local_kafka.check_available(own_nodes=True)
    except local_kafka.KafkaUnavailable as error:
        pytest.skip(f"needs a broker with settings of its own: {error}")
    with local_kafka.cluster(own_nodes=True, properties=UNVERIFIED) as running:
        yield running


@pytest.fixture
def stage(unverified: local_kafka.Cluster, tmp_path: Path) -> Iterator[Stage]:
    """A stage on it."""
    made = Stage(unverified.bootstrap, tmp_path)
    yield made
    made.print_logs()


def _left_open(stage: Stage, kinds: dict[str, Kind]) -> dict[str, Scene]:
    """A scene for each kind, after a router that was killed and a transaction of it that was forgotten."""
    scenes = _prepared(stage, kinds)
    with Broker(stage.bootstrap) as broker:
        for name, scene in scenes.items():
            kinds[name].make(scene, scene.forgotten(broker))
    return scenes


def _prepared(stage: Stage, kinds: dict[str, Kind]) -> dict[str, Scene]:
    """A scene for each kind: the router is gone, and what waits is due."""
    recurring = {"recurring": True, "min_period": "100ms"}
    scenes = {
        name: Scene.make(stage, name, kind.outs, **(recurring if kind.recurs else {})) for name, kind in kinds.items()
    }
    _play(stage, scenes)
    return scenes


def _play(stage: Stage, scenes: dict[str, Scene]) -> None:
    with stage.router("before") as before:
        before.start_and_wait()
        for scene in scenes.values():
            scene.prepare()
        wait_until(lambda: all(scene.is_prepared() for scene in scenes.values()), "C past what was sent")
        before.kill()
    for scene in scenes.values():
        scene.wait_due()


def _is_settled(stage: Stage, topic: str) -> bool:
    # A client that has lived through a restart of the broker would ask with the leader epoch of before.
    admin = AdminClient({**stage.kafka})
    return log_range(admin, topic, 0)[1] == uncommitted_end(admin, topic, 0)


def _end_stranger(scene: Scene, broker: Broker, stranger: ForgottenProducer) -> None:
    broker.write_txn_markers(stranger.producer, [(scene.outs[0], 0)], commit=False)


def _holds_once(stage: Stage, scenes: dict[str, Scene]) -> None:
    stage.settle()
    for name, scene in scenes.items():
        topics = [
            *scene.outs,
            scene.delay,
            *(f"{scene.delay}.{own}" for own in ("delay-state", "delay-snapshots", "rejected", "receipts")),
        ]
        for topic in topics:
            wait_until(partial(_is_settled, stage, topic), f"the end of what is open on {topic} ({name})")


def test_every_kind_of_orphan_is_ended_with_its_own_outcome(stage: Stage) -> None:
    scenes = _left_open(stage, KINDS)
    with stage.router("after") as after:
        after.start_and_wait()
        _holds_once(stage, scenes)
        answered = {name for name in scenes if len(stage.records(f"{scenes[name].delay}.receipts")) == 1}
        assert answered == {"receipt-aborted", "receipt-committed"}
        for scene in (scenes["occurrence-aborted"], scenes["occurrence-committed"]):
            headers = [dict(record.headers) for record in stage.records(scene.outs[0])]
            numbers = [each["delay-occurrence"] for each in headers if "delay-occurrence" in each]
            assert numbers == [b"1", b"2"]
        healed = {event["outcome"] for event in after.events("orphan_found")}
        assert healed == {"aborted", "committed"}
        assert after.stop() == 0


def test_an_aborted_one_is_ended_behind_an_open_transaction_of_somebody_else(stage: Stage) -> None:
    kinds = {"aborted": Kind(_aborted_on_target)}
    scenes = _prepared(stage, kinds)
    scene = scenes["aborted"]
    with Broker(stage.bootstrap) as broker:
        stranger = _opens_first(scene, broker)
        _aborted_on_target(scene, scene.forgotten(broker))
        with stage.router("after") as after:
            after.start_and_wait()
            # By its own log: nobody sees what it has released behind the stranger's.
            wait_until(lambda: after.metric(_released(scene)) == 1.0, "the release")
            _end_stranger(scene, broker, stranger)
            _holds_once(stage, scenes)


def test_a_committed_one_waits_for_the_transaction_of_somebody_else_in_front_of_it(
    unverified: local_kafka.Cluster, stage: Stage
) -> None:
    """The partition has had no leader since, so its marker may be lost."""
    scenes = _prepared(stage, {"committed": Kind(_committed_on_target)})
    scene = scenes["committed"]
    with Broker(stage.bootstrap) as broker:
        stranger = _opens_first(scene, broker)
        _committed_on_target(scene, scene.forgotten(broker))
    (node,) = unverified.nodes
    node.kill()
    node.start()
    with stage.router("after") as after, Broker(stage.bootstrap) as broker:
        after.start()
        wait_until(lambda: "of somebody else" in after.http("/readyz")[1], "a reason in /readyz")
        _end_stranger(scene, broker, stranger)
        after.wait_ready()
        _holds_once(stage, scenes)


def test_orphans_of_two_partitions_that_lie_in_front_of_each_other_are_ended(
    unverified: local_kafka.Cluster, stage: Stage
) -> None:
    """Each partition's is in front on one target, and behind the other's on the other one."""
    one = Scene.make(stage, "one", outs=2)
    other = one.beside("other")
    scenes = {"one": one, "other": other}
    _play(stage, scenes)
    with Broker(stage.bootstrap) as broker:
        writers = [(scene, scene.forgotten(broker)) for scene in scenes.values()]
        for out, in_order in zip(one.outs, (writers, writers[::-1]), strict=True):
            for scene, writer in in_order:
                writer.write(out, [scene.released()])
        for scene, writer in writers:
            writer.write(scene.state_topic, [scene.moved()])
            writer.decide([scene.state_topic], commit=True)
    (node,) = unverified.nodes
    node.kill()
    node.start()
    with stage.router("after") as after:
        after.start_and_wait()
        _holds_once(stage, scenes)


def test_the_long_transaction_of_somebody_else_holds_up_no_take_over(stage: Stage) -> None:
    """What was committed behind it has its markers: the partition has had the same leader all the time."""
    scene = Scene.make(stage, "beside")
    with Broker(stage.bootstrap) as broker, stage.router() as router:
        stranger = _opens_first(scene, broker)
        router.start_and_wait()
        scene.prepare()
        wait_until(lambda: router.metric(_released(scene)) == 2.0, "the releases")
        router.kill()
        router.start_and_wait()
        assert not router.events("orphan_found")
        assert not router.events("partition_waits")
        assert not stage.records(scene.outs[0])
        _end_stranger(scene, broker, stranger)
        _holds_once(stage, {"beside": scene})


HEALING: Final = ["heal.state_copied", "heal.state_ended", "heal.ended", "heal.paid", "heal.copied"]


@pytest.mark.slow
def test_a_router_that_is_killed_while_it_heals(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each place, and where it is passed for the state and for a target, both times."""
    places = [*HEALING, "heal.ended:2", "heal.paid:2"]
    assert set(HEALING) == {place for place in failpoints.PLACES if place.startswith("heal.")}
    kinds = {place.replace(":", "-"): Kind(_committed_without_state, outs=2) for place in places}
    scenes = _left_open(stage, kinds)
    for place, scene in zip(places, scenes.values(), strict=True):
        with monkeypatch.context() as environ, stage.router(f"killed-{place}", only=[scene.delay]) as killed:
            environ.setenv(failpoints.VARIABLE, place)
            killed.start()
            wait_until(partial(_has_ended, killed), f"the end of a router at {place}")
    with stage.router("after") as after:
        after.start_and_wait()
        _holds_once(stage, scenes)


def test_what_readers_see_tells_where_the_coordinators_log_does_not(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "outcome_of_last", lambda *_: (None, "not read"))
    kinds = {
        "committed-without-state": Kind(_committed_without_state, outs=2),
        "aborted-everywhere": Kind(_aborted_everywhere, outs=2),
        "seen-nowhere": Kind(_seen_nowhere),
    }
    scenes = _left_open(stage, kinds)
    with ExitStack() as stack:
        for scene in scenes.values():
            stack.enter_context(one_worker(load(_router_file(stage, scene), {})))
        _holds_once(stage, scenes)


def test_what_others_hide_leaves_the_outcome_undecided(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing it wrote can be seen, and it may have been committed: nothing is released until that is known."""
    monkeypatch.setattr(evidence, "outcome_of_last", lambda *_: (None, "not read"))
    scenes = _prepared(stage, {"hidden": Kind(_committed_without_state)})
    scene = scenes["hidden"]
    with Broker(stage.bootstrap) as broker:
        stranger = _opens_first(scene, broker)
        _committed_without_state(scene, scene.forgotten(broker))
        with one_worker(load(_router_file(stage, scene), {})) as worker:
            wait_until(lambda: "is not known" in worker.status.why, "a reason")
            _end_stranger(scene, broker, stranger)
            _holds_once(stage, scenes)


def _has_ended(router: RouterProcess) -> bool:
    return not router.running


def _released(scene: Scene) -> str:
    return f'records_released_total{{target="{scene.outs[0]}",topic="{scene.delay}"}}'


def _router_file(stage: Stage, scene: Scene) -> Path:
    """The configuration of a router of one delay topic."""
    return stage.router(f"config-{scene.delay}", only=[scene.delay]).config
