"""The command that cancels by query, on a desk in memory."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from index.named.receipts import Matched
from index.protocol.where import CancelWhere
from sidecar.cli import side
from sidecar.cli.program import cli
from sidecar.operations.controls.orders import QueryOrder
from sidecar.operations.status.answers import MatchingAnswer

WHERE = '{"target": "out"}'


class InMemory:
    """A desk with three schedules that match, which it counts in two calls."""

    def __init__(self) -> None:
        self.matched = Matched(1_207)
        self.asked: list[Any] = []

    def cancel_where(self, *asked: Any) -> Matched:
        self.asked.append(asked)
        return self.matched

    def matching(self, *asked: Any) -> MatchingAnswer:
        self.asked.append(asked)
        counted, next_from = (1, None) if asked[-1] else (2, "1/log/7")
        return MatchingAnswer(topic="d", matching=counted, next_from=next_from)

    def close(self) -> None:
        pass


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> InMemory:
    desk = InMemory()
    monkeypatch.setattr(side.SideOptions, "_straight", lambda _: desk)
    return desk


def cancel(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, ["cancel", "d", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_all_that_match_are_cancelled_and_counted(desk: InMemory) -> None:
    assert cancel("--where", WHERE, "--partition", "3", "--wait", "5").stdout == "1,207 schedules cancelled\n"
    assert desk.asked == [("d", QueryOrder(CancelWhere("out"), 3), 5)]
    assert json.loads(cancel("--where", WHERE, "--json").stdout) == {"topic": "d", "matched": 1_207}
    desk.matched = Matched(None, 90_000)
    assert cancel("--where", WHERE).stdout == "about 90,000 schedules cancelled\n"
    told = {"topic": "d", "matched": None, "estimated": 90_000}
    assert json.loads(cancel("--where", WHERE, "--json").stdout) == told


def test_a_dry_run_counts_and_cancels_nothing(desk: InMemory) -> None:
    assert cancel("--where", WHERE, "--dry-run").stdout == "3 schedules match; nothing was cancelled\n"
    assert desk.asked == [("d", QueryOrder(CancelWhere("out")), begin) for begin in ("", "1/log/7")]
    told = json.loads(cancel("--where", WHERE, "--dry-run", "--json", "--partition", "1").stdout)
    assert told == {"topic": "d", "matching": 3}
    assert desk.asked[-1] == ("d", QueryOrder(CancelWhere("out"), 1), "1/log/7")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "give an ID or --where"),
        (["order-7", "--where", WHERE], "give an ID or --where"),
        (["order-7", "--dry-run"], "--dry-run is for --where"),
        (["--where", WHERE, "--if-due", "5"], "--if-due is for an ID"),
        (["--where", "{}"], "--where: no field is given"),
        (["--where", '{"traget": "out"}'], "--where: traget: there is no such field"),
    ],
)
def test_wrong_usage_ends_before_anything_is_asked(desk: InMemory, arguments: list[str], problem: str) -> None:
    assert problem in " ".join(cancel(*arguments, code=2).stderr.split())
    assert desk.asked == []
