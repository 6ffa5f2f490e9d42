"""Tests of the wheel for producers: one typed package that needs only the standard library."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import sidecar
from tests.support.paths import ROOT
from tests.wheel.installed import build


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel that ``make client-wheel`` builds."""
    return build(tmp_path_factory.mktemp("client"), ROOT / ".ci" / "client")


def test_it_holds_the_helper_of_the_router_and_its_types(client: Path) -> None:
    with zipfile.ZipFile(client) as archive:
        info = f"kafka_delay_router_client-{sidecar.__version__}.dist-info"
        assert {name.partition("/")[0] for name in archive.namelist()} == {"delay_router_client", info}
        assert archive.read("delay_router_client/__init__.py") == (ROOT / "sidecar" / "producing.py").read_bytes()
        assert archive.read("delay_router_client/py.typed") == b""
        metadata = archive.read(f"{info}/METADATA").decode().partition("\n\n")[0].splitlines()
    assert "Requires-Python: >=3.10" in metadata
    assert not [line for line in metadata if line.startswith("Requires-Dist")]


def test_it_is_imported_where_nothing_else_is_installed(client: Path, tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import delay_router_client as client;"
        "print(client.__file__, client.deliver(after=5, to='orders'))"
    )
    # Without site-packages and the folder of the program.
    call = [sys.executable, "-I", "-S", "-c", program, str(client)]
    printed = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    headers = [("deliver-after", b"5"), ("deliver-to", b"orders")]
    assert printed == f"{client / 'delay_router_client' / '__init__.py'} {headers}\n"
