"""The report of end-transaction about an open transaction, and its options."""

import pytest
from click.testing import CliRunner

from index.errors import ConfigError
from sidecar.cli.program import cli
from sidecar.kafka.client.admin import parse_place
from sidecar.kafka.doubts.shown import Shown
from snapshots.state.ending import Ending

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
