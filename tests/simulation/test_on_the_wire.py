"""Receipts and moved schedules as they are written: the transactions of a playbook go to the broker of librdkafka."""

import json
from collections.abc import Iterator
from typing import cast

import pytest

from index.protocol.headers import NATIVE, StrippedNames
from index.rules.rule_history import RuleHistory
from sidecar.kafka.client.connections import RenewableProducer
from sidecar.kafka.writing.kafka_transactions import KafkaTransactions
from sidecar.kafka.writing.lane import Lane
from sidecar.kafka.writing.writer import PartitionWriter
from snapshots.state.inventory import Inventory
from snapshots.state.mask import decode_mask
from snapshots.state.state import RULES_KEY, encode_history, fold_state
from tests.simulation.host import TOPIC_ID, Host
from tests.simulation.playbook import RULES, Playbook
from tests.simulation.world import FIRST_OFFSET, START_MS
from tests.support.mock_broker import MockBroker

MAX_BYTES = 4_000


@pytest.fixture
def broker() -> Iterator[MockBroker]:
    with MockBroker(**{"message.max.bytes": MAX_BYTES}) as started:
        yield started


@pytest.fixture
def play(broker: MockBroker) -> Playbook:
    """Return a playbook that writes to the broker only, so that the model sees no transaction."""

    class Wired(Host):
        def transactions(self, _: object) -> KafkaTransactions:
            stripped = StrippedNames(alias.name for alias in NATIVE)
            writer = PartitionWriter(broker.producer, self.context.topic, 0, stripped, TOPIC_ID)
            return KafkaTransactions(
                Lane(cast("RenewableProducer", broker.producer)), writer, self.context.clock, compresses=False
            )

    return Playbook(make_host=Wired)


def test_a_receipt_tells_what_was_cancelled_and_where_the_control_lies(play: Playbook, broker: MockBroker) -> None:
    play.sends("a", after_ms=9_000, id="order-7")
    play.sends(cancel="order-7", headers=[("correlation-id", b"c1")])
    play.turn(now_ms=9_000)
    (receipt,) = broker.written("d.receipts")
    assert (receipt.partition, receipt.key) == (0, b"order-7")
    assert receipt.headers == (("deliver-cancel", b"order-7"), ("correlation-id", b"c1"), ("delay-source", b"d/0/501"))
    cancelled = [{"offset": FIRST_OFFSET, "due": START_MS + 9_000}]
    assert json.loads(receipt.value or b"")["cancelled"] == cancelled
    assert broker.written("out") == []


def test_the_state_and_its_inventory_have_the_mask(play: Playbook, broker: MockBroker) -> None:
    play.sends("a", after_ms=9_000, id="order-7")
    play.sends(cancel="order-7")
    play.turn(now_ms=0)
    state = [(each.key or b"", each.value) for each in broker.written("d.delay-state")]
    masks = [(key, value) for key, value in state if value and key.startswith(b"mask/")]
    assert list(decode_mask(masks)) == [FIRST_OFFSET]
    stored = fold_state([*state, (RULES_KEY, encode_history(RuleHistory.beginning(0, RULES)))])
    assert stored is not None
    assert (stored.progress.cursor, stored.inventory) == (FIRST_OFFSET + 2, Inventory(mask_keys=1, group="g"))


@pytest.mark.parametrize(
    ("count", "header_bytes", "told", "omitted"),
    [(20, MAX_BYTES, 20, {"headers": 2}), (200, 1, 0, {"cancelled": 200})],
)
def test_a_receipt_that_is_too_large_loses_its_largest_part_first(
    play: Playbook, broker: MockBroker, count: int, header_bytes: int, told: int, omitted: object
) -> None:
    for _ in range(count):
        play.sends("a", after_ms=9_000, id="order-7")
    play.sends(cancel="order-7", headers=[("trace", b"x" * header_bytes)])
    play.turn(now_ms=9_000)
    receipt = broker.written("d.receipts")[-1]
    said = json.loads(receipt.value or b"")
    assert (said["outcome"], len(said["cancelled"]), said["omitted"]) == ("cancelled", told, omitted)
    assert [name for name, _ in receipt.headers if name == "trace"] == ["trace"] * (not told)
    assert broker.written("out") == []


def test_a_moved_schedule_is_written_with_its_times_and_targets(play: Playbook, broker: MockBroker) -> None:
    play.sends("a", after_ms=9_000, id="order-7", headers=[("trace", None)])
    play.sends(move="order-7", after_ms=20_000)
    play.turn(now_ms=0)
    (receipt,), (moved,) = broker.written("d.receipts"), broker.written("d")
    cancelled = [{"offset": FIRST_OFFSET, "due": START_MS + 9_000}]
    wanted = {"action": "move", "outcome": "moved", "cancelled": cancelled, "due": START_MS + 20_000}
    assert json.loads(receipt.value or b"") == wanted
    assert (moved.partition, moved.key, moved.value) == (0, b"k", b"500/a")
    assert moved.headers == (
        ("trace", None),
        ("deliver-at", b"%d" % (START_MS + 20_000)),
        ("deliver-to", b"out"),
        ("deliver-id", b"order-7"),
        ("delay-source", b"d/0/501"),
    )


def test_the_receipt_of_a_move_that_the_delay_topic_refuses_says_why(play: Playbook, broker: MockBroker) -> None:
    # The record is too large only with the headers of a move.
    play.sends("a" * (MAX_BYTES - 50), after_ms=9_000, id="order-7")
    play.sends(move="order-7", after_ms=20_000)
    play.turn(now_ms=0)
    said = json.loads(broker.written("d.receipts")[-1].value or b"")
    assert (said["outcome"], said["cancelled"], said["due"]) == ("not-moved", [], None)
    assert said["why"].startswith("RECORD_TOO_LARGE: the record that follows it cannot be written to d")
