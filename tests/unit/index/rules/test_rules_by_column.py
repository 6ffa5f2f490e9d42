"""Decisions for many records at once: the same schedules as one by one, or none at all."""

import random
from collections.abc import Callable, Sequence

import pytest

from index.protocol.headers import PRESETS, Alias, HeaderRole, Unit
from index.protocol.schedule import Schedule
from index.rules.rules import Rules
from index.rules.rules_by_column import decide_alike
from index.rules.rules_stored import RULES_OF_0_1_0

NOW_MS = 1_767_225_600_000
ALIASES = (
    *PRESETS["etf1"],
    *PRESETS["cesium"],
    Alias("x-late-s", HeaderRole.EXPIRE, Unit.S),
    Alias("x-us", HeaderRole.AT, Unit.US),
    Alias("x-be", HeaderRole.AFTER, Unit.BE_MS),
)
RULES = Rules("d", "out", ("a", "b.*"), aliases=ALIASES)
STRICT = Rules("d", "out", ("a", "b.*"), aliases=ALIASES, require_time=True)
DELAYING = Rules("d", "out", ("a", "b.*"), aliases=ALIASES, delay_ms=90_000)
LENIENT = Rules("d", "out", ("a", "b.*"), aliases=ALIASES, ignores_unknown=True)
OF_0_1_0 = Rules("d", "out", ("a", "b.*"), aliases=ALIASES, version=RULES_OF_0_1_0)
Value = Callable[[random.Random], bytes | None]

