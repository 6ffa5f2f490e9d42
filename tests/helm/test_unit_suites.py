"""Runs the chart's own suites, `helm/delay-router/tests`, with helm-unittest."""

import re

from tests.helm import tools
from tests.helm.chart import CHART


def test_helm_unittest() -> None:
    suites = list((CHART / "tests").glob("*_test.yaml"))
    done = tools.run("helm-unittest", "--strict", "--color=false", CHART)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"Test Suites: {len(suites)} passed, {len(suites)} total", done.stdout), done.stdout
