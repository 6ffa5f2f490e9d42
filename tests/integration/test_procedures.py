"""Tests the procedures of OPERATIONS that change a delay topic or the group, beside records that wait."""

import time

import pytest

from tests.integration.scenario import Header, Stage, now_ms, wait_until

FAR_MS = 12_000


def due(after_ms: int) -> Header:
    return "deliver-at", b"%d" % (now_ms() + after_ms)


def test_another_group_goes_on_after_a_drain(stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(partitions=2, default_target=out)
    with stage.router("before") as before:
        assert before.command("init").returncode == 0
        before.start_and_wait()
        for number in range(40):
            stage.post(delay, due(FAR_MS if number % 2 else 100), value=b"%d" % number, partition=number % 4 // 2)
        stage.flush()
        stage.wait_records(out, 20)
        drained = before.command("drain", delay, "--wait")
        assert drained.returncode == 0, drained.stderr
        assert before.stop() == 0
    with stage.router("after", group_id=f"{stage.group_id}.new") as after:
        after.start()
        wait_until(lambda: "drained" in after.command("status", delay).stdout, "the new group has the topic")
        undrained = after.command("undrain", delay)
        assert undrained.returncode == 0, undrained.stderr
        assert stage.settle().released_once == 40


@pytest.mark.parametrize("with_state", [True, False])
def test_a_mirror_is_refused(stage: Stage, with_state: bool) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out)
    with stage.router("first") as first:
        first.start_and_wait()
        for number in range(10):
            stage.post(delay, due(100), value=b"%d" % number)
        stage.flush()
        stage.wait_records(out, 10)
        assert first.stop() == 0
    mirror = stage.delay("mirror", default_target=out, begun=False)
    for name in ("", ".delay-state", ".delay-snapshots") if with_state else ("",):
        for each in stage.records(f"{delay}{name}"):
            stage.send(f"{mirror}{name}", *each.headers, value=each.value, key=each.key)
    with stage.router("second", only=[mirror]) as second:
        second.start()
        why = "was deleted and created again" if with_state else "is empty, but"
        wait_until(lambda: why in second.http("/readyz")[1], "the mirror is refused")
        stage.send(mirror, due(100), value=b"new")
        time.sleep(2)
        assert '"refused"' in second.http("/readyz")[1]
    assert len(stage.records(out)) == 10