KINDS: dict[str, Value] = {
    "deliver-at": lambda chance: b"%d" % (NOW_MS + chance.randrange(10**6)),
    "cesium-deliver-at": lambda chance: b"%d" % (NOW_MS + chance.randrange(10**6)),
    "scheduler-epoch": lambda chance: b"%d" % (NOW_MS // 1_000 + chance.randrange(10**3)),
    "deliver-after": lambda chance: chance.choice([b"0", b"15", b"90000", b"PT15M"][: chance.choice([3, 4])]),
    "deliver-to": lambda chance: chance.choice([b"a", b"b.x", b"b.y", b"not allowed"][: chance.choice([3, 3, 4])]),
    "scheduler-target-topic": lambda chance: chance.choice([b"a", b"b.z"]),
    "deliver-key": lambda chance: chance.choice([b"key", b"", None]),
    "deliver-partition": lambda chance: b"%d" % chance.randrange(9),
    "deliver-id": lambda chance: chance.choice([b"id", b""]),
    "deliver-expire-after": lambda chance: chance.choice([b"0", b"1500", b"PT1M"][: chance.choice([2, 3])]),
    "x-late-s": lambda chance: b"%d" % chance.randrange(9),
    "schedule_source_type": lambda _: b"schedule",
    "trace": lambda chance: chance.choice([b"1", None]),
    "Deliver-At": lambda chance: chance.choice(
        [b"%d" % NOW_MS, b"%d" % (NOW_MS + 5), None][: chance.choice([2, 2, 3])]
    ),
    "DELIVER-TO": lambda chance: chance.choice([b"a", b"b.x", b"b.rejected"][: chance.choice([2, 3])]),
    "Deliver-Expire-After": lambda chance: chance.choice([b"7", b"15m", None][: chance.choice([1, 2, 3])]),
    "deliver-att": lambda _: b"%d" % NOW_MS,
    "deliver-cancel": lambda _: b"id",
    "delay-hops": lambda chance: chance.choice([b"1", b"99", b"x", None]),
    "x-us": lambda chance: b"%d" % ((NOW_MS + chance.randrange(10**6)) * 1_000),
    "x-be": lambda chance: chance.choice([b"\x05", b"7", b"\x00" * 8]),
}


def _columns(headers: Sequence[Sequence[tuple[str, bytes | None]]]) -> list[list[bytes | None]]:
    return [list(column) for column in zip(*([value for _, value in each] for each in headers), strict=True)]


@pytest.mark.parametrize(
    "rules",
    [RULES, STRICT, LENIENT, DELAYING, OF_0_1_0],
    ids=["of now", "strict", "lenient", "delaying", "0.1.0"],
)
@pytest.mark.parametrize("seed", range(400))
def test_many_are_decided_as_each_by_itself(seed: int, rules: Rules) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    names = chance.sample(list(KINDS), chance.randrange(1, 5))
    headers = [[(name, KINDS[name](chance)) for name in names] for _ in range(20)]
    timestamps_ms = [NOW_MS - chance.randrange(10**6) for _ in headers]
    decided = [rules.decide(each, at_ms) for each, at_ms in zip(headers, timestamps_ms, strict=True)]
    dues_ms = [each.due_ms if isinstance(each, Schedule) else 0 for each in decided]
    found = decide_alike(rules, names, _columns(headers), timestamps_ms, dues_ms)
    if found is not None:
        assert found == decided


@pytest.mark.parametrize(
    "names",
    [
        ["deliver-at"],
        ["trace", "deliver-at", "deliver-to"],
        ["deliver-to", "scheduler-target-topic", "cesium-deliver-at"],
        ["deliver-at", "deliver-key", "deliver-partition", "deliver-id"],
        ["deliver-at", "cesium-delay-ms"],
        ["deliver-at", "deliver-expire-after"],
        ["Deliver-At", "delay-hops", "trace"],
    ],
)
def test_the_usual_ones_are_decided_at_once(names: list[str]) -> None:
    chance = random.Random(1)
    plain = {
        "deliver-expire-after": b"9",
        "deliver-to": b"b.x",
        "scheduler-target-topic": b"a",
        "cesium-delay-ms": b"7",
        "Deliver-At": b"%d" % NOW_MS,
    }
    headers = [[(name, plain.get(name) or KINDS[name](chance)) for name in names] for _ in range(20)]
    decided = [RULES.decide(each, NOW_MS) for each in headers]
    dues_ms = [each.due_ms for each in decided if isinstance(each, Schedule)]
    assert decide_alike(RULES, names, _columns(headers), [NOW_MS] * 20, dues_ms) == decided


def test_records_without_any_header_are_decided_at_once_where_there_is_a_delay() -> None:
    timestamps_ms = [NOW_MS, NOW_MS + 7]
    dues_ms = [NOW_MS + 90_000, NOW_MS + 90_007]
    decided = [DELAYING.decide(None, each) for each in timestamps_ms]
    assert decide_alike(DELAYING, [], [], timestamps_ms, dues_ms) == decided
    assert decide_alike(RULES, [], [], timestamps_ms, dues_ms) is None


def test_due_times_that_are_not_those_of_the_headers_are_noticed() -> None:
    columns = [[b"%d" % NOW_MS, b"%d" % NOW_MS]]
    assert decide_alike(RULES, ["deliver-at"], columns, [NOW_MS] * 2, [NOW_MS, NOW_MS + 1]) is None


@pytest.mark.parametrize(("name", "value"), [("deliver-partition", b"-1"), ("deliver-id", b"x" * 257)])
def test_what_is_due_at_once_may_be_there_to_be_rejected(name: str, value: bytes) -> None:
    assert not isinstance(RULES.decide([(name, value)], NOW_MS), Schedule)
    assert decide_alike(RULES, [name], [[value]], [NOW_MS], [0]) is None


@pytest.mark.parametrize(
    ("rules", "headers"),
    [
        (Rules("d", "out", enabled=False), [("deliver-at", b"%d" % NOW_MS)]),
        (RULES, [("deliver-at", b"%d" % NOW_MS), ("x-late-s", b"5")]),
        (Rules("d"), [("deliver-at", b"%d" % NOW_MS)]),
        (Rules("d", "out"), [("deliver-at", b"%d" % NOW_MS), ("deliver-to", b"elsewhere")]),
        (Rules("d", "out"), [("deliver-at", b"%d" % NOW_MS), ("deliver-to", b"out"), ("deliver-to", b"out")]),
        (Rules("d", "out"), [("deliver-at", b"%d" % NOW_MS), ("deliver-at", b"%d" % NOW_MS)]),
        (Rules("d", "out"), [("deliver-at", b"2026-01-01T00:00:00Z")]),
        (Rules("d", "out"), [("deliver-at", None)]),
        (Rules("d", "out"), [("deliver-at", b"%d" % NOW_MS), ("deliver-att", b"")]),
        (Rules("d", "out"), [("deliver-at", b"%d" % NOW_MS), ("Deliver-At", b"%d" % NOW_MS)]),
    ],
)
def test_what_is_not_plain_is_left_to_be_decided_by_itself(
    rules: Rules, headers: list[tuple[str, bytes | None]]
) -> None:
    names = [name for name, _ in headers]
    assert decide_alike(rules, names, _columns([headers]), [NOW_MS], [NOW_MS]) is None
