"""The steps after each outcome of a transaction: what is written again, taken out or set aside, and who is told.

The brokers answer as a test says. Screening lets every record pass.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from index.buckets.bucket import Manifest
from index.errors import ClusterError, ClusterTrouble, RefusedError
from index.partition.adopting import Adoption
from index.partition.batch import Installation
from index.partition.partition import PartitionIndex
from index.pending.pending import Entry
from index.pending.progress import Position, start_of
from index.protocol.record import Record
from index.protocol.schedule import BY_KEY, KEEP_KEY, Reason, Rejection, Schedule
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.context import PartitionContext
from sidecar.engine.limits import LIMITS
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.packed_run import packed_runs
from sidecar.engine.payload.records import Refused, Scheduled, scheduled_size
from sidecar.engine.release.gate import Gate
from sidecar.engine.release.plan import Attempt, Plan, Released, Screened
from sidecar.engine.release.rates import RateLimits
from sidecar.engine.release.releaser import EVER_S, MAX_REFUSAL_ROUNDS, SEARCH_S, Releaser
from sidecar.engine.release.transaction import Outcome, Refusals, Request, Result, Transaction
from sidecar.metrics import Metrics
from snapshots.state.inventory import InventoryKeeper
from snapshots.state.state import RULES_KEY
from tests.support.hand_clock import HandClock
from tests.support.manifests import manifest

COMMITTED, REFUSED, ABORTED = (
    Result(Outcome.COMMITTED),
    Result(Outcome.REFUSED, why="too large"),
    Result(Outcome.ABORTED),
)
TOO_LARGE = Rejection(Reason.RECORD_TOO_LARGE, "too large")
NO_ANSWER = ClusterError(ClusterTrouble.UNANSWERED, "no answer")


class Brokers:
    """Give the prepared answers, and then commit."""

    def __init__(self, *answers: Result) -> None:
        self._answers = [*answers]
        self.refusals = Refusals({})
        self.written: list[Transaction] = []
        self.searched_s: list[float] = []

    def commit(self, transaction: Transaction) -> Result:
        self.written.append(transaction)
        found = self._answers.pop(0) if self._answers else COMMITTED
        return replace(found, offsets=[[7] for _ in transaction.requests]) if found is COMMITTED else found

    def find_refused(self, _transaction: Transaction, within_s: float) -> Refusals:
        self.searched_s.append(within_s)
        return self.refusals

    def released(self) -> list[list[int]]:
        return [[offset for _, offset, _ in each.released] for each in self.written]


class Owner:
    """Notes the fate of its requests."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def committed(self, _request: Request, offsets: Sequence[int]) -> None:
        self.told.append(f"committed at {[*offsets]}")

    def refused(self, _request: Request, why: str) -> None:
        self.told.append(f"refused: {why}")

    def left_out(self, _request: Request) -> None:
        self.told.append("left out")


class Screening:
    """Lets each record pass; the targets refuse the records that a test says."""

    def __init__(self) -> None:
        self.by_target: dict[int, Rejection] = {}
        self.asked_anew = 0
        self.directory = SimpleNamespace(forget=self._forget)

    def _forget(self) -> None:
        self.asked_anew += 1

    def screen(self, plan: Plan) -> Attempt:
        planned = cast("list[Entry[Scheduled]]", [*plan.resumed, *plan.batch.late, *plan.batch.due])
        screened = Screened(planned, plan.batch.rejected, [])
        return Attempt(plan, planned, screened, [*plan.requests], [*plan.batch.receipts])

    def refused_by_target(self, screened: Screened) -> dict[int, Rejection]:
        return {offset: why for offset, why in self.by_target.items() if any(e[1] == offset for e in screened.released)}


