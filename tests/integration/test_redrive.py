"""Tests of redriven rejected records on a real broker: each selected record once, despite kills, and no other."""

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from sidecar.cli.program import cli
from sidecar.config.model import load
from sidecar.dev.audit import AuditedRecord
from sidecar.kafka.writing import transactions
from sidecar.operations.desk import Operations
from sidecar.operations.rejected import redriving
from sidecar.operations.rejected.counting import CodeCount
from sidecar.operations.rejected.log import OutOfTimeError
from sidecar.operations.rejected.producer import redriver
from sidecar.operations.rejected.selection import RejectedSelection
from tests.integration.redrives import redrive_call
from tests.integration.scenario import Header, Stage, header

COUNT = 60


@pytest.fixture
def delay(stage: Stage) -> str:
    """Return a delay topic of two partitions, without a router."""
    stage.target("out")
    return stage.delay("delay", 2, default_target=f"{stage.word}.out")


@pytest.fixture
def file(stage: Stage, delay: str, tmp_path: Path) -> Path:
    """Return the configuration file of the commands."""
    path = tmp_path / "commands.toml"
    path.write_text(
        f'[kafka]\n"bootstrap.servers" = "{stage.bootstrap}"\n[router]\ngroup_id = "{stage.group_id}"\n'
        f'[[delay_topics]]\nname = "{delay}"\ndefault_target = "{stage.word}.out"\n'
    )
    return path


def run(file: Path, command: str, topic: str, *options: str) -> Result:
    return CliRunner().invoke(cli, ["rejected", command, topic, "--config", str(file), *options])


def redriven(file: Path, topic: str, *options: str) -> dict[str, Any]:
    result = run(file, "redrive", topic, "--json", *options)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def reject(stage: Stage, delay: str) -> None:
    """Let a router reject COUNT records for a forbidden target, and COUNT for their time."""
    for number in range(COUNT):
        mended: Header = ("deliver-to", b"nobody") if number % 2 else ("deliver-id", b"job-%d" % number)
        stage.post(delay, mended, ("deliver-to", b"nobody2"), value=b"t%d" % number, partition=number % 2)
        stage.post(delay, ("deliver-at", b"soon"), value=b"s%d" % number, partition=number % 2)
    stage.flush()
    stage.wait_records(f"{delay}.rejected", 2 * COUNT)


def copies(stage: Stage, delay: str) -> list[AuditedRecord]:
    return [record for record in stage.records(delay) if "delay-redriven" in dict(record.headers)]


def test_each_record_is_driven_once_whatever_is_killed(stage: Stage, delay: str, file: Path) -> None:
    with stage.router() as router:
        router.start_and_wait()
        reject(stage, delay)
        dry = redriven(file, delay, "--code", "TARGET_NOT_ALLOWED", "--dry-run")
        assert (dry["to_drive"], dry["driven"], dry["selected"]) == (COUNT, 0, COUNT)
        assert copies(stage, delay) == []

        options = [delay, "--config", str(file), "--code", "TARGET_NOT_ALLOWED", "--drop-header", "deliver-to"]
        for moment in ("before", "after"):
            call = redrive_call(*options, killed=moment, at=2)
            killed = subprocess.run(call, capture_output=True, text=True, check=False, timeout=60)
            assert killed.returncode == -signal.SIGKILL, killed.stderr
        last = redriven(file, delay, "--code", "TARGET_NOT_ALLOWED", "--drop-header", "deliver-to")
        assert (last["driven"], last["already_redriven"]) == (COUNT - 30, 30), "10 before one kill, 20 before the other"
        again = redriven(file, delay, "--code", "TARGET_NOT_ALLOWED")
        assert (again["driven"], again["already_redriven"]) == (0, COUNT)

        out = stage.wait_records(f"{stage.word}.out", COUNT)
        assert Counter(record.value for record in out) == {b"t%d" % number: 1 for number in range(COUNT)}
        assert {header(record, "delay-redriven") for record in out} == {b"1"}
        assert not [name for record in out for name, _ in record.headers if name.startswith("delay-error")]
        # Each record went back to its own partition.
        assert {record.partition for record in copies(stage, delay)} == {0, 1}
        assert all(int((record.value or b"")[1:]) % 2 == record.partition for record in copies(stage, delay))
        report = stage.audit()
        assert report.rejected == 2 * COUNT, "those that were not selected are as they were"
        assert (report.released_once, report.duplicated, report.lost, report.foreign) == (COUNT, 0, 0, 0)

        listed = json.loads(run(file, "list", delay, "--json", "--id", "job-2").stdout)["records"]
        assert [(each["is_redriven"], each["code"]) for each in listed] == [(True, "TARGET_NOT_ALLOWED")] * len(listed)
        assert len(listed) == 1
        first = json.loads(run(file, "list", delay, "--json", "--limit", "100").stdout)
        rest = json.loads(run(file, "list", delay, "--json", "--from", first["next_from"]).stdout)
        assert len(first["records"]) + len(rest["records"]) == 2 * COUNT
        assert Counter(each["is_redriven"] for each in first["records"] + rest["records"])[True] == COUNT
        assert router.stop() == 0


def test_what_comes_back_each_time_does_so_three_times(stage: Stage, delay: str, file: Path) -> None:
    with stage.router() as router:
        router.start_and_wait()
        stage.send(delay, ("deliver-at", b"soon"), value=b"again")
        for times in range(1, 4):
            stage.wait_records(f"{delay}.rejected", 2 * times - 1)
            assert redriven(file, delay)["driven"] == 1
        # Three of them are marks of redrives.
        stage.wait_records(f"{delay}.rejected", 7)
        last = redriven(file, delay)
        assert (last["driven"], last["over_limit"]) == (0, 1)
        assert redriven(file, delay, "--max-redriven", "4", "--set-header", "deliver-at=1")["driven"] == 1
        (record,) = stage.wait_records(f"{stage.word}.out", 1)
        assert header(record, "delay-redriven") == b"4"
        assert router.stop() == 0


def test_of_two_at_once_only_the_later_goes_on(
    stage: Stage, delay: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage.router() as router:
        router.start_and_wait()
        stage.send(delay, ("deliver-at", b"soon"), value=b"once")
        stage.wait_records(f"{delay}.rejected", 1)
        assert router.stop() == 0
    config = load(file, {})
    commit = transactions.commit
    others: list[Producer] = []

    def overtaken(producer: Any) -> None:
        if not others:
            others.append(redriver(config, f"{delay}.rejected"))
            transactions.fence(others[0], lambda: False, "")
        commit(producer)

    monkeypatch.setattr(transactions, "commit", overtaken)
    order = redriving.Redrive(RejectedSelection(delay))
    with pytest.raises(redriving.AnotherRunError, match=r"another redrive of .*0 of 1 records were driven"):
        redriving.redrive(config, AdminClient({**stage.kafka}), config.delay_topics[0], order)
    assert copies(stage, delay) == []
    operations = Operations.for_command(config)
    with pytest.raises(OutOfTimeError, match="nothing was driven; the command has the time"):
        operations.redrive(redriving.Redrive(RejectedSelection(delay), within_s=0), lambda _: None)
    assert operations.rejected_codes(delay) == ({"INVALID_SCHEDULE": CodeCount(1, 0, ANY)}, True)
    assert redriven(file, delay)["driven"] == 1
    assert len(copies(stage, delay)) == 1
    assert operations.rejected_codes(delay) == ({"INVALID_SCHEDULE": CodeCount(1, 1, ANY)}, True)
