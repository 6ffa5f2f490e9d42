"""Tests of transactions whose markers the brokers have lost, one of every kind, and of a router that takes over.

Each kind has its own delay topic. One router serves all of them before, is killed, and starts again after. The broker
is killed and started in between: a marker is lost only while a partition has no leader.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient, OffsetSpec

from index.errors import DelayRouterError
from sidecar import failpoints
from sidecar.config.model import load
from sidecar.dev import local_kafka
from sidecar.kafka.client.admin import LogOffset, connect, log_range, offsets, uncommitted_end
from sidecar.kafka.doubts.batches import Batches
from sidecar.kafka.doubts.ending import EndTransaction
from snapshots.state.lane import LaneName
from tests.faults.forgotten import UNVERIFIED, ForgottenProducer, Scene
from tests.faults.operating import open_producers, transactions
from tests.integration.readiness import partitions
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Stage, wait_until
from tests.support import kafka_tools
from tests.wire import Broker, WireRecord

Make = Callable[[Scene, ForgottenProducer], None]


@dataclass(frozen=True)
class Kind:
    """An open transaction and its outcome, the number of targets of the record, and whether the record recurs.

    ``waits``: the router needs the place, so the take-over waits.
    """

    make: Make
    committed: bool
    outs: int = 1
    recurs: bool = False
    waits: bool = False


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
    """Let one target show the record and the other one hide it, while the state hides its progress."""
    for out in scene.outs:
        router.write(out, [scene.released()])
    moved = scene.moved()
    router.decide([scene.state_topic, scene.outs[0]], commit=True)
    router.write(scene.state_topic, [moved])


def _seen_nowhere(scene: Scene, router: ForgottenProducer) -> None:
    """Leave a transaction that was committed and whose records are all hidden."""
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
    """Open another producer's transaction in front of the later records on the first target."""
    stranger = ForgottenProducer(broker, f"{scene.delay}.stranger")
    stranger.write(scene.outs[0], [WireRecord(b"x", b"stranger")])
    return stranger


OWN_TOPICS: Final = ("delay-state", "delay-snapshots", "rejected", "receipts")