class Scene:
    """A partition with records at the offsets 0 to 2, due one after the other."""

    def __init__(self, *answers: Result) -> None:
        self.brokers, self.screening = Brokers(*answers), Screening()
        self.ledger: PartitionLedger = PartitionIndex(start_of(0), scheduled_size, runs=packed_runs())
        clock = HandClock()
        self.gate = Gate(RateLimits(clock.running_s, nullcontext()), LIMITS)
        context = PartitionContext(DelayTopicConfig(name="d"), 3, "g", Metrics(), clock)
        parts = (self.brokers, self.ledger, self.gate, InventoryKeeper(), cast("Any", self.screening))
        self.releaser = Releaser(context, *parts)
        for offset in range(3):
            schedule = Schedule(offset, ("out",), BY_KEY, KEEP_KEY, None, both_times=False)
            self.ledger.add([(offset, offset, Scheduled(schedule, 100, Record(b"k", b"v", (), 0)))])

    def release(self, *requests: Request) -> Released:
        return self.releaser.release(self.releaser.plan(10, 100, 1_000, requests))


def segments(owner: Owner) -> Request:
    return Request(owner, segments=((b"k", b"v"),))


def removal(owner: Owner) -> Request:
    return Request(owner, removed=(b"bucket/1",))


def test_a_committed_transaction_is_told_to_all_that_had_a_part_in_it() -> None:
    scene, owner = Scene(), Owner()
    released = scene.release(segments(owner), removal(owner))
    assert owner.told == ["committed at [7]"] * 2
    assert (released.aborted, released.by_target()) == (0, {"out": 3})
    assert scene.ledger.committed.watermark == Position(2, 2)
    assert scene.screening.asked_anew == 0


def test_the_manifest_of_a_request_is_planned_with_the_records() -> None:
    scene, owner = Scene(), Owner()
    installs = Installation(manifest(0, [(9, 0)]), merged_from=(1, 2))
    plan = scene.releaser.plan(10, 100, 1_000, [removal(owner), Request(owner, installs=installs)])
    assert plan.batch.installs == installs


def test_an_aborted_transaction_is_written_again_as_it_is() -> None:
    scene, owner = Scene(ABORTED, ABORTED), Owner()
    assert scene.release(removal(owner)).aborted == 2
    assert scene.brokers.released() == [[0, 1, 2]] * 3
    assert (owner.told, scene.screening.asked_anew) == (["committed at [7]"], 2)


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.FENCED])
def test_nothing_is_concluded_from_an_unknown_outcome(outcome: Outcome) -> None:
    scene, owner = Scene(Result(outcome, error=NO_ANSWER)), Owner()
    with pytest.raises(ClusterError, match="no answer"):
        scene.release(removal(owner))
    assert (owner.told, len(scene.brokers.written), scene.screening.asked_anew) == ([], 1, 1)
    assert scene.ledger.committed.watermark < Position(0, 0)


def test_requests_that_may_be_refused_are_taken_out_first() -> None:
    scene, large, small = Scene(REFUSED), Owner(), Owner()
    assert scene.release(segments(large), removal(small)).aborted == 1
    assert (large.told, small.told) == (["refused: too large"], ["committed at [7]"])
    assert scene.brokers.released() == [[0, 1, 2]] * 2
    assert scene.brokers.searched_s == []


def test_a_request_that_progress_depends_on_is_not_taken_out() -> None:
    scene, owner = Scene(REFUSED), Owner()
    scene.screening.by_target = {1: TOO_LARGE}
    scene.release(Request(owner, history=RuleHistory.beginning(0, Rules("d")), withdrawn=(b"k",)))
    assert owner.told == ["committed at [7]"]
    assert [key for key, _ in scene.brokers.written[-1].state] == [RULES_KEY]
    assert scene.brokers.released() == [[0, 1, 2], [0, 2]]


def test_where_the_rest_is_refused_without_the_requests_they_were_not_the_cause() -> None:
    scene, owner = Scene(REFUSED, REFUSED), Owner()
    scene.screening.by_target = {1: TOO_LARGE}
    released = scene.release(segments(owner))
    assert owner.told == ["left out"]
    assert [offset for offset, _ in released.screened.rejected] == [1]
    assert scene.brokers.released() == [[0, 1, 2], [0, 1, 2], [0, 2]]


