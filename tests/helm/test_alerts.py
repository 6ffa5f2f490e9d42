"""Tests by promtool that each alert fires on its own fault alone, and that healthy series fire none."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.helm import chart, tools
from tests.helm.alert_cases import FAULTS, HEALTHY, SAMPLES, Fault
from tests.helm.chart import CHART
from tests.support.paths import ROOT

_FIRING: Final = 'count by (alertname) (ALERTS{alertstate="firing"})'

_SERVED: Final = {
    f'delay_router_partition_state{{instance="a",topic="{topic}",partition="0",state="active"}}': f"1+0x{SAMPLES}"
    for topic in ("orders.delay", "billing.delay")
}
"""The delay topics in the chart's values."""


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with all rules of a release."""
    shipped = chart.rendered(chart.values("monitored"), "--set", "prometheusRule.disabled=null")
    file = tmp_path_factory.mktemp("rules") / "alerts.yaml"
    file.write_text(yaml.safe_dump(chart.the(shipped, "PrometheusRule")["spec"]))
    return file


def test_promtool_reads_the_rules(rules: Path) -> None:
    for file in (rules, CHART / "files" / "alerts.yaml"):
        done = tools.run("promtool", "check", "rules", "--lint=all", "--lint-fatal", file)
        assert done.returncode == 0, done.stdout + done.stderr


def _service_levels() -> dict[str, str]:
    """Return the query for each promise in OPERATIONS."""
    section = (ROOT / "OPERATIONS.md").read_text(encoding="utf-8").partition("## Service levels")[2]
    found = re.findall(r"^\| ([^`]+) \| `(.+?)` \| `DelayRouter", section, re.MULTILINE)
    assert len(found) == section.count("| `DelayRouter")
    return {promise: query.replace(r"\|", "|") for promise, query in found}


def test_promtool_reads_the_queries_for_service_levels(tmp_path: Path) -> None:
    recorded = [
        {"record": f"slo:number:{number}", "expr": query} for number, query in enumerate(_service_levels().values())
    ]
    file = tmp_path / "slo.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "slo", "rules": recorded}]}))
    done = tools.run("promtool", "check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_partition_that_nobody_serves_counts_against_the_service_level(tmp_path: Path) -> None:
    query = _service_levels()["every partition served, 99.9 % of the time"]
    assert (query.count("30d"), query.count("43200")) == (2, 1)
    # promtool holds no more than 10,000 samples.
    of_a_day = query.replace("30d", "1d").replace("43200", "1440")
    place = 'delay_router_partition_state{instance="a",topic="t",partition='
    day = {
        f'{place}"0",state="active"}}': "1+0x1440",
        f'{place}"1",state="active"}}': "1+0x720 stale",
        'delay_router_delay_topic_partitions{instance="a",topic="t"}': "2+0x1440",
    }
    at_end = {"expr": of_a_day, "eval_time": "1440m30s", "exp_samples": [{"labels": '{topic="t"}', "value": 0.75}]}
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in day.items()],
        "promql_expr_test": [at_end],
    }
    file = tmp_path / "slo.json"
    file.write_text(json.dumps({"rule_files": [], "evaluation_interval": "1m", "tests": [case]}))
    done = tools.run("promtool", "test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_is_well(rules: Path) -> None:
    assert _judged(rules, [_case({}, {minute: set() for minute in range(0, SAMPLES + 1, 15)})]) == ""


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{number}-{fault.alert}" for number, fault in enumerate(FAULTS)])
def test_an_alert_fires_on_its_fault_alone(rules: Path, fault: Fault) -> None:
    assert _judged(rules, [_case(fault.series, {fault.silent_at: set(), fault.fires_at: {fault.alert}})]) == ""


def test_a_wrong_verdict_is_seen(rules: Path) -> None:
    assert "FAILED" in _judged(rules, [_case({}, {60: {"DelayRouterAbsent"}})])
    fault = FAULTS[0]
    assert "FAILED" in _judged(rules, [_case(fault.series, {fault.fires_at: set()})])


@pytest.mark.parametrize("state", ["paused", "drained"])
def test_what_a_policy_stops_is_no_fault(rules: Path, state: str) -> None:
    place = 'delay_router_partition_state{instance="a",topic="t",partition="0",state='
    stopped = {f'{place}"active"}}': "1+0x60 0+0x180", f'{place}"{state}"}}': "0+0x60 1+0x180"}
    # The first record that waits stays the first one.
    stopped['delay_router_next_due_timestamp_seconds{instance="a",topic="t"}'] = "3600+0x240"
    assert _judged(rules, [_case(stopped, {minute: set() for minute in (60, 64, 90, 200)})]) == ""


def test_every_alert_has_a_fault(rules: Path) -> None:
    alerts = {rule["alert"] for group in yaml.safe_load(rules.read_text())["groups"] for rule in group["rules"]}
    assert alerts - {"OrdersHeldUp"} == {fault.alert for fault in FAULTS}


def test_every_alert_says_what_to_do(rules: Path) -> None:
    for group in yaml.safe_load(rules.read_text())["groups"]:
        for rule in group["rules"]:
            if rule["alert"] != "OrdersHeldUp":
                assert rule["labels"]["severity"] in {"critical", "warning"}
                assert rule["annotations"].keys() >= {"summary", "description"}


def _case(fault: dict[str, str], firing: dict[int, set[str]]) -> dict[str, Any]:
    """Return a test for promtool: the alerts that fire at each minute."""
    series = {**HEALTHY, **_SERVED, **fault}
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": _FIRING,
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)],
            }
            for minute, alerts in firing.items()
        ],
    }


def _judged(rules: Path, cases: list[dict[str, Any]]) -> str:
    """Return promtool's complaints, or an empty text."""
    file = rules.parent / "cases.json"
    file.write_text(json.dumps({"rule_files": [rules.name], "evaluation_interval": "1m", "tests": cases}))
    done = tools.run("promtool", "test", "rules", file)
    return "" if done.returncode == 0 else done.stdout + done.stderr
