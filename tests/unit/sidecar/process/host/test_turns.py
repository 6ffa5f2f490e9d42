"""Turns: taken in the order of the line, by a few at a time, checked against a naive model."""

from random import Random

import pytest

from sidecar.process.host.pool import FairTurns


def test_the_first_few_in_line_have_their_turn() -> None:
    turns = FairTurns(2, 5.0)
    assert [turns.has_come(who, 0.0) for who in "abcd"] == [True, True, False, False]
    turns.leave("a")
    assert [turns.has_come(who, 1.0) for who in "dcb"] == [False, True, True]


def test_whoever_leaves_the_line_makes_way_for_those_behind() -> None:
    turns = FairTurns(1, 5.0)
    assert [turns.has_come(who, 0.0) for who in "abc"] == [True, False, False]
    turns.leave("b")
    turns.leave("a")
    assert turns.has_come("c", 0.0)


def test_one_that_takes_long_keeps_its_turn_and_holds_up_nobody() -> None:
    turns = FairTurns(1, 5.0)
    assert turns.has_come("a", 0.0)
    assert not turns.has_come("b", 4.9)
    assert turns.has_come("b", 5.0)
    assert turns.has_come("a", 6.0)
    assert not turns.has_come("c", 6.0)


def test_to_leave_without_having_been_in_line_does_nothing() -> None:
    turns = FairTurns(1, 5.0)
    turns.leave("a")
    assert turns.has_come("b", 0.0)


@pytest.mark.parametrize("seed", range(50))
def test_turns_are_those_of_a_line_on_paper(seed: int) -> None:
    rng = Random(seed)
    at_once = rng.randint(1, 3)
    turns = FairTurns(at_once, 5.0)
    line: list[str] = []
    began_s: dict[str, float] = {}
    now_s = 0.0
    for _ in range(200):
        now_s += rng.random()
        who = rng.choice("abcdefg")
        if rng.random() < 0.3:
            turns.leave(who)
            line = [each for each in line if each != who]
            began_s.pop(who, None)
            continue
        if who not in line:
            line.append(who)
        in_front = line[: line.index(who)]
        holding = [each for each in in_front if now_s - began_s.get(each, now_s) < 5.0]
        if who not in began_s and len(holding) < at_once:
            began_s[who] = now_s
        assert turns.has_come(who, now_s) == (who in began_s)
