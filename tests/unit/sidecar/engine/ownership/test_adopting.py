"""The adoption of staged buckets: the bucket that is adopted, its time, and the reports about the others."""

from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.errors import FormatError
from index.partition.adopting import Adoption
from index.partition.partition import PartitionIndex
from index.pending.progress import BEFORE_ALL, Behind, Position, start_of
from index.protocol.schedule import BY_KEY, KEEP_KEY, Schedule
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.context import PartitionContext
from sidecar.engine.limits import LIMITS
from sidecar.engine.ownership.adopting import Adopting, BackfillRecord
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.records import scheduled, scheduled_size
from sidecar.metrics import Metrics
from snapshots.state.staged import StagedBucket, staged_key
from tests.support.hand_clock import HandClock

RULES = Rules("d", default_target="out")
PAYLOAD = scheduled(Schedule(50, ("out",), BY_KEY, KEEP_KEY, None, both_times=False), 10, None)


class Scene:
    """A partition at offset 100 in which nothing is pending, and the buckets staged for it."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.held_off = self.begun_anew = 0
        self.ledger: PartitionLedger = PartitionIndex(start_of(100), scheduled_size)
        self.metrics = Metrics()
        self.staged: Mapping[bytes, BackfillRecord] = {}
        context = PartitionContext(DelayTopicConfig(name="d"), 3, "g", self.metrics, self.clock)
        self.adopting = Adopting(context, self.ledger, RuleHistory.beginning(0, RULES), "id", self, self.begin_anew)

    def waiting(self) -> Mapping[bytes, BackfillRecord]:
        """Return the staged buckets."""
        return self.staged

    def hold_off(self) -> None:
        """Count a request that makes the next owner wait."""
        self.held_off += 1

    def not_before_s(self) -> float:
        """Return a time at which there is nothing to wait for."""
        return 0.0

    def begin_anew(self) -> None:
        """Count a request to begin anew, since the index is behind a bucket."""
        self.begun_anew += 1

    def stage(self, *several: StagedBucket | FormatError) -> None:
        """Stage these, each at an offset that tells its place."""
        self.staged = {
            staged_key(each.job, each.manifest.from_offset)
            if isinstance(each, StagedBucket)
            else b"bucket/?": BackfillRecord(at, each)
            for at, each in enumerate(several)
        }
        self.adopting.turn()

    def pauses(self) -> bool:
        """Say whether intake has to wait."""
        return self.adopting.pauses

    def commit(self, bucket_id: int = 7) -> tuple[bytes, ...]:
        """Commit the request of adopting; return the withdrawn keys."""
        request = self.adopting.request(bucket_id)
        self.ledger.plan(1_000, 10, 1_000, None if request is None else request.installs)
        self.ledger.confirm()
        if request is None:
            return ()
        self.adopting.committed(request, ())
        return request.withdrawn

    def outcomes(self) -> dict[str, float]:
        """Return the counters that are not zero, by outcome."""
        names = ("adopted", "discarded", "refused")
        found = {
            name: self.metrics.registry.get_sample_value(
                "delay_router_backfills_total", {"topic": "d", "outcome": name}
            )
            for name in names
        }
        return {name: value for name, value in found.items() if value}


@pytest.fixture
def scene() -> Scene:
    return Scene()


def staged(job: str, from_offset: int, to_offset: int, *, due_ms: int = 50, empty: bool = False) -> StagedBucket:
    at = Position(due_ms, from_offset)
    segments = () if empty else (SegmentRef(at, at, 1, 9, 0, Placement.POINTER),)
    needs_from = None if empty else from_offset
    return StagedBucket(job, "id", RULES, Manifest(0, from_offset, to_offset, needs_from, segments), restores=False)


def test_neighbours_are_adopted_one_after_the_other(scene: Scene) -> None:
    scene.stage(staged("a", 90, 150), staged("a", 150, 200), staged("b", 90, 120), staged("a", 300, 400))
    assert scene.pauses()
    assert scene.commit() == (staged_key("a", 90),)
    made = scene.ledger.parts.buckets[7].manifest
    assert (made.bucket_id, made.from_offset, made.to_offset, made.built_from, made.needs_from) == (
        7,
        100,
        150,
        90,
        100,
    )
    assert scene.commit(8) == (staged_key("a", 150),)
    scene.adopting.turn()
    assert not scene.pauses()
    assert scene.commit() == (staged_key("b", 90),)
    assert scene.adopting.request(9) is None
    committed = scene.ledger.committed
    assert (committed.cursor, committed.sealed_to, scene.ledger.indexed_to) == (200, 200, 200)
    assert scene.outcomes() == {"adopted": 2, "discarded": 1}


def test_what_was_due_before_the_watermark_catches_up(scene: Scene) -> None:
    scene.ledger.add([(500, 100, PAYLOAD)])
    scene.ledger.plan(1_000, 10, 1_000)
    scene.ledger.confirm()
    scene.stage(staged("a", 100, 150, due_ms=400))
    scene.commit()
    assert scene.ledger.committed.catching_up == (Behind(7, BEFORE_ALL),)
    assert scene.ledger.committed.watermark == (500, 100)


def test_a_range_in_which_nothing_is_pending_only_moves_the_cursor(scene: Scene) -> None:
    scene.stage(staged("a", 100, 150, empty=True))
    scene.commit()
    assert scene.ledger.committed.cursor == 150
    assert scene.ledger.parts.buckets == {}
    assert scene.outcomes() == {"adopted": 1}


def test_it_waits_until_everything_is_sealed_but_not_for_ever(scene: Scene) -> None:
    scene.ledger.add([(5_000, 100, PAYLOAD)])
    with capture_logs() as logs:
        scene.stage(staged("a", 90, 150))
        assert scene.pauses()
        assert scene.adopting.request(7) is None
        scene.clock.go_on(LIMITS.adopt_within_s + 1)
        scene.adopting.turn()
        assert not scene.pauses()
        scene.clock.go_on(LIMITS.adopt_again_s - 1)
        scene.adopting.turn()
        assert not scene.pauses()
        scene.clock.go_on(2)
        scene.adopting.turn()
        assert scene.pauses()
    assert [line["event"] for line in logs] == ["backfill_waits"]


def test_what_begins_ahead_waits_and_is_discarded_when_c_passes_it(scene: Scene) -> None:
    scene.stage(staged("a", 110, 120))
    assert not scene.pauses()
    assert scene.adopting.request(7) is None
    scene.ledger.advance(120)
    scene.adopting.turn()
    assert scene.commit() == (staged_key("a", 110),)
    assert scene.outcomes() == {"discarded": 1}


@pytest.mark.parametrize(
    ("one", "why", "remedy"),
    [
        (FormatError("checksum does not match"), "checksum does not match", "run the job again"),
        (
            staged("a", 90, 150)._replace(delay_topic_id="x"),
            "made from a topic with id x, and d has id",
            "created again",
        ),
        (staged("a", 90, 150)._replace(rules=Rules("d")), "decided by other rules", "configuration of the router"),
        (staged("a", 90, 150)._replace(restores=True), "made to restore a lost state", "builds an index"),
    ],
)
def test_what_must_not_be_adopted_is_refused_once_with_its_remedy(
    scene: Scene, one: StagedBucket | FormatError, why: str, remedy: str
) -> None:
    with capture_logs() as logs:
        scene.stage(one)
        assert not scene.pauses()
        assert len(scene.commit()) == 1
        scene.staged = dict(scene.staged)
        scene.adopting.turn()
        assert scene.adopting.request(7) is None
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("backfill_refused", "error")
    assert why in line["why"]
    assert remedy in line["remedy"]
    assert scene.outcomes() == {"refused": 1}


def test_the_same_key_staged_again_counts_again(scene: Scene) -> None:
    scene.stage(staged("a", 90, 150))
    scene.commit()
    scene.stage(staged("z", 500, 600), staged("a", 90, 150))
    assert scene.commit() == (staged_key("a", 90),)
    assert scene.outcomes() == {"adopted": 1, "discarded": 1}


def test_what_the_brokers_refuse_is_tried_again_later(scene: Scene) -> None:
    scene.stage(staged("a", 50, 60))
    request = scene.adopting.request(7)
    assert request is not None
    assert request.withdrawn == (staged_key("a", 50),)
    scene.adopting.refused(request, "not allowed")
    assert not scene.held_off, "the partition is owned on"
    assert scene.adopting.request(7) is None
    scene.clock.go_on(LIMITS.adopt_again_s + 1)
    assert scene.commit() == (staged_key("a", 50),)


def test_an_adoption_out_of_place_is_refused_by_the_index(scene: Scene) -> None:
    with pytest.raises(ValueError, match=r"\[90, 150\) adopted at 100"):
        scene.ledger.plan(0, 1, 1, Adoption(staged("a", 90, 150).manifest))


def test_rules_of_before_are_refused_once_others_are_in_force(scene: Scene) -> None:
    scene.stage(staged("a", 90, 150))
    assert scene.pauses()
    scene.adopting.enter(RuleHistory.beginning(0, RULES).with_epoch(100, Rules("d", default_target="other")))
    scene.adopting.turn()
    assert not scene.pauses()
    assert scene.commit() == (staged_key("a", 90),)
    assert scene.outcomes() == {"refused": 1}


def test_nothing_is_adopted_before_the_epoch_of_the_rules_in_force(scene: Scene) -> None:
    scene.adopting.enter(RuleHistory.beginning(101, RULES))
    scene.stage(staged("a", 90, 150))
    assert not scene.pauses(), "offset 100 is decided by the rules of before"
    scene.ledger.advance(101)
    scene.adopting.turn()
    assert scene.pauses()
