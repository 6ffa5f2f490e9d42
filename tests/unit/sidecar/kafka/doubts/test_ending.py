"""The report of end-transaction about an open transaction, its options, and the rights that it lacks."""

from typing import cast

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from index.errors import ConfigError, DelayRouterError
from index.pending.progress import start_of
from index.rules.rule_history import RuleHistory
from sidecar.cli.program import cli
from sidecar.config.model import Config
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import parse_place
from sidecar.kafka.doubts.ending import EndTransaction
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


class Denied:
    """Stands for a producer without rights."""

    def init_transactions(self, _: float) -> None:
        raise KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))


def named_by(group: str, ending: Ending | None) -> StoredState:
    """Return a state that a lane of this group may write."""
    history = RuleHistory.beginning(0, CONFIG.rules_for(CONFIG.delay_topics[0]))
    lane = LaneName(f"{group}.lane.5f.0", 1)
    return StoredState(start_of(0), "", history, lane=lane, groups=frozenset({group}), ending=ending)


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (None, r"this user may not Write transactional id new\.d\.0; .* --transactional-id new\. "),
        (named_by("new", None), r"this user may not Write transactional id new\.lane\.5f\.0; "),
        (named_by("old", ENDING), r"group old have served d/0, .* id old\.lane\.5f\.0\. .* --transactional-id old\. "),
        # The fence would interrupt the other group.
        (named_by("old", None), "routers of group old, not new, serve d/0: .* Nothing was changed"),
    ],
    ids=["own-id", "own-lane", "lane-of-another-group", "refused-before-any-fence"],
)
def test_the_right_to_fence_is_named(stored: StoredState | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "ending_producer", lambda *_: Denied())
    monkeypatch.setattr(EndTransaction, "_stored", lambda _: stored)
    command = EndTransaction(CONFIG, cast("AdminClient", None), CONFIG.delay_topics[0], 0, ("out", 0))
    with pytest.raises(DelayRouterError, match=said):
        command.end(7, 40, committed=False)
