"""Runs Prometheus as a child process, with the chart's alert rules, scraping one router every second."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from sidecar.dev.local_kafka import free_port
from tests.helm import tools
from tests.helm.chart import CHART
from tests.integration.scenario import wait_until

_STOP_TIMEOUT_S: Final = 20.0


class Prometheus:
    """The API of a Prometheus; it runs as long as the ``with`` block of :func:`running`."""

    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str, **parameters: str) -> dict[str, Any]:
        """Return an answer of the API: ``status``, and ``data`` or ``error``."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request("GET", f"/api/v1/{path}?{urlencode(parameters)}")
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return answer

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an instant query. Raise AssertionError if Prometheus refuses it."""
        answer = self.get("query", query=expression)
        assert answer["status"] == "success", (expression, answer)
        assert not answer.get("warnings"), (expression, answer)
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def value(self, expression: str) -> float:
        """Return the value of the one sample of an expression, or 0 without a sample."""
        return sum(float(sample["value"][1]) for sample in self.query(expression))

    def rules(self) -> dict[str, dict[str, Any]]:
        """Return every alert rule by name."""
        groups = self.get("rules")["data"]["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    def answers(self) -> bool:
        """Say whether Prometheus answers."""
        try:
            return bool(self.get("status/buildinfo")["status"] == "success")
        except (OSError, HTTPException, ValueError):
            return False


@contextmanager
def running(folder: Path, router_port: int) -> Iterator[Prometheus]:
    """Run Prometheus in this folder until the end of the block."""
    program, port = tools.program("prometheus"), free_port()
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(CHART / "files" / "alerts.yaml")],
        "scrape_configs": [
            {"job_name": "delay-router", "static_configs": [{"targets": [f"127.0.0.1:{router_port}"]}]},
        ],
    }
    file, log = folder / "prometheus.json", folder / "prometheus.log"
    file.write_text(json.dumps(config))
    command = [program, f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=output, stderr=output)
    try:
        prometheus = Prometheus(port)
        wait_until(lambda: process.poll() is not None or prometheus.answers(), "an answer of Prometheus")
        assert process.poll() is None, log.read_text()
        yield prometheus
    finally:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
