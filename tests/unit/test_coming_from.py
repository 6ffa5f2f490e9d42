"""Each row of the tables 'Coming from' in RECIPES.md: the decision about a record with these headers, word for word."""

import re
import tomllib
from typing import Final

import pytest

from index.protocol.schedule import AT_ONCE, Reason, Rejection, Schedule
from index.protocol.times import parse_instant_ms
from index.rules.rules import Rules
from sidecar.config.delay_topic import AliasConfig
from tests.support.paths import ROOT

SENT_MS: Final = parse_instant_ms(b"2030-01-31T07:00:00Z")
ROW: Final = re.compile(r"^\| (`.+?`(?:, `.+?`)*) \| (.+) \|$", re.MULTILINE)
WAITS: Final = re.compile(r"(\d+) ms after the record's timestamp")
INSTANT: Final = re.compile(r"at (\S+Z)")
REFUSED: Final = re.compile(r"`([A-Z_]+)`: (.+)")
SECTION: Final = re.compile(r"^## Coming from (.+)\n((?:(?!## ).*\n)*)", re.MULTILINE)
SECTIONS: Final = dict(SECTION.findall((ROOT / "RECIPES.md").read_text(encoding="utf-8")))
ROWS: Final = [(system, *row) for system, text in SECTIONS.items() for row in ROW.findall(text)]


def _rules(system: str) -> Rules:
    """Return rules with the aliases that the section prints."""
    (printed,) = re.findall(r"^aliases = .+$", SECTIONS[system], re.MULTILINE)
    configured = [AliasConfig.model_validate(each) for each in tomllib.loads(printed)["aliases"]]
    return Rules("d", "orders", aliases=tuple(alias for each in configured for alias in each.expanded()))


def test_each_system_has_a_section_with_examples() -> None:
    assert list(SECTIONS) == ["RabbitMQ", "ActiveMQ", "Pulsar", "NServiceBus", "Dapr"]
    assert {system for system, _, _ in ROWS} == SECTIONS.keys()


@pytest.mark.parametrize(("system", "example", "told"), ROWS, ids=[f"{system}-{row}" for system, row, _ in ROWS])
def test_a_record_is_decided_as_the_table_says(system: str, example: str, told: str) -> None:
    pairs = [each.split(": ", 1) for each in re.findall("`(.+?)`", example)]
    decided = _rules(system).decide([(name, value.encode()) for name, value in pairs], SENT_MS)
    if found := REFUSED.fullmatch(told):
        assert decided == Rejection(Reason(found[1]), found[2])
        return
    assert isinstance(decided, Schedule), decided
    assert decided.due_ms == _due_ms(told)


def _due_ms(told: str) -> int:
    if told == "at once":
        return AT_ONCE
    if found := WAITS.fullmatch(told):
        return SENT_MS + int(found[1])
    found = INSTANT.fullmatch(told)
    assert found is not None, told
    return parse_instant_ms(found[1].encode())