KINDS: Final = {
    "aborted-on-target": Kind(_aborted_on_target, committed=False),
    "aborted-everywhere": Kind(_aborted_everywhere, committed=False, outs=2, waits=True),
    "committed-on-target": Kind(_committed_on_target, committed=True),
    "committed-on-some": Kind(_committed_on_some, committed=True, outs=2),
    "committed-without-state": Kind(_committed_without_state, committed=True, outs=2, waits=True),
    "seen-nowhere": Kind(_seen_nowhere, committed=True, waits=True),
    "snapshots": Kind(_snapshots, committed=True, waits=True),
    "rejection-aborted": Kind(_rejection_aborted, committed=False, waits=True),
    "rejection-committed": Kind(_rejection_committed, committed=True, waits=True),
    "receipt-aborted": Kind(_receipt_aborted, committed=False),
    "receipt-committed": Kind(_receipt_committed, committed=True),
    "occurrence-aborted": Kind(_occurrence_aborted, committed=False, recurs=True),
    "occurrence-committed": Kind(_occurrence_committed, committed=True, recurs=True),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the broker keeps its logs."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def unverified(data: Path) -> Iterator[local_kafka.Cluster]:
    """Yield a broker that accepts transactional records unknown to the coordinator."""
    try:
        local_kafka.check_available(own_nodes=True)
    except local_kafka.KafkaUnavailable as error:
        pytest.skip(f"needs a broker with settings of its own: {error}")
    with local_kafka.cluster(own_nodes=True, properties={**UNVERIFIED, "log.dirs": str(data)}) as running:
        yield running


@pytest.fixture
def stage(unverified: local_kafka.Cluster, tmp_path: Path) -> Iterator[Stage]:
    """Yield a stage on that broker."""
    made = Stage(unverified.bootstrap, tmp_path)
    yield made
    made.print_logs()


def _left_open(running: local_kafka.Cluster, stage: Stage, kinds: dict[str, Kind]) -> dict[str, Scene]:
    """Return a scene for each kind, after a router was killed and one of its transactions was forgotten."""
    scenes = _prepared(stage, kinds)
    with Broker(stage.bootstrap) as broker:
        for name, scene in scenes.items():
            kinds[name].make(scene, scene.forgotten(broker))
    _get_new_leaders(running, stage)
    return scenes


def _get_new_leaders(running: local_kafka.Cluster, stage: Stage) -> None:
    (node,) = running.nodes
    node.kill()
    node.start()
    wait_until(partial(_is_led, stage), "a leader of each partition")


def _is_led(stage: Stage) -> bool:
    admin = AdminClient({**stage.kafka})
    topics = admin.list_topics(timeout=10).topics
    places = [(name, each) for name in topics if name.startswith(stage.word) for each in topics[name].partitions]
    told = offsets(admin, dict.fromkeys(places, OffsetSpec.latest()), IsolationLevel.READ_COMMITTED)
    return all(isinstance(each, LogOffset) for each in told.values())


def _prepared(stage: Stage, kinds: dict[str, Kind]) -> dict[str, Scene]:
    """Return a scene for each kind: the router is gone, and the waiting record is due."""
    recurring = {"recurring": True, "min_period": "100ms"}
    scenes = {
        name: Scene.make(stage, name, kind.outs, **(recurring if kind.recurs else {})) for name, kind in kinds.items()
    }
    _play(stage, scenes)
    return scenes


def _play(stage: Stage, scenes: dict[str, Scene], **options: Any) -> None:
    with stage.router("before", **options) as before:
        before.start_and_wait()
        for scene in scenes.values():
            scene.prepare()
        wait_until(lambda: all(scene.is_prepared() for scene in scenes.values()), "C past what was sent")
        before.kill()
    for scene in scenes.values():
        scene.wait_due()


def _is_settled(stage: Stage, topic: str) -> bool:
    # A client that has lived through a restart of the broker would ask with the old leader epoch.
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


def _open_places(stage: Stage, scene: Scene) -> list[str]:
    """Return the topics of a scene with an open transaction, the state first: the others need it."""
    own = [f"{scene.delay}.{each}" for each in OWN_TOPICS]
    return [topic for topic in (*own, *scene.outs, scene.delay) if not _is_settled(stage, topic)]


def _end(stage: Stage, scene: Scene, *, committed: bool) -> int:
    """End the open transactions of a scene, as an operator does. Return the number of records written again."""
    with Broker(stage.bootstrap) as broker:
        producer_id, _ = scene.forgotten(broker).producer
    commands = [_command(stage, scene, topic) for topic in _open_places(stage, scene)]
    return sum(command.end(producer_id, _start(command), committed=committed) for command in commands)


def _start(command: EndTransaction) -> int:
    """Return the first offset of the open transaction, from describe-producers or from the begun command."""
    shown = command.show()
    return shown.from_offset if shown.resumed is None else shown.resumed.from_offset


def _command(
    stage: Stage, scene: Scene, topic: str, lane: str | None = None, batches: Batches | None = None
) -> EndTransaction:
    config = load(stage.router(f"command-{scene.delay}", only=[scene.delay]).config, {})
    delay_topic = config.require_delay_topic(scene.delay, "")
    return EndTransaction(config, connect(config), delay_topic, 0, (topic, 0), lane, batches=batches)


def _states(router: RouterProcess) -> dict[str, str]:
    return {name: each["state"] for name, each in partitions(router).items()}


def test_every_kind_waits_for_an_operator_and_is_ended_with_its_own_outcome(
    unverified: local_kafka.Cluster, stage: Stage
) -> None:
    scenes = _left_open(unverified, stage, KINDS)
    with stage.router("after") as after:
        after.start()
        served = {f"{scene.delay}/0" for name, scene in scenes.items() if not KINDS[name].waits}
        wait_until(
            lambda: served <= {name for name, state in _states(after).items() if state == "active"}, "the others"
        )
        waiting = {f"{scene.delay}/0" for name, scene in scenes.items() if KINDS[name].waits}
        assert all(_states(after)[name] in ("waiting", "fencing", "restoring") for name in waiting)
        whys = {name: each["why"] for name, each in partitions(after).items()}
        on_targets = [f"{scenes[name].delay}/0" for name in ("aborted-on-target", "committed-on-target")]
        assert all("describe-producers" in whys[name] for name in on_targets), whys
        again = {name: _end(stage, scene, committed=KINDS[name].committed) for name, scene in scenes.items()}
        assert {name for name, count in again.items() if count} == {
            name for name, kind in KINDS.items() if kind.committed and name != "snapshots"
        }
        wait_until(after.ready, "every partition", 60)
        _holds_once(stage, scenes)
        answered = {name for name in scenes if len(stage.records(f"{scenes[name].delay}.receipts")) == 1}
        assert answered == {"receipt-aborted", "receipt-committed"}
        for scene in (scenes["occurrence-aborted"], scenes["occurrence-committed"]):
            headers = [dict(record.headers) for record in stage.records(scene.outs[0])]
            numbers = [each["delay-occurrence"] for each in headers if "delay-occurrence" in each]
            assert numbers == [b"1", b"2"]
        assert after.stop() == 0


def _has_ended(stage: Stage, scene: Scene, topic: str) -> bool:
    return not _command(stage, scene, topic).show().is_open


def test_what_the_command_shows_is_the_outcome(unverified: local_kafka.Cluster, stage: Stage) -> None:
    names = ("aborted-on-target", "committed-on-target", "aborted-everywhere", "seen-nowhere")
    kinds = {f"shows-{name}": KINDS[name] for name in names}
    scenes = _left_open(unverified, stage, kinds)
    for name, scene in scenes.items():
        outcome = "committed" if kinds[name].committed else "aborted"
        first = _open_places(stage, scene)[0]
        shown = _command(stage, scene, first).show()
        assert shown.is_open
        assert outcome in (shown.by_state, shown.log_says)
        assert {shown.by_state} <= {outcome, ""}
        lines = "\n".join(shown.lines(f"{scene.delay}/0", "an id", stage.bootstrap))
        assert f"delay-router end-transaction {scene.delay}/0 {first}/0 --producer-id ID" in lines
        _end(stage, scene, committed=kinds[name].committed)
        # A commit returns before the brokers show it.
        wait_until(partial(_has_ended, stage, scene, first), f"{first}/0 is settled")
    with stage.router("after") as after:
        after.start_and_wait()
        _holds_once(stage, scenes)


@pytest.mark.parametrize(
    ("forwards", "why"), [(False, "has a record of no delay partition"), (True, "is not of producer id")]
)
def test_the_transaction_of_somebody_else_is_refused(
    unverified: local_kafka.Cluster, stage: Stage, *, forwards: bool, why: str
) -> None:
    """A wrong producer id or a wrong place ends no transaction, and no record is written again."""
    scene = _prepared(stage, {f"foreign-{forwards}": KINDS["aborted-on-target"]}).popitem()[1]
    with Broker(stage.bootstrap) as broker:
        stranger = ForgottenProducer(broker, f"{scene.delay}.stranger") if forwards else _opens_first(scene, broker)
        stranger.write(scene.outs[0], [scene.released()])
        own_id, _ = scene.forgotten(broker).producer
        _get_new_leaders(unverified, stage)
    with Broker(stage.bootstrap) as broker:
        command = _command(stage, scene, scene.outs[0])
        start = _start(command)
        with pytest.raises(DelayRouterError, match="is not of this partition"):
            command.end(stranger.producer[0], start, committed=True)
        with pytest.raises(DelayRouterError, match=why):
            command.end(own_id, start, committed=True)
        with pytest.raises(DelayRouterError, match="begins at offset"):
            command.end(own_id, start + 1, committed=True)
        assert command.show().is_open
        _end_stranger(scene, broker, stranger)
    with stage.router("after") as after:
        after.start_and_wait()
        _holds_once(stage, {"the foreign one": scene})


@pytest.mark.parametrize("by_headers", [False, True])
def test_copies_by_applications_are_not_written_again(
    unverified: local_kafka.Cluster, stage: Stage, data: Path, *, by_headers: bool
) -> None:
    """An application forwards a released record and commits. Another one aborts: only producer ids tell of it."""
    scene = _prepared(stage, {f"copied-{by_headers}": KINDS["committed-on-target"]}).popitem()[1]
    (out,) = scene.outs
    (released,) = stage.records(out)
    copy = WireRecord(released.key, released.value, [(name.encode(), text) for name, text in released.headers])
    with Broker(stage.bootstrap) as broker:
        _committed_on_target(scene, scene.forgotten(broker))
        for commit in (True,) if by_headers else (True, False):
            application = ForgottenProducer(broker, f"{scene.delay}.copies-{commit}")
            application.write(out, [copy])
            application.decide([out], commit=commit)
    _get_new_leaders(unverified, stage)
    command = _command(stage, scene, out, batches=None if by_headers else _batches(data, out))
    with Broker(stage.bootstrap) as broker:
        producer_id, _ = scene.forgotten(broker).producer
    assert command.end(producer_id, _start(command), committed=True) == 1
    with stage.router("after") as after:
        after.start_and_wait()
        sources = Counter(dict(record.headers)["delay-source"] for record in stage.records(out))
        assert sources == {f"{scene.delay}/0/0".encode(): 1, f"{scene.delay}/0/1".encode(): 2}
        assert after.stop() == 0


def _batches(data: Path, topic: str) -> Batches:
    logs = ",".join(str(log) for log in (data / f"{topic}-0").glob("*.log"))
    return Batches(kafka_tools.run("org.apache.kafka.tools.DumpLogSegments", ["--files", logs]).splitlines())


def test_a_transaction_of_a_lane_is_ended_for_each_of_its_partitions(
    unverified: local_kafka.Cluster, stage: Stage
) -> None:
    """An operator goes by the tools that RUNBOOK names, while a router runs; no record may be left out."""
    first = Scene.make(stage, "in-a-lane")
    scenes = {"first": first, "second": first.beside("in-the-same-lane")}
    _play(stage, scenes, lanes=1)
    lane = first.lane
    assert {scene.lane for scene in scenes.values()} == {lane} != {""}
    with Broker(stage.bootstrap) as broker:
        owner = ForgottenProducer(broker, lane)
        for scene in scenes.values():
            owner.write(first.outs[0], [scene.released()])
            owner.write(scene.state_topic, [scene.moved()])
        owner.decide([scene.state_topic for scene in scenes.values()], commit=True)
    _get_new_leaders(unverified, stage)
    with stage.router("after", lanes=1) as after:
        after.start_and_wait()
        places = [f"{scene.delay}/0" for scene in scenes.values()]
        command = ("end-transaction", places[0], f"{first.outs[0]}/0", "--transactional-id", lane)
        ((start_offset, producer_id),) = open_producers(stage, (first.outs[0], 0))
        assert lane in {row["TransactionalId"] for row in transactions(stage, "list")}
        assert f"a transaction is open from offset {start_offset} on" in after.command(*command).stdout
        ends = (*command, "--producer-id", producer_id, "--start-offset", str(start_offset), "--outcome", "committed")
        refused = after.command(*ends)
        assert (refused.returncode, "give --batches FILE" in refused.stderr) == (2, True), refused.stderr
        refused = after.command(*ends, "--by-headers")
        assert (refused.returncode, f"records of {places[1]} lie behind" in refused.stderr) == (1, True), refused.stderr
        ended = after.command(*ends, "--by-headers", "--of", places[0], "--of", places[1])
        assert "ended as committed; 2 records were written again" in ended.stdout, ended.stderr
        wait_until(after.ready, "every partition", 60)
        _holds_once(stage, scenes)
        assert after.stop() == 0


def test_a_lane_that_is_taken_back_between_the_steps_of_the_command_is_fenced_again(
    unverified: local_kafka.Cluster, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A router takes the lane back, for its other partitions, faster than the command reads on a busy machine."""
    scene = Scene.make(stage, "taken-back")
    scenes = {"first": scene, "second": scene.beside("goes-on")}
    _play(stage, scenes, lanes=1)
    lane, fence_writers = scene.lane, EndTransaction._fence_writers
    with Broker(stage.bootstrap) as broker:
        owner = ForgottenProducer(broker, lane)
        _aborted_on_target(scene, owner)
        _get_new_leaders(unverified, stage)

    def slowly(command: EndTransaction) -> None:
        with Broker(stage.bootstrap) as broker:
            broker.init_producer_id(lane)
        fence_writers(command)

    monkeypatch.setattr(EndTransaction, "_fence_writers", slowly)
    command = _command(stage, scene, scene.outs[0], lane)
    assert command.end(owner.producer[0], _start(command), committed=False) == 0
    with stage.router("after", lanes=1) as after:
        after.start_and_wait()
        _holds_once(stage, scenes)


def test_a_lane_that_has_taken_the_partition_before_the_note_is_fenced(
    unverified: local_kafka.Cluster, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A router joins its partition to the emptiest lane, which need not be the lane of the transaction."""
    scene = _left_open(unverified, stage, {"in-another-lane": KINDS["aborted-on-target"]})["in-another-lane"]
    other, note = LaneName(f"{stage.group_id}.lane.5f.0", 1), EndTransaction._note

    def late(command: EndTransaction, value: bytes | None) -> None:
        with Broker(stage.bootstrap) as broker:
            router = scene.forgotten(broker)
            router.write(scene.state_topic, [scene.owned_by(other)])
            router.decide([scene.state_topic], commit=True)
            owners.append(broker.init_producer_id(other.transactional_id))
        note(command, value)

    owners: list[tuple[int, int]] = []
    monkeypatch.setattr(EndTransaction, "_note", late)
    assert _end(stage, scene, committed=False) == 0
    with Broker(stage.bootstrap) as broker:
        ((producer_id, epoch),) = owners
        assert broker.init_producer_id(other.transactional_id) == (producer_id, epoch + 2)
    with stage.router("after") as after:
        after.start_and_wait()
        _holds_once(stage, {"in-another-lane": scene})


def test_the_state_of_each_partition_of_a_lane_is_ended_before_it_tells_an_outcome(
    unverified: local_kafka.Cluster, stage: Stage
) -> None:
    """The lane has committed, and the markers on the second state and on the target are lost.

    By its settled state the second partition has released nothing, as after an abort.
    """
    first = Scene.make(stage, "with-a-state")
    second = first.beside("without-its-state")
    scenes = {"first": first, "second": second}
    _play(stage, scenes, lanes=1)
    out, lane = first.outs[0], first.lane
    with Broker(stage.bootstrap) as broker:
        owner = ForgottenProducer(broker, lane)
        owner.decide([first.state_topic], commit=True)
        owner.write(second.state_topic, [second.moved()])
        owner.write(out, [second.released()])
    _get_new_leaders(unverified, stage)
    places = [f"{scene.delay}/0" for scene in scenes.values()]
    named = ("--transactional-id", lane, "--of", places[0], "--of", places[1])
    with stage.router("after", lanes=1) as after:
        after.start()
        wait_until(lambda: partitions(after).get(places[0], {}).get("state") == "active", "the first partition", 60)
        ((start_offset, producer_id),) = open_producers(stage, (out, 0))
        ends = ("--producer-id", producer_id, "--start-offset", str(start_offset), "--outcome", "committed")
        for arguments in (named, (*named, *ends, "--by-headers")):
            refused = after.command("end-transaction", places[0], f"{out}/0", *arguments)
            assert refused.returncode == 1, refused.stdout
            assert f"end-transaction {places[1]} {second.state_topic}/0 shows it" in refused.stderr
        ((start_offset, _),) = open_producers(stage, (second.state_topic, 0))
        on_state = ("--producer-id", producer_id, "--start-offset", str(start_offset), "--outcome", "committed")
        ended = after.command("end-transaction", places[1], f"{second.state_topic}/0", *named, *on_state)
        assert "ended as committed; 1 records were written again" in ended.stdout, ended.stderr
        ended = after.command("end-transaction", places[0], f"{out}/0", *named, *ends, "--by-headers")
        assert "ended as committed; 1 records were written again" in ended.stdout, ended.stderr
        wait_until(after.ready, "every partition", 60)
        _holds_once(stage, scenes)
        assert after.stop() == 0


class KilledError(Exception):
    """The command died at this point."""


@pytest.mark.parametrize("place", [place for place in failpoints.PLACES if place.startswith("ending.")])
def test_a_command_that_is_killed_goes_on_when_it_is_run_again(
    unverified: local_kafka.Cluster, stage: Stage, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Until then routers refuse the partition and name the command."""
    kinds = {f"{place.replace('.', '-')}-{name}": KINDS[name] for name in ("committed-on-target", "seen-nowhere")}
    scenes = _left_open(unverified, stage, kinds)
    with monkeypatch.context() as dying:

        def passing(name: str) -> None:
            if name == place:
                raise KilledError

        dying.setattr(failpoints, "passing", passing)
        for scene in scenes.values():
            with pytest.raises(KilledError):
                _end(stage, scene, committed=True)
    with stage.router("after") as after:
        after.start()
        wait_until(lambda: all(_why_not(after, scene) for scene in scenes.values()), "a reason for each", 60)
        for scene in scenes.values():
            while _open_places(stage, scene) or scene.ending() is not None:
                ending = scene.ending()
                with Broker(stage.bootstrap) as broker:
                    producer_id, _ = scene.forgotten(broker).producer
                topic = ending.topic if ending is not None else _open_places(stage, scene)[0]
                command = _command(stage, scene, topic)
                command.end(producer_id, _start(command), committed=True)
        wait_until(after.ready, "every partition", 60)
        _holds_once(stage, scenes)


def _why_not(router: RouterProcess, scene: Scene) -> bool:
    each = partitions(router).get(f"{scene.delay}/0", {"why": ""})
    return "end-transaction" in each["why"]


def test_the_long_transaction_of_somebody_else_holds_up_no_take_over(stage: Stage) -> None:
    """The partition has had the same leader all the time, so nothing behind it is in doubt."""
    scene = Scene.make(stage, "beside")
    with Broker(stage.bootstrap) as broker, stage.router() as router:
        stranger = _opens_first(scene, broker)
        router.start_and_wait()
        scene.prepare()
        wait_until(lambda: router.metric(_released(scene)) == 2.0, "the releases")
        router.kill()
        router.start_and_wait()
        assert not router.events("partitions_in_doubt")
        assert not router.events("partition_waits")
        assert not stage.records(scene.outs[0])
        _end_stranger(scene, broker, stranger)
        _holds_once(stage, {"beside": scene})


def _released(scene: Scene) -> str:
    return f'records_released_total{{target="{scene.outs[0]}",topic="{scene.delay}"}}'
