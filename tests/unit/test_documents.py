"""Documents that promise to be complete: the runbook, the tables of policies, headers, codes and presets."""

import re
from typing import Final

import pytest
import yaml

from index.errors import ConfigError
from index.protocol.headers import NATIVE, PRESETS, HeaderRole
from index.protocol.schedule import Reason
from index.rules.rules_stored import KNOWN_VERSIONS, RULES_OF_0_1_0, RULES_VERSION
from sidecar.policies.policy import KEYS, ScopeKind, policy_of, target_scope, topic_scope
from sidecar.policies.policy import Scope as PolicyScope
from tests.support.paths import ROOT

CHART: Final = ROOT / "helm" / "delay-router"
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
PRODUCERS: Final = (ROOT / "PRODUCERS.md").read_text(encoding="utf-8")
OPERATIONS: Final = (ROOT / "OPERATIONS.md").read_text(encoding="utf-8")
RUNBOOK: Final = (ROOT / "RUNBOOK.md").read_text(encoding="utf-8")
REFERENCE: Final = (ROOT / "REFERENCE.md").read_text(encoding="utf-8")

PARTS: Final = ["Context", "Decision", "Consequence"]

EXAMPLES: Final = {
    "enabled": True,
    "when_disabled": "reject",
    "max_delay": "7d",
    "tick": "20ms",
    "default_target": "a",
    "allowed_targets": ["a"],
    "delay": "5m",
    "spread": "30s",
    "retry": {"attempts": 3, "dead_letter": "dead"},
    "require_time": True,
    "unknown_headers": "ignore",
    "placement": "inline",
    "timestamp": "due",
    "expire_after": "10m",
    "paused": True,
    "paused_until": "2030-01-31T08:00:00Z",
    "paused_reason": "billing is moved",
    "records_per_second": 1,
    "bytes_per_second": "1MiB",
    "drained": True,
}
"""A legal value of each key."""


def test_every_alert_has_an_entry_in_the_runbook_and_each_entry_an_alert() -> None:
    shipped = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))
    alerts = [rule["alert"] for group in shipped["groups"] for rule in group["rules"]]
    # The chart itself makes these alerts, one for each delay topic of its values.
    alerts += re.findall(r"^alert: (\w+)$", (CHART / "templates" / "prometheusrule.yaml").read_text(), re.MULTILINE)
    entries = re.findall(r"^### (DelayRouter\w+)$", RUNBOOK, re.MULTILINE)
    assert sorted(entries) == sorted(alerts)
    named = set(re.findall(r"DelayRouter[A-Z]\w+", RUNBOOK + REFERENCE + OPERATIONS + README))
    assert named <= set(alerts), "an alert that does not exist"


def test_alerts_stand_below_their_severity() -> None:
    rules = [
        rule
        for group in yaml.safe_load((CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
    ]
    critical = {rule["alert"] for rule in rules if rule["labels"]["severity"] == "critical"}
    for title, wanted in (
        # The chart itself makes this one.
        ("Alerts that wake somebody", critical | {"DelayRouterTopicNotServed"}),
        ("Alerts that can wait for the morning", {rule["alert"] for rule in rules} - critical),
    ):
        section = RUNBOOK.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        assert set(re.findall(r"^### (\w+)$", section, re.MULTILINE)) == wanted


@pytest.mark.parametrize("entry", re.findall(r"^### .*?(?=^##|\Z)", RUNBOOK, re.MULTILINE | re.DOTALL))
def test_an_entry_tells_meaning_check_and_fix(entry: str) -> None:
    parts = re.findall(
        r"^\*\*(Meaning|Check|Fix)\.\*\*(.*?)(?=^\*\*(?:Meaning|Check|Fix)|\Z)", entry, re.MULTILINE | re.DOTALL
    )
    assert [name for name, _ in parts] == ["Meaning", "Check", "Fix"]
    assert "`" in dict(parts)["Check"], "the command, metric or line to look at"


def test_a_decision_has_context_decision_consequence_and_code() -> None:
    records = re.split(r"^## ", (ROOT / "DECISIONS.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    for number, record in enumerate(records, 1):
        assert record.startswith(f"{number}. ")
        assert re.findall(r"^\*(Context|Decision|Consequence)\.\*", record, re.MULTILINE) == PARTS, record
        assert re.search(r"Code:\s+`", record), record


def test_going_back_tells_the_version_of_the_rules_and_warns_of_starting_over() -> None:
    section = OPERATIONS.partition("## Moving up and back")[2].partition("\n## ")[0]
    told = " ".join(section.split())
    assert f"a version: now {RULES_VERSION}, since" in told
    assert f"version {RULES_OF_0_1_0}, which 0.1.0 wrote, is still read" in told
    assert KNOWN_VERSIONS == (RULES_OF_0_1_0, RULES_VERSION), "or the sentence must name the others too"
    bold = re.findall(r"\*\*(.+?)\*\*", told)
    (warning,) = [each for each in bold if "init --start-over" in each]
    assert "After a rollback, never run" in warning
    assert "delivers again every delivered record" in warning


def test_every_key_of_a_policy_is_in_the_table_with_its_scopes() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ((?:all|topic|default|target|, )+) \|", REFERENCE, re.MULTILINE))
    assert rows.keys() == KEYS.keys() == EXAMPLES.keys()
    scopes = {"default": PolicyScope(ScopeKind.DEFAULT), "topic": topic_scope("t"), "target": target_scope("t")}
    for key, told in rows.items():
        allowed = {name for name, scope in scopes.items() if _is_taken(scope, key)}
        assert (set(scopes) if told == "all" else set(told.split(", "))) == allowed, key


def _is_taken(scope: PolicyScope, key: str) -> bool:
    try:
        policy_of(scope, {key: EXAMPLES[key]})
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("code", list(Reason))
def test_every_code_is_explained(code: Reason) -> None:
    assert f"`{code}`" in PRODUCERS


@pytest.mark.parametrize("header", [native.name for native in NATIVE])
def test_every_header_is_explained(header: str) -> None:
    assert f"`{header}`" in PRODUCERS


@pytest.mark.parametrize("preset", list(PRESETS))
def test_every_preset_has_its_headers_in_the_table(preset: str) -> None:
    assert f'`["{preset}"]`' in OPERATIONS
    for alias in PRESETS[preset]:
        if alias.role is not HeaderRole.IGNORED:
            short = alias.name.removeprefix("schedule_target")
            assert f"`{alias.name}`" in OPERATIONS or f"`{short}`" in OPERATIONS, alias.name
