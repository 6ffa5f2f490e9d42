"""The report of end-transaction about an open transaction, its options, and the rights that it lacks."""

from typing import cast

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from pyroaring import FrozenBitMap64

from index.errors import ConfigError, DelayRouterError
from index.pending.progress import start_of
from index.protocol.record import Record
from index.rules.rule_history import RuleHistory
from sidecar.cli.program import cli
from sidecar.config.model import Config
from sidecar.engine.ports import Place
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import parse_place
from sidecar.kafka.doubts.ending import EndTransaction
from sidecar.kafka.doubts.hidden import Hidden
from sidecar.kafka.doubts.shown import Shown
from snapshots.state.ending import Ending
from snapshots.state.lane import LaneName
from snapshots.state.state import StoredState

SHOWN = Shown(("orders", 3), 40, 44, records=4, left=4, pending=0, log_says="committed", resumed=None)


@pytest.mark.parametrize(("left", "pending", "outcome"), [(4, 0, ""), (0, 4, "aborted"), (2, 2, ""), (0, 0, "")])
def test_the_state_tells_of_an_abort_alone(left: int, pending: int, outcome: str) -> None:
    """A record without a key that was aborted there leaves to another partition."""
    shown = Shown(("orders", 3), 40, 44, left + pending, left, pending, "", None)
    assert shown.by_state == outcome


def test_a_person_reads_whose_it_may_be_and_how_to_end_it() -> None:
    text = "\n".join(SHOWN.lines("orders.delay/0", "delay-router.orders.delay.0", "localhost:9092"))
    assert "orders/3: a transaction is open from offset 40 on; the log ends at 44" in text
    assert "by its state 4 have left" in text
    assert "describe-producers --topic orders --partition 3" in text
    assert "describe --transactional-id delay-router.orders.delay.0" in text
    command = "delay-router end-transaction orders.delay/0 orders/3 --producer-id ID --start-offset 40"
    assert f"{command} --outcome OUTCOME" in text
    assert "abort --topic orders --partition 3 --start-offset 40" in text


def test_nothing_open_and_something_begun_are_said() -> None:
    closed = Shown(("orders", 3), 44, 44, 0, 0, 0, "", None)
    assert closed.lines("d/0", "id", "b") == ["orders/3: no transaction is open"]
    begun = Shown(("orders", 3), 44, 44, 0, 0, 0, "", Ending("orders", 3, 40, 44, committed=False, producer_id=7))
    (line,) = begun.lines("d/0", "id", "b")
    assert line.endswith("orders/3 --producer-id 7 --start-offset 40 --outcome aborted")
    assert begun.as_json()["open"]


@pytest.mark.parametrize("text", ["orders", "orders/", "orders/x", "/", "orders/-1", "orders/²"])
def test_a_place_is_a_topic_and_a_number(text: str) -> None:
    with pytest.raises(ConfigError, match="write TOPIC/PARTITION, as in orders/0"):
        parse_place(text, "end-transaction", "orders/0")


def test_a_place_is_read() -> None:
    assert parse_place("a/b/3", "end-transaction", "orders/0") == ("a/b", 3)


def test_half_of_the_options_is_refused() -> None:
    result = CliRunner().invoke(cli, ["end-transaction", "d/0", "o/0", "--producer-id", "7"])
    assert result.exit_code == 2
    assert "together" in result.output


def test_only_the_id_of_a_lane_can_be_given() -> None:
    given = ["end-transaction", "d/0", "o/0", "--brokers", "127.0.0.1:1", "--transactional-id", "g.d.0"]
    result = CliRunner().invoke(cli, given)
    assert result.exit_code == 2


CONFIG = Config.model_validate(
    {
        "kafka": {"bootstrap.servers": "b:9092"},
        "router": {"group_id": "new"},
        "delay_topics": [{"name": "d", "default_target": "out"}],
    }
)
ENDING = Ending("out", 0, 40, 44, committed=False, producer_id=7)


class Producers:
    """Stands for the producers of a user who has no right to one transactional id."""

    def __init__(self, denied: str) -> None:
        self._denied = denied
        self._id = ""

    def of(self, _: Config, transactional_id: str, __: object) -> "Producers":
        self._id = transactional_id
        return self

    def init_transactions(self, _: float) -> None:
        if self._id == self._denied:
            raise KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))


