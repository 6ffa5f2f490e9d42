"""Tests that Prometheus answers every query of the dashboard and evaluates every alert, from a real router."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest
import yaml

from sidecar.dev import local_kafka
from tests.helm import tools
from tests.helm.chart import CHART
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Stage, now_ms, wait_until
from tests.monitoring import prometheus
from tests.monitoring.prometheus import Prometheus

HOUR_MS: Final = 3_600_000
WAVE: Final = 30

MAY_BE_EMPTY: Final = {
    "Indexed": {"B"},  # nothing was merged
    "Rejected": {"B", "C"},  # no record had both times, or a value too large
    "Seal and merge time, p99": {"B"},  # nothing was merged
    "Failures": {"A", "B", "C"},
    "Backfills": {"A"},
    "Held back": {"B"},  # by target: none is paused or limited
    "Held back anew": {"A"},
    "Held for": {"A", "B"},
    "Index lag": {"B"},  # no open transaction hides a record
    "Taken over anew": {"A"},  # no connection was cut
    "Without a time, occurrences skipped": {"A", "B"},  # every record had a time, and none recurs
    "Retention: needed and kept": {"A", "B"},  # everything is sealed with its payload; a topic may be kept for ever
    # Nothing is cancelled here.
    "Receipts, cancelled, masked": {"A", "B"},
    "Attempts": {"A", "B"},  # no attempts are counted
}
"""The queries that rightly return nothing here, by panel."""


class Monitored(NamedTuple):
    """A running router and the Prometheus that watches it."""

    router: RouterProcess
    prometheus: Prometheus
    topic: str


@pytest.fixture(scope="module")
def monitored(kafka: local_kafka.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    """Release, seal and reject records in two waves, so that Prometheus sees every counter rise."""
    tools.program("prometheus")
    stage = Stage(kafka.bootstrap, tmp_path_factory.mktemp("stage"))
    delay = f"{stage.word}.delay"
    stage.delays[delay] = {"name": delay, "default_target": stage.target(), "seal_age": "1s", "placement": "inline"}
    with (
        stage.router() as router,
        prometheus.running(tmp_path_factory.mktemp("prometheus"), router.port) as watching,
    ):
        created = router.command("init", "--partitions", "2")
        assert created.returncode == 0, created.stdout + created.stderr
        router.start_and_wait()
        for wave in (1, 2):
            _send(stage, delay)
            for series, count in (
                ("records_released_total", WAVE),
                ("records_rejected_total", 1),
                ("records_indexed_total", 2 * WAVE),
                ("seal_seconds_count", 2),
            ):
                expression, wanted = f"sum(delay_router_{series})", wave * count
                wait_until(lambda: watching.value(expression) >= wanted, f"{expression} >= {wanted}")  # noqa: B023
        yield Monitored(router, watching, delay)
        stage.print_logs()


def _send(stage: Stage, delay: str) -> None:
    """Send records, half of them due at once and half in an hour, and one that is rejected."""
    for number in range(WAVE):
        for due_ms in (now_ms() + 200, now_ms() + HOUR_MS):
            stage.post(delay, ("deliver-at", b"%d" % due_ms), value=b"v", partition=number % 2)
    stage.post(delay, ("deliver-at", b"soon"), value=b"v")
    stage.flush()


def _panels() -> list[dict[str, Any]]:
    panels = json.loads((CHART / "files" / "dashboard.json").read_text())["panels"]
    return [panel for panel in panels if panel["type"] != "row"]


def _as_grafana_sends_it(expression: str) -> str:
    variables = {"$__rate_interval": "1m", "$__range": "1h", "$namespace": ".*", "$job": ".*", "$topic": ".*"}
    for name, value in variables.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    return expression


def test_annotations_are_queries_that_prometheus_takes(monitored: Monitored) -> None:
    annotations = json.loads((CHART / "files" / "dashboard.json").read_text())["annotations"]["list"]
    for annotation in annotations:
        # No policy was changed here.
        assert monitored.prometheus.query(_as_grafana_sends_it(annotation["expr"])) == []


def test_every_panel_is_answered_with_data(monitored: Monitored) -> None:
    empty: dict[str, set[str]] = {}
    for panel in _panels():
        for target in panel["targets"]:
            result = monitored.prometheus.query(_as_grafana_sends_it(target["expr"]))
            # Quantiles without samples are NaN.
            if not [sample for sample in result if sample["value"][1] != "NaN"]:
                empty.setdefault(panel["title"], set()).add(target["refId"])
    wrongly = {title: found - MAY_BE_EMPTY.get(title, set()) for title, found in empty.items()}
    assert not any(wrongly.values()), wrongly


def test_the_numbers_are_right(monitored: Monitored) -> None:
    def shown(title: str) -> float:
        (panel,) = (panel for panel in _panels() if panel["title"] == title and panel["type"] == "stat")
        return monitored.prometheus.value(_as_grafana_sends_it(panel["targets"][0]["expr"]))

    assert shown("Routers") == 1
    assert shown("Partitions not active") == 0
    assert shown("Pending") == 2 * WAVE
    assert shown("Overdue") == 0
    assert shown("Offsets lost") == 0
    assert 0 < shown("Lateness p99") < 60


def test_variables_of_the_dashboard_have_values(monitored: Monitored) -> None:
    for label, metric in (("job", "delay_router_build_info"), ("topic", "delay_router_partition_state")):
        values = monitored.prometheus.get(f"label/{label}/values", **{"match[]": metric})["data"]
        assert values == [{"job": "delay-router", "topic": monitored.topic}[label]]


def test_every_alert_is_evaluated_and_none_fires(monitored: Monitored) -> None:
    own = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    names = {rule["alert"] for group in own for rule in group["rules"]}

    def evaluated() -> bool:
        return all(rule["health"] != "unknown" for rule in monitored.prometheus.rules().values())

    wait_until(evaluated, "an evaluation of every rule")
    rules = monitored.prometheus.rules()
    assert rules.keys() == names
    assert {name: rule.get("lastError") for name, rule in rules.items() if rule["health"] != "ok"} == {}
    assert [name for name, rule in rules.items() if rule["state"] == "firing"] == []


def _test_of_the_release(port: int) -> subprocess.CompletedProcess[str]:
    """Run the program of the pod of `helm test`."""
    probe = [sys.executable, str(CHART / "files" / "probe.py")]
    environ = {"HOSTS": "127.0.0.1", "PORT": str(port)}
    return subprocess.run(probe, env=environ, capture_output=True, text=True, timeout=60, check=False)


def test_the_test_of_a_release_passes(monitored: Monitored) -> None:
    done = _test_of_the_release(monitored.router.port)
    assert (done.returncode, done.stdout.strip()) == (0, "1 routers are ready")


def test_a_router_that_is_gone_is_noticed(monitored: Monitored) -> None:
    """The test stops the router, so it must be the last one."""
    absent = "DelayRouterAbsent"
    assert monitored.prometheus.rules()[absent]["state"] == "inactive"
    assert monitored.router.stop() == 0
    wait_until(lambda: monitored.prometheus.rules()[absent]["state"] == "pending", f"{absent} to be pending")
    assert "not ready" in _test_of_the_release(monitored.router.port).stdout
