"""The receipt of a control, from the plan to the receipts topic; the same transaction masks the cancelled schedules."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from structlog.testing import capture_logs

from index.named.names import hash_of
from index.partition.partition import PartitionIndex
from index.pending.pending import Entry
from index.pending.progress import Position, start_of
from index.protocol.headers import NATIVE, StrippedNames
from index.protocol.record import Record
from index.protocol.schedule import BY_KEY, KEEP_KEY, Action, Control, Reason, Rejection, Schedule
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.context import PartitionContext
from sidecar.engine.limits import LIMITS
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.records import Scheduled, scheduled_size
from sidecar.engine.ports import Target
from sidecar.engine.release.gate import Gate
from sidecar.engine.release.moving import Moving
from sidecar.engine.release.occurring import Series
from sidecar.engine.release.plan import Released
from sidecar.engine.release.rates import RateLimits
from sidecar.engine.release.releaser import Releaser
from sidecar.engine.release.screening import Screening
from sidecar.kafka.writing.kafka_transactions import KafkaTransactions
from sidecar.kafka.writing.writer import PartitionWriter
from sidecar.metrics import Metrics
from sidecar.zones import zone_of
from snapshots.state.inventory import Inventory, InventoryKeeper
from snapshots.state.mask import decode_mask
from snapshots.state.state import RULES_KEY, encode_history, fold_state
from tests.support.hand_clock import HandClock
from tests.support.mock_broker import MockBroker, Seen

TOPIC = DelayTopicConfig(name="d", default_target="out")
RULES = Rules("d", default_target="out")
PARTITION = 3
MAX_BYTES = 4_000
DUE_MS = 9_000
CANCEL = Control(Action.CANCEL, b"order-7")
SCHEDULE = Schedule(DUE_MS, ("out",), BY_KEY, KEEP_KEY, b"order-7", both_times=False)


class _Directory:
    """A directory in which every target exists."""

    def resolve(self, names: Iterable[str], _known_for_s: float = 0) -> dict[str, Target]:
        return {name: Target(4, None, 0.0) for name in names}

    def forget(self) -> None:
        """Do nothing: it remembers nothing."""


class _Partition:
    """An owned partition and its broker: records of one id are pending, and the test indexes controls."""

    def __init__(self, broker: MockBroker) -> None:
        clock = HandClock(1_000)
        self.ledger: PartitionLedger = PartitionIndex(start_of(0), scheduled_size)
        writer = PartitionWriter(
            broker.producer, TOPIC, PARTITION, StrippedNames(alias.name for alias in NATIVE), "topic-id"
        )
        self._broker = broker
        self.records: dict[int, Record] = {}
        self.reads: list[list[Position]] = []
        self.refuses: Rejection | None = None
        self.decides = SCHEDULE
        self._gate = Gate(RateLimits(clock.running_s, nullcontext()), LIMITS)
        context = PartitionContext(TOPIC, PARTITION, "g", Metrics(), clock)
        screening = Screening(
            context,
            self._gate,
            RuleHistory.beginning(0, RULES),
            _Directory(),
            lambda _: {},
            lambda offset, _: pytest.fail(f"{offset} decided again"),
            compresses=False,
            series=Series(b"", "", zone_of),
            moving=Moving(self._read, self._decide, b"", "d/3/"),
        )
        self._releaser = Releaser(
            context,
            KafkaTransactions(writer, clock, compresses=False),
            self.ledger,
            self._gate,
            InventoryKeeper(),
            screening,
        )

    def schedule(self, count: int) -> None:
        """Index so many records of the id."""
        for offset in range(count):
            self.ledger.add([self._entry(offset)])
            self.ledger.named.names.add(hash_of(CANCEL.deliver_id), Position(DUE_MS, offset))

    def move(self, offset: int, value: bytes, due_ms: int, key: bytes = b"k") -> None:
        """Index a control that moves the pending schedules of the id; the last of them is the record at the offset."""
        self.records[offset] = Record(key, value, [("deliver-id", b"order-7"), ("trace", None)], 500)
        control = CANCEL._replace(action=Action.MOVE, due_ms=due_ms)
        self.ledger.control(self.ledger.indexed_to, control, Record(b"k", None, (), 500))

    def cancel(self, *headers: tuple[str, bytes]) -> None:
        """Index a control of the id with these headers."""
        self.ledger.control(self.ledger.indexed_to, CANCEL, Record(b"k", None, headers, 500))

    def release(self, now_ms: int) -> Released:
        """Release every record that is due by then."""
        resumed = self._gate.resumed(1_000, now_ms)
        return self._releaser.release(self._releaser.plan(now_ms, 1_000, 1_000_000, (), resumed))

    def written(self, topic: str) -> list[Seen]:
        return self._broker.written(topic)

    def _entry(self, offset: int) -> Entry[Scheduled]:
        return DUE_MS, offset, Scheduled(SCHEDULE, 100, Record(b"k", b"v", (), 500))

    def _read(self, places: Sequence[Position]) -> dict[int, Record | None]:
        self.reads.append([*places])
        return {offset: self.records.get(offset) for _, offset in places}

    def _decide(self, _: int, __: Record) -> Schedule | Rejection:
        return self.refuses or self.decides


@pytest.fixture
def partition() -> Iterator[_Partition]:
    with MockBroker(**{"message.max.bytes": MAX_BYTES}) as broker:
        yield _Partition(broker)


def test_a_receipt_leaves_with_the_mask_and_nothing_that_it_cancels(partition: _Partition) -> None:
    partition.schedule(2)
    partition.cancel(("deliver-cancel", b"order-7"), ("correlation-id", b"c1"))
    partition.release(now_ms=2_000)
    partition.release(now_ms=DUE_MS)
    (receipt,) = partition.written("d.receipts")
    assert (receipt.partition, receipt.key) == (PARTITION, b"order-7")
    assert receipt.headers == (
        ("deliver-cancel", b"order-7"),
        ("correlation-id", b"c1"),
        ("delay-source", b"d/3/2"),
    )
    assert json.loads(receipt.value or b"")["cancelled"] == [{"offset": 0, "due": DUE_MS}, {"offset": 1, "due": DUE_MS}]
    assert partition.written("out") == []
    assert partition.ledger.pending == 0


def test_receipts_are_counted_by_outcome(partition: _Partition) -> None:
    partition.schedule(2)
    partition.cancel()
    partition.cancel()
    released = partition.release(now_ms=2_000)
    assert released.by_outcome() == {"cancelled": 1, "not-pending": 1}
    assert sum(len(receipt.cancelled) for receipt in released.receipts) == 2


def test_what_is_masked_is_in_the_state_and_in_its_inventory(partition: _Partition) -> None:
    partition.schedule(1)
    partition.cancel()
    partition.release(now_ms=2_000)
    state = [(each.key, each.value) for each in partition.written("d.delay-state")]
    masks = [(key, value) for key, value in state if key and value and key.startswith(b"mask/")]
    assert list(decode_mask(masks)) == [0]
    stored = fold_state([*state, (RULES_KEY, encode_history(RuleHistory.beginning(0, RULES)))])
    assert stored is not None
    assert (stored.progress.cursor, stored.inventory) == (2, Inventory(mask_keys=1))


def test_a_receipt_that_is_too_large_loses_its_largest_part_first(partition: _Partition) -> None:
    partition.schedule(20)
    partition.cancel(("trace", b"x" * MAX_BYTES))
    released = partition.release(now_ms=2_000)
    assert released.truncated == 1
    (receipt,) = partition.written("d.receipts")
    assert [name for name, _ in receipt.headers] == ["delay-source"]
    said = json.loads(receipt.value or b"")
    assert (len(said["cancelled"]), said["omitted"]) == (20, {"headers": 1})


def test_a_receipt_of_too_many_says_how_many_there_were_and_cancels_them_all(partition: _Partition) -> None:
    partition.schedule(400)
    partition.cancel(("trace", b"x"))
    partition.release(now_ms=2_000)
    partition.release(now_ms=DUE_MS)
    (receipt,) = partition.written("d.receipts")
    said = json.loads(receipt.value or b"")
    assert (said["outcome"], said["cancelled"], said["omitted"]) == ("cancelled", [], {"cancelled": 400})
    assert ("trace", b"x") in receipt.headers
    assert (partition.written("out"), partition.ledger.pending) == ([], 0)


def test_what_is_moved_is_written_again_with_the_receipt_and_noted_where_it_lies(partition: _Partition) -> None:
    partition.schedule(2)
    partition.move(1, b"the last", 20_000)
    partition.release(now_ms=2_000)
    (receipt,), (moved,) = partition.written("d.receipts"), partition.written("d")
    cancelled = [{"offset": 0, "due": DUE_MS}, {"offset": 1, "due": DUE_MS}]
    wanted = {"action": "move", "outcome": "moved", "cancelled": cancelled, "due": 20_000}
    assert json.loads(receipt.value or b"") == wanted
    assert (moved.partition, moved.key, moved.value) == (PARTITION, b"k", b"the last")
    assert moved.headers == (
        ("trace", None),
        ("deliver-at", b"20000"),
        ("deliver-to", b"out"),
        ("deliver-id", b"order-7"),
        ("delay-source", b"d/3/2"),
    )
    assert partition.ledger.named.transit.find(hash_of(b"order-7"), -1) == [Position(20_000, 0)]
    partition.release(now_ms=DUE_MS)
    assert (partition.written("out"), partition.ledger.pending) == ([], 0)


def too_large(partition: _Partition, due_ms: int, key: bytes = b"k" * 151, fewer: int = 200) -> None:
    """Move the pending schedules; the last one, at offset 1, is too large to be written with the headers of a move."""
    partition.move(1, b"x" * (MAX_BYTES - fewer), due_ms, key=key)


def last_receipts(partition: _Partition, count: int) -> list[dict[str, Any]]:
    """Return the values of the last receipts; the broker of this test also shows aborted records."""
    return [json.loads(each.value or b"") for each in partition.written("d.receipts")[-count:]]


def test_what_the_delay_topic_refuses_stays_where_it_was_and_the_receipt_says_why(partition: _Partition) -> None:
    partition.schedule(2)
    too_large(partition, 20_000)
    partition.release(now_ms=2_000)
    (said,) = last_receipts(partition, 1)
    assert (said["outcome"], said["cancelled"], said["due"]) == ("cancelled", [{"offset": 0, "due": DUE_MS}], None)
    assert said["why"].startswith("RECORD_TOO_LARGE: what follows it cannot be written to d")
    partition.cancel(("trace", b"1"))
    assert (partition.written("d.rejected"), partition.ledger.pending) == ([], 1)
    partition.release(now_ms=2_000)
    (said,) = last_receipts(partition, 1)
    assert (said["outcome"], said["cancelled"]) == ("cancelled", [{"offset": 1, "due": DUE_MS}])


def test_what_could_not_be_moved_is_released_when_it_was_due_before(partition: _Partition) -> None:
    partition.schedule(2)
    too_large(partition, 20_000)
    too_large(partition, 30_000)
    partition.release(now_ms=2_000)
    assert [said["outcome"] for said in last_receipts(partition, 2)] == ["cancelled", "not-moved"]
    partition.release(now_ms=DUE_MS)
    (released,) = partition.written("out")
    assert dict(released.headers)["delay-source"] == b"d/3/1"
    assert (partition.written("d"), partition.written("d.rejected"), partition.ledger.pending) == ([], [], 0)


def test_what_is_due_just_when_it_cannot_be_moved_is_released_by_the_next_transaction(
    partition: _Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The state topic of this test takes no more than the delay topic.
    monkeypatch.setattr("snapshots.state.held.MAX_PART_BYTES", 1_000)
    partition.decides = SCHEDULE._replace(key=b"own")
    partition.schedule(2)
    # The record is released without the key that makes it too large.
    too_large(partition, 20_000, key=b"k" * 400, fewer=500)
    released = partition.release(now_ms=DUE_MS)
    assert [offset for _, offset, _ in released.held] == [1]
    assert partition.written("out") == []
    partition.release(now_ms=DUE_MS)
    (left,) = partition.written("out")
    assert dict(left.headers)["delay-source"] == b"d/3/1"
    partition.release(now_ms=DUE_MS)
    assert partition.written("out") == []


def test_of_many_moves_of_one_schedule_the_last_is_written_and_each_is_answered(partition: _Partition) -> None:
    partition.schedule(1)
    for number in range(300):
        partition.move(0, b"value", 20_000 + number)
    partition.release(now_ms=2_000)
    (moved,), receipts = partition.written("d"), last_receipts(partition, 300)
    assert (dict(moved.headers)["delay-source"], dict(moved.headers)["deliver-at"]) == (b"d/3/300", b"20299")
    assert [said["outcome"] for said in receipts] == ["moved"] * 300
    named = [{"offset": 0, "due": DUE_MS}, *({"offset": 1 + number, "due": 20_000 + number} for number in range(299))]
    assert [said["cancelled"] for said in receipts] == [[each] for each in named]
    assert partition.reads == [[Position(DUE_MS, 0)]]
    assert partition.ledger.named.transit.find(hash_of(b"order-7"), -1) == [Position(20_299, 0)]


def test_what_is_cancelled_right_behind_its_move_is_not_written_at_all(partition: _Partition) -> None:
    partition.schedule(1)
    partition.move(0, b"value", 20_000)
    partition.cancel()
    partition.release(now_ms=2_000)
    moved, cancelled = last_receipts(partition, 2)
    assert (moved["outcome"], moved["cancelled"]) == ("moved", [{"offset": 0, "due": DUE_MS}])
    assert (cancelled["outcome"], cancelled["cancelled"]) == ("cancelled", [{"offset": 1, "due": 20_000}])
    partition.release(now_ms=30_000)
    assert (partition.written("d"), partition.written("out"), partition.ledger.pending) == ([], [], 0)


def test_what_is_gone_is_told_as_lost_instead_of_moved(partition: _Partition) -> None:
    partition.schedule(1)
    partition.move(0, b"", 20_000)
    partition.records.clear()
    with capture_logs() as logs:
        partition.release(now_ms=2_000)
    (receipt,) = partition.written("d.receipts")
    said = json.loads(receipt.value or b"")
    assert (said["outcome"], said["cancelled"], said["due"]) == ("not-pending", [], None)
    assert [(each["event"], each["offsets"]) for each in logs] == [("records_lost", [0])]
    assert partition.written("d") == []


def test_what_the_rules_of_today_refuse_is_rejected_instead_of_moved(partition: _Partition) -> None:
    partition.schedule(1)
    partition.move(0, b"in transit until now", 20_000)
    partition.refuses = Rejection(Reason.MAX_DELAY_EXCEEDED, "too far")
    partition.release(now_ms=2_000)
    (receipt,), (rejected,) = partition.written("d.receipts"), partition.written("d.rejected")
    assert json.loads(receipt.value or b"")["outcome"] == "not-pending"
    added = dict(rejected.headers)
    assert (rejected.value, added["delay-error"]) == (b"in transit until now", b"MAX_DELAY_EXCEEDED")
    assert added["delay-source"] == b"d/3/0"
    assert partition.written("d") == []
