"""Answers of brokers that lag behind, as a broker that has just started gives them."""

import pytest

from index.schedule import Reason, Rejection
from sidecar.config.model import load
from sidecar.release.target_directory import Target, TargetDirectory
from tests.integration.one_worker import one_worker
from tests.integration.scenario import Stage


def test_one_wrong_answer_of_a_broker_rejects_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has just started may not know the target yet; what is rejected is rejected for good."""
    out = stage.target()
    delay = stage.delay(default_target=out)
    describe = TargetDirectory._describe
    lies = [out]

    def first_a_lie(directory: TargetDirectory, names: list[str], now_s: float) -> dict[str, Target]:
        told = describe(directory, names, now_s)
        if lies and lies[0] in names:
            told[lies.pop()] = Target(0, Rejection(Reason.TARGET_UNKNOWN, "says a broker that lags"), now_s + 2.0)
        return told

    monkeypatch.setattr(TargetDirectory, "_describe", first_a_lie)
    with one_worker(load(stage.router().config, {})):
        stage.send(delay)
        assert [each.value for each in stage.wait_records(out, 1)] == [b"v"]
        assert not lies
        assert stage.records(f"{delay}.rejected") == []
