"""Tests that the expressions of dashboard and alerts name exported metrics and their labels."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from tests.helm import chart, exported, promql
from tests.helm.chart import CHART, rendered

_CATALOGUE: Final = exported.catalogue()


def _panels() -> list[dict[str, Any]]:
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def _annotations() -> list[dict[str, Any]]:
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
    return list(dashboard["annotations"]["list"])


def _expressions() -> Iterator[tuple[str, str]]:
    for each in _annotations():
        yield f"annotation-{each['name']}", each["expr"]
    for panel in _panels():
        for target in panel["targets"]:
            yield f"{panel['title']}-{target['refId']}", target["expr"]
    for group in yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


_ALL: Final = list(_expressions())


@pytest.mark.parametrize(("place", "expression"), _ALL, ids=[place for place, _ in _ALL])
def test_an_expression_names_what_is_exported(place: str, expression: str) -> None:
    assert problems(expression) == []


def problems(expression: str) -> list[str]:
    """Return a message for each metric, label or value in an expression that no router exports."""
    names = promql.metrics(expression)
    if not names:
        return ["no metric of the router"]
    if unknown := names - _CATALOGUE.keys():
        return [f"{name} is not exported" for name in sorted(unknown)]
    carried = exported.BY_PROMETHEUS.union(*(_CATALOGUE[name].labels for name in names))
    found = [f"none of {sorted(names)} has the label {label}" for label in promql.grouped(expression) - carried]
    for match in promql.matches(expression):
        series = _CATALOGUE[match.metric]
        if match.label not in series.labels | exported.BY_PROMETHEUS:
            found.append(f"{match.metric} has no label {match.label}")
        elif "~" not in match.operator and match.value not in series.values.get(match.label, {match.value}):
            found.append(f"{match.metric} never has {match.label}={match.value}")
    return found


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("up == 0", "no metric of the router"),
        ("sum(delay_router_pendings)", "delay_router_pendings is not exported"),
        ("rate(delay_router_release_lateness_seconds[5m])", "delay_router_release_lateness_seconds is not exported"),
        (
            "sum by (reason) (delay_router_pending_records)",
            "none of ['delay_router_pending_records'] has the label reason",
        ),
        ('delay_router_partition_state{state="activ"}', "delay_router_partition_state never has state=activ"),
        ('delay_router_pending_records{partition="0"}', "delay_router_pending_records has no label partition"),
        (
            'delay_router_transactions_total{topic="a}b", outcome!="done"}',
            "delay_router_transactions_total never has outcome=done",
        ),
    ],
)
def test_a_wrong_expression_is_seen(expression: str, found: str) -> None:
    assert problems(expression) == [found]


def test_outcomes_are_those_the_router_counts() -> None:
    code = "".join(path.read_text() for path in (CHART.parents[1] / "sidecar").rglob("*.py"))
    counted = set(re.findall(r'transactions\.labels\([^,]+, "(\w+)"\)', code))
    assert counted == exported.OUTCOMES


def test_every_metric_is_on_the_dashboard() -> None:
    queries = [target["expr"] for panel in _panels() for target in panel["targets"]]
    queries += [each["expr"] for each in _annotations()]
    shown = set().union(*map(promql.metrics, queries))
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in shown}
    exports = {re.sub(r"_(bucket|count|sum)$", "", name) for name in _CATALOGUE}
    left_out = exports - families
    # An offset means nothing to an observer; the dashboard shows its age.
    assert {name for name in left_out if name.startswith("delay_router_")} == {"delay_router_needed_from_offset"}
    assert {"process_cpu_seconds_total", "process_resident_memory_bytes"} <= families


def test_every_query_of_the_dashboard_is_about_the_chosen_namespaces() -> None:
    queries = [target["expr"] for panel in _panels() for target in panel["targets"]]
    queries += [each["expr"] for each in _annotations()]
    for expression in queries:
        chosen = [match.metric for match in promql.matches(expression) if match.value == "$namespace"]
        assert promql.metrics(expression) <= set(chosen), expression


def test_a_change_of_policies_is_marked_when_it_was_seen() -> None:
    (policies,) = _annotations()
    assert promql.metrics(policies["expr"]) == {"delay_router_policy_changed_timestamp_seconds"}
    # Grafana reads the value as milliseconds.
    assert policies["useValueForTime"] is True
    assert policies["expr"].endswith("* 1000")


def test_panels_do_not_overlap_and_have_names_and_units() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in _panels():
        place, title = panel["gridPos"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], title
        assert place["x"] + place["w"] <= 24, title
        for cell in ((place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])):
            assert taken.setdefault(cell, title) == title
    ids = [panel["id"] for panel in _panels()]
    assert len(set(ids)) == len(ids)


def test_the_chart_ships_the_dashboard_and_the_alerts_unchanged() -> None:
    resources = rendered(chart.values("monitored"))
    (dashboard,) = (each for each in resources if each["metadata"]["name"].endswith("-dashboard"))
    assert json.loads(dashboard["data"]["delay-router.json"]) == json.loads(
        (CHART / "files" / "dashboard.json").read_text()
    )
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    (group,) = chart.the(resources, "PrometheusRule")["spec"]["groups"]
    shipped = {rule["alert"]: rule for rule in group["rules"]}
    own = {
        rule["alert"]: rule
        for rule in yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"][0]["rules"]
    }
    assert shipped.keys() == own.keys() - {"DelayRouterMixedVersions"} | {"DelayRouterTopicNotServed", "OrdersHeldUp"}
    not_served = shipped["DelayRouterTopicNotServed"]["annotations"]
    assert not_served["runbook_url"] == "runbooks/delay-router#delayroutertopicnotserved"
    for name in own.keys() & shipped.keys():
        assert shipped[name]["expr"] == own[name]["expr"]
        assert shipped[name].get("for") == own[name].get("for")
        assert shipped[name]["labels"] == {**own[name]["labels"], "team": "messaging"}
        assert shipped[name]["annotations"] == {
            **own[name]["annotations"],
            "runbook_url": f"runbooks/delay-router#{name.lower()}",
        }
