"""The choice of the kernel: by the environment, and otherwise by the compiled modules that exist."""

import sys
from types import ModuleType

import pytest
from confluent_kafka import Producer
from prometheus_client import generate_latest

from index.errors import ConfigError
from index.protocol.headers import StrippedNames
from sidecar.kernel import librdkafka
from sidecar.kernel.choice import Kernel
from sidecar.kernel.compiled import REVISION, SWITCH
from sidecar.metrics import Metrics
from snapshots.segments.codec import PYTHON_CODEC
from tests.support.paths import ROOT

MODULES = tuple(f"sidecar.kernel.{path.stem}" for path in (ROOT / "sidecar/kernel").glob("_*.pyx"))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """Pretend that the kernel is compiled."""
    modules = {name: ModuleType(name) for name in MODULES}
    for name, module in modules.items():
        module.__dict__["REVISION"] = REVISION
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(name, module, raising=False)
    monkeypatch.setattr(librdkafka, "plugin", lambda: "plugin")
    return modules


@pytest.mark.usefixtures("compiled")
def test_it_runs_where_it_is_compiled() -> None:
    assert Kernel.chosen({}) == Kernel.chosen({SWITCH: "on"}) == Kernel("")
    assert Kernel.chosen({}).name == "native"


@pytest.mark.usefixtures("compiled")
def test_the_environment_switches_it_off() -> None:
    off = Kernel.chosen({SWITCH: "off"})
    assert off.name == "python"
    assert off.why_not == "switched off by DELAY_ROUTER_KERNEL=off"
    assert off.writer(Producer({}), StrippedNames([]), b"d/0/") is None
    assert off.codec is PYTHON_CODEC


def test_any_other_word_is_an_error() -> None:
    with pytest.raises(ConfigError, match="DELAY_ROUTER_KERNEL=no: write off or on"):
        Kernel.chosen({SWITCH: "no"})


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("module", MODULES)
def test_without_a_compiled_module_python_runs(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delattr(module, raising=False)
    assert Kernel.chosen({}).name == "python"
    assert "not compiled for this Python" in Kernel.chosen({}).why_not


@pytest.mark.parametrize("module", MODULES)
def test_one_that_was_compiled_from_other_sources_is_not_used(module: str, compiled: dict[str, ModuleType]) -> None:
    compiled[module].__dict__["REVISION"] = REVISION - 1
    assert "compiled from other sources" in Kernel.chosen({}).why_not


@pytest.mark.usefixtures("compiled")
def test_without_its_plugin_python_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "plugin", lambda: "")
    without = Kernel.chosen({})
    assert without.why_not == "this librdkafka takes no plugin; see 'Limits' in REFERENCE"
    assert without.writer(Producer({}), StrippedNames([]), b"d/0/") is None
    assert without.codec is PYTHON_CODEC


def test_metrics_tell_which_runs() -> None:
    assert 'kernel="native"' in generate_latest(Metrics("native").registry).decode()
    assert 'kernel="python"' in generate_latest(Metrics().registry).decode()
