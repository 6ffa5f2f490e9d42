"""The progress lines of an audit while Spark works on it."""

from typing import Any

import pytest

from spark_backfill.audit import job
from spark_backfill.audit.job import judging
from spark_backfill.stages import Stage


def test_an_audit_tells_how_much_it_has_read_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([[], [Stage(1, 4)], [Stage(4, 4), Stage(2, 8)]])
    monkeypatch.setattr(job, "stages_of", lambda context, group: next(answers))
    context: Any = None
    line = judging(context, 10_000, "group")
    assert [line() for _ in range(3)] == [
        "",
        "read 1 of 4 parts of the topics, about 2,500 offsets",
        "read 4 of 4 parts of the topics, about 10,000 offsets; judged 2 of 8 parts",
    ]
