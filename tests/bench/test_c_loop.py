"""Tests that the loop in C copies like the loop in Python, by the loaded librdkafka, and reports its failures."""

import shutil
from pathlib import Path
from random import Random

import pytest

from tests.bench import c_loop, ceiling, loops, workload
from tests.bench.context import QUICK, Context
from tests.support.mock_broker import MockBroker

RECORDS = 500
needs_compiler = pytest.mark.skipif(shutil.which(c_loop.COMPILER) is None, reason="no C compiler")


def _copy(folder: Path, bootstrap: str, target: str, *, as_released: bool) -> float:
    return c_loop.copy(
        library=str(c_loop.compiled(folder)),
        bootstrap=bootstrap,
        source="source",
        target=target,
        count=RECORDS,
        transaction_records=200,
        linger_ms=0,
        chunk=150,
        as_released=as_released,
    )


@needs_compiler
def test_it_copies_each_record_as_the_loop_in_python_does(tmp_path: Path) -> None:
    with MockBroker() as broker:
        workload.fill(broker.bootstrap, "source", RECORDS, lambda number: workload.headers(number, "target"))
        for as_released in (False, True):
            c, python = f"c.{as_released}", f"python.{as_released}"
            assert _copy(tmp_path, broker.bootstrap, c, as_released=as_released) > 0
            loops.copy(broker.bootstrap, "source", python, RECORDS, 200, 0, 150, as_released)
            by_c, by_python = broker.written(c), broker.written(python)
            assert len(by_c) == RECORDS
            assert [(each.key, each.value, each.headers) for each in by_c] == [
                (each.key, each.value, each.headers) for each in by_python
            ]


@needs_compiler
def test_it_says_why_it_cannot_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(loops.CONSUMER, "no.such.setting", "1")
    with pytest.raises(RuntimeError, match=r"no\.such\.setting: No such configuration property"):
        _copy(tmp_path, "127.0.0.1:1", "target", as_released=False)


def test_without_a_compiler_its_rows_are_left_out_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(c_loop, "COMPILER", "no-such-compiler")
    context = Context("127.0.0.1:1", QUICK, Random(1), said.append)
    with ceiling._c_library(context) as library:
        assert library is None
    assert "without the loop in C" in said[0]
    assert "no-such-compiler" in said[0]