def test_an_adoption_that_is_refused_ends_the_ownership() -> None:
    scene, owner = Scene(replace(REFUSED, error=NO_ANSWER)), Owner()
    adoption: Any = Adoption(Manifest(0, 3, 9, None, ()))
    plan = scene.releaser.plan(10, 100, 1_000)
    with pytest.raises(ClusterError, match="no answer"):
        scene.releaser.release(replace(plan, requests=[Request(owner, installs=adoption)]))
    assert owner.told == ["refused: too large"]


def test_records_that_the_brokers_refuse_are_found_and_rejected() -> None:
    scene = Scene(REFUSED)
    scene.brokers.refusals = Refusals({1: TOO_LARGE})
    released = scene.release()
    assert [(offset, refused.rejection) for offset, refused in released.screened.rejected] == [(1, TOO_LARGE)]
    assert scene.brokers.released() == [[0, 1, 2], [0, 2]]
    assert scene.brokers.searched_s == [SEARCH_S]
    assert released.truncated == 0


def test_a_rejected_record_that_its_topic_refuses_is_shortened() -> None:
    scene = Scene(REFUSED)
    scene.ledger.reject(3, Refused(TOO_LARGE, Record(b"k", b"long", (), 0)))
    scene.brokers.refusals = Refusals({3: TOO_LARGE})
    released = scene.release()
    assert [refused.record.value for _, refused in released.screened.rejected] == [None]
    assert (released.truncated, released.by_reason()) == (1, {"RECORD_TOO_LARGE": 1})


def test_a_rejected_record_that_cannot_be_shortened_ends_the_ownership() -> None:
    scene = Scene(replace(REFUSED, error=NO_ANSWER))
    scene.ledger.reject(3, Refused(TOO_LARGE, Record(None, None, (), 0)))
    scene.brokers.refusals = Refusals({3: TOO_LARGE})
    with pytest.raises(ClusterError, match="no answer"):
        scene.release()


def test_records_that_the_search_had_no_time_for_are_set_aside() -> None:
    scene = Scene(REFUSED)
    scene.brokers.refusals = Refusals({}, frozenset({"out"}), frozenset({1, 2}))
    with capture_logs() as logs:
        released = scene.release()
    assert [offset for _, offset, _ in released.held] == [1, 2]
    assert [(each["event"], each["targets"], each["count"]) for each in logs] == [("records_set_aside", ["out"], 2)]
    assert scene.brokers.released() == [[0, 1, 2], [0]]
    assert (scene.gate.records, scene.brokers.written[-1].inventory.held_keys) == (2, 2)


@pytest.mark.parametrize(
    ("doubted", "has_room", "searched_s"),
    [("out", True, [SEARCH_S]), ("d.rejected", True, [SEARCH_S, EVER_S]), ("out", False, [SEARCH_S, EVER_S])],
)
def test_the_search_goes_on_to_its_end_where_records_cannot_be_set_aside(
    doubted: str, searched_s: list[float], monkeypatch: pytest.MonkeyPatch, *, has_room: bool
) -> None:
    scene = Scene(REFUSED)
    monkeypatch.setattr(scene.gate, "has_room_for", lambda _: has_room)
    undecided = frozenset({1}) if doubted == "out" else frozenset[int]()
    scene.brokers.refusals = Refusals({}, frozenset({doubted}), undecided)
    scene.release()
    assert scene.brokers.searched_s == searched_s


def test_the_partition_is_taken_over_again_where_each_round_is_refused() -> None:
    scene = Scene(*[REFUSED] * MAX_REFUSAL_ROUNDS)
    with pytest.raises(RefusedError, match="too large: 3 records were refused 16 times"):
        scene.release()
    assert len(scene.brokers.written) == MAX_REFUSAL_ROUNDS
