"""Tests of the commands that cancel and replace while a router runs: they end with a certain answer."""

import json

from click.testing import CliRunner, Result

from sidecar.cli.program import cli
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Header, Stage, now_ms

HOUR_MS = 3_600_000


def command(router: RouterProcess, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, [*arguments, "--config", str(router.config)])
    assert result.exit_code == code, result.output
    return result


def cancel(router: RouterProcess, *arguments: str, code: int = 0) -> Result:
    return command(router, "cancel", *arguments, code=code)


def replace(router: RouterProcess, delay: str, *arguments: str, code: int = 0) -> Result:
    given = ("--replace", "--id", "order-7", "--value", "new", *arguments)
    return command(router, "send", delay, *given, code=code)


def test_it_is_told_what_was_cancelled_what_is_due_otherwise_and_what_is_not_there(stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(partitions=2, default_target=out)
    with stage.router() as router:
        router.start_and_wait()
        due_ms = now_ms() + HOUR_MS
        place = stage.send(delay, ("deliver-id", b"order-7"), ("deliver-at", b"%d" % due_ms), partition=1)
        changed = cancel(router, delay, "order-7", "--if-due", str(due_ms + 1), code=1)
        assert "due at another time" in changed.stderr
        cancel(router, delay, "order-7", "--partition", "0", code=2)
        told = json.loads(cancel(router, delay, "order-7", "--if-due", str(due_ms), "--json").stdout)
        (cancelled,) = told["cancelled"]
        assert f"{delay}/{cancelled['partition']}/{cancelled['offset']}" == place
        assert cancelled["due_ms"] == due_ms
        assert "nothing of this id is pending" in cancel(router, delay, "order-7", code=2).stderr
        assert "has no partition 2: it has 2" in cancel(router, delay, "order-7", "--partition", "2", code=2).stderr
        assert router.stop() == 0
        unserved = cancel(router, delay, "order-7", "--wait", "1", code=1)
        assert f"{delay}.receipts" in unserved.stderr


def test_who_replaces_is_told_what_was_replaced_and_whether_the_record_is_delivered(stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(partitions=2, default_target=out)
    with stage.router() as router:
        router.start_and_wait()
        first = command(router, "send", delay, "--id", "order-7", "--key", "k", "--after", "1h", "--value", "old")
        place = first.stdout.split()[0]
        assert "give --key, the key of the pending schedule" in replace(router, delay, code=2).stderr
        waiting = (delay, "--key", "k", "--wait", "10")
        changed = replace(router, *waiting, "--if-due", "1893456000000", code=1)
        assert "due at another time" in changed.stderr
        (told,) = json.loads(replace(router, *waiting, "--after", "2h", "--json").stdout)
        (replaced,) = told["replaced"]
        assert f"{delay}/{replaced['partition']}/{replaced['offset']}" == place
        assert f"{told['offset']} replaced; it was due" in replace(router, *waiting).stdout
        (released,) = stage.wait_records(out, 1)
        assert released.value == b"new"
        assert "nothing was replaced" in replace(router, *waiting, "--after", "1h").stdout
        assert router.stop() == 0


def test_who_moves_is_told_what_was_moved_and_when_it_is_due_now(stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(partitions=2, default_target=out)
    with stage.router() as router:
        router.start_and_wait()
        far_ms = now_ms() + HOUR_MS
        schedule: tuple[Header, Header] = (("deliver-id", b"order-7"), ("deliver-at", b"%d" % far_ms))
        first, last = (stage.send(delay, *schedule, value=value) for value in (b"first", b"last"))
        move = ("move", delay, "order-7")
        assert "give --at or --after" in command(router, *move, code=2).stderr
        assert "due at another time" in command(router, *move, "--after", "1h", "--if-due", "7", code=1).stderr
        assert "nothing of this id is pending" in command(router, "move", delay, "no", "--at", "0", code=2).stderr
        told = command(router, *move, "--at", str(far_ms + 1)).stdout.splitlines()
        assert [line.split(";")[0] for line in told[:2]] == [f"{first} cancelled", f"{last} moved"]
        assert told[2].startswith("due ")
        again = json.loads(command(router, *move, "--after", "0", "--json").stdout)
        assert [each["due_ms"] for each in again["moved"]] == [far_ms + 1]
        (released,) = stage.wait_records(out, 1)
        assert released.value == b"last"
        assert router.stop() == 0


def test_all_that_match_are_cancelled_after_a_dry_run_has_counted_them(stage: Stage) -> None:
    out, other = stage.target(), stage.target("other")
    delay = stage.delay(partitions=2, default_target=out, allowed_targets=[other])
    soon_ms = now_ms() + 30_000
    where = json.dumps({"target": other, "header": {"name": "customer", "value": "7"}})
    with stage.router() as router:
        router.start_and_wait()
        for number in range(8):
            headers: list[Header] = [("deliver-at", b"%d" % soon_ms), ("customer", b"%d" % (7 + number % 2))]
            stage.send(delay, *headers, ("deliver-to", other.encode()), partition=number // 4)
        stage.send(delay, ("deliver-at", b"%d" % soon_ms), ("customer", b"7"), partition=0)
        assert json.loads(cancel(router, delay, "--where", where, "--dry-run", "--json").stdout)["matching"] == 4
        assert "2 schedules match" in cancel(router, delay, "--where", where, "--dry-run", "--partition", "1").stdout
        assert json.loads(cancel(router, delay, "--where", where, "--json").stdout) == {"topic": delay, "matched": 4}
        assert cancel(router, delay, "--where", where).stdout == "0 schedules cancelled\n"
        router.kill()
        router.start_and_wait()
        assert json.loads(cancel(router, delay, "--where", where, "--dry-run", "--json").stdout)["matching"] == 0
        stage.wait_records(out, 1)
        report = stage.settle()
        assert (report.cancelled, report.answered, report.released_once) == (4, 4, 5)
        assert router.stop() == 0