def named_by(group: str, ending: Ending | None) -> StoredState:
    """Return a state that a lane of this group may write."""
    history = RuleHistory.beginning(0, CONFIG.rules_for(CONFIG.delay_topics[0]))
    lane = LaneName(f"{group}.lane.5f.0", 1)
    return StoredState(start_of(0), "", history, lane=lane, groups=frozenset({group}), ending=ending)


@pytest.mark.parametrize(
    ("denied", "stored", "said"),
    [
        ("new.d.0", None, r"this user may not Write transactional id new\.d\.0; .* --transactional-id new\. "),
        ("new.lane.5f.0", named_by("new", None), r"this user may not Write transactional id new\.lane\.5f\.0; "),
        (
            "old.d.0",
            named_by("old", ENDING),
            r"group old have served d/0, .* id old\.d\.0\. .* --transactional-id old\. ",
        ),
        # The fence would interrupt the other group.
        ("old.d.0", named_by("old", None), "routers of group old, not new, serve d/0: .* Nothing was changed"),
    ],
    ids=["own-id", "own-lane", "another-group", "refused-before-any-fence"],
)
def test_the_right_to_fence_is_named(
    denied: str, stored: StoredState | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "ending_producer", Producers(denied).of)
    monkeypatch.setattr(EndTransaction, "_stored", lambda _: stored)
    command = EndTransaction(CONFIG, cast("AdminClient", None), CONFIG.delay_topics[0], 0, ("out", 0))
    with pytest.raises(DelayRouterError, match=said):
        command.end(7, 40, committed=False)


@pytest.mark.parametrize("name", ["d", "d.delay-state", "d.delay-snapshots", "d.delay-backfill", "d.receipts"])
def test_the_place_of_another_partition_is_refused_with_the_command_for_it(name: str) -> None:
    """The settled state of the first partition would tell nothing of its records, and none would be written again."""
    topic = CONFIG.delay_topics[0]
    with pytest.raises(ConfigError, match=f"{name}/1 is of d/1: run delay-router end-transaction d/1 {name}/1"):
        EndTransaction(CONFIG, cast("AdminClient", None), topic, 0, (name, 1))
    EndTransaction(CONFIG, cast("AdminClient", None), topic, 1, (name, 1))


@pytest.mark.parametrize("name", ["out", "d.rejected"])
def test_a_place_of_several_partitions_is_ended_for_each_of_them(name: str) -> None:
    EndTransaction(CONFIG, cast("AdminClient", None), CONFIG.delay_topics[0], 0, (name, 1))


def hidden(place: Place, offset: int, source_offset: int) -> Hidden:
    """Return a record without a time on a place."""
    return Hidden(offset, place, source_offset, Record(None, b"", (), 0))


def owed(place: Place, found: list[Hidden], stored: StoredState, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the offsets of the records that a committed transaction has to write again."""
    monkeypatch.setattr(EndTransaction, "_hidden", lambda *_: found)
    monkeypatch.setattr(EndTransaction, "_own_offsets", lambda *_: None)
    command = EndTransaction(CONFIG, cast("AdminClient", None), CONFIG.delay_topics[0], 0, place)
    return [each.offset for each in command._owed(stored, Ending(*place, 0, 99, committed=True, producer_id=7))]


@pytest.mark.parametrize("name", ["d.receipts", "out"])
def test_what_leaves_at_once_has_left_when_c_has_passed_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """W still is at the beginning: the partition has released nothing that had a time."""
    history = RuleHistory.beginning(0, CONFIG.rules_for(CONFIG.delay_topics[0]))
    stored = StoredState(start_of(0)._replace(cursor=10), "", history)
    found = [hidden(("d", 0), 50, source_offset=5), hidden(("d", 0), 51, source_offset=10)]
    assert owed((name, 0), found, stored, monkeypatch) == [50]


def test_what_was_cancelled_in_transit_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its new offset is not in the mask, so that it would be released after the receipt of its cancellation."""
    history = RuleHistory.beginning(0, CONFIG.rules_for(CONFIG.delay_topics[0]))
    stored = StoredState(start_of(0)._replace(cursor=10), "", history, mask=FrozenBitMap64([51]))
    found = [hidden(("d", 0), 50, source_offset=5), hidden(("d", 0), 51, source_offset=6)]
    assert owed(("d", 0), found, stored, monkeypatch) == [50]
