"""Tests the chart as ``make chart`` packages it: its content, and that it renders like the folder."""

import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.helm import tools
from tests.helm.chart import CHART, NEWEST
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    packaged = tools.run("helm", "package", CHART, "--destination", folder)
    assert packaged.returncode == 0, packaged.stderr
    (found,) = folder.iterdir()
    return found


def test_it_has_what_a_release_needs_and_no_tests(package: Path) -> None:
    meta = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert package.name == f"delay-router-{meta['version']}.tgz"
    with tarfile.open(package) as archive:
        names = {name.removeprefix("delay-router/") for name in archive.getnames()}
    assert {"Chart.yaml", "README.md", "values.yaml", "values.schema.json", "files/dashboard.json"} <= names
    assert not [name for name in names if name.startswith(("tests/", "ci/"))]


def test_it_renders_as_the_folder_does(package: Path) -> None:
    values = CHART / "ci" / "everything-values.yaml"
    options = ("--values", values, "--kube-version", NEWEST)
    packaged, folder = (tools.run("helm", "template", "r", chart, *options) for chart in (package, CHART))
    assert packaged.stdout == folder.stdout != "", packaged.stderr


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (("push-chart", "REGISTRY=https://example.invalid"), "REGISTRY must say where to"),
        (("push-image", "IMAGE=kafka-delay-router:dev"), "IMAGE must name a registry and the release"),
    ],
)
def test_nothing_is_pushed_without_saying_where_to(target: tuple[str, ...], why: str) -> None:
    tools.program("helm")
    done = subprocess.run(["make", *target], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert why in done.stderr
