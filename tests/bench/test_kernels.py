"""Tests of benchmarks that run with both kernels."""

import os

import pytest

from sidecar.kernel.choice import Kernel
from sidecar.kernel.compiled import SWITCH
from tests.bench import kernels
from tests.bench.results import Row, at_least

compiled = pytest.mark.skipif(bool(Kernel.chosen({}).why_not), reason="the kernel is not compiled here")


def _measured() -> list[Row]:
    """Return the kernel that a router would take as the measured row."""
    return [Row("burst", Kernel.chosen(os.environ).name, 1.0, "k/s", ratio=1.0, goal=at_least(1))]


@compiled
def test_what_depends_on_the_kernel_is_measured_with_it_and_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    native, python = kernels.beside("burst", _measured)
    assert (native.benchmark, native.name, native.verdict) == ("burst", "native", "reached")
    assert (python.benchmark, python.name, python.verdict) == ("burst, Python", "python", "")
    assert SWITCH not in os.environ


def test_what_does_not_is_measured_once() -> None:
    assert len(kernels.beside("idle", _measured)) == 1


def test_where_the_kernel_is_off_there_is_nothing_to_set_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    assert [row.name for row in kernels.beside("burst", _measured)] == ["python"]
