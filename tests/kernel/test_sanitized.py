"""Runs the tests of the kernel on a build that ends the process at the first access to foreign memory."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


def _library(name: str) -> str:
    """Return the path of a library of the compiler, which must be loaded before Python."""
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def _sanitized(folder: Path) -> dict[str, str]:
    if shutil.which("gcc") is None and os.environ.get("CI") != "true":
        pytest.skip("gcc is missing, which brings the sanitizers along")
    subprocess.run([sys.executable, "hatch_build.py", str(folder), *FLAGS], cwd=ROOT, capture_output=True, check=True)
    return {
        **os.environ,
        "KERNEL_FOLDER": str(folder),
        "CI": "true",
        # The C++ library too: the sanitizer looks for it at its start.
        "LD_PRELOAD": f"{_library('libasan.so')} {_library('libubsan.so')} {_library('libstdc++.so')}",
        # The interpreter keeps memory until its end, and so do clients that are not closed.
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        # Gives each object its own memory, which the sanitizer requires.
        "PYTHONMALLOC": "malloc",
    }


_WITH_IT = "import tests.kernel.sanitized\n"
_GARBAGE = "from tests.support.garbage import main; main(7, 3_000)"
_DAMAGED = "from tests.support.segment_bodies import main; main(7, 20_000)"
_OVERRUN = """
import ctypes
import sidecar.kernel._fetching as fetching
from sidecar.kernel.librdkafka import READING
print(fetching.__file__)
short = (ctypes.c_char * 8)()
consume = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_size_t)(lambda _queue, _wait_ms, into, _most: into.__setitem__(0, ctypes.addressof(short)) or 1)
addresses = {name: ctypes.cast(consume, ctypes.c_void_p).value for name in READING}
short[0] = 1
fetching.Reader(1, addresses, -1).read(0, 1, 1).next_offset()
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return _sanitized(tmp_path_factory.mktemp("sanitized"))


def _python(environment: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )


def test_a_sanitizer_sees_an_access_beyond_an_object(environment: dict[str, str]) -> None:
    """Otherwise the next test would prove nothing."""
    done = _python(environment, "-c", _WITH_IT + _OVERRUN)
    assert environment["KERNEL_FOLDER"] in done.stdout
    assert done.returncode != 0
    assert "AddressSanitizer" in done.stderr


def test_the_tests_of_the_kernel_pass(environment: dict[str, str]) -> None:
    names = ("columns", "deciding", "fetching", "release", "rows", "runs", "segment_rows", "segments")
    files = [f"tests/unit/sidecar/kernel/test_{name}.py" for name in names]
    tests = ["--quiet", *files, "-k", "not ends_the_process"]
    done = _python(environment, "-m", "pytest", "-p", "tests.kernel.sanitized", *tests)
    assert done.returncode == 0, (done.stdout + done.stderr)[-10_000:]


def test_no_entry_whatever_it_is_reads_beyond_anything(environment: dict[str, str]) -> None:
    done = _python(environment, "-c", _WITH_IT + _GARBAGE)
    assert done.returncode == 0, done.stderr[-10_000:]
    assert done.stdout.startswith("taken")


def test_no_body_of_a_segment_whatever_it_is_reads_beyond_anything(environment: dict[str, str]) -> None:
    done = _python(environment, "-c", _WITH_IT + _DAMAGED)
    assert done.returncode == 0, done.stderr[-10_000:]
    assert done.stdout.startswith("decoded")
