"""Several routers of one command, on a real broker."""

import os
import signal
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from random import Random

from sidecar.process.router_processes import PORT_STEP
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Load, Stage, wait_until

PARTITIONS = 4
COUNT = 2


def children(router: RouterProcess) -> set[int]:
    """Return the process ids of the routers that a command has started."""
    return {int(pid) for pid in Path(f"/proc/{router.pid}/task/{router.pid}/children").read_text().split()}


def all_are_ready(router: RouterProcess) -> bool:
    """Say whether every router of a command answers that it is ready."""
    return all(_is_ready(router.port + PORT_STEP * number) for number in range(COUNT))


def _is_ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def _has_replaced(router: RouterProcess, killed: int) -> bool:
    return killed not in (now := children(router)) and len(now) == COUNT


def test_a_killed_router_is_started_again_while_the_other_one_serves(stage: Stage, rng: Random) -> None:
    delay = stage.delay(partitions=PARTITIONS, default_target=stage.target())
    with stage.router() as router, Load(stage, [delay], rng, partitions=PARTITIONS) as load:
        router.options = ["--processes", str(COUNT)]
        router.start()
        wait_until(partial(all_are_ready, router), "both routers are ready")
        killed = min(children(router))
        os.kill(killed, signal.SIGKILL)
        wait_until(partial(_has_replaced, router, killed), "the killed router is started again")
        wait_until(partial(all_are_ready, router), "both routers are ready again")
        load.finish()
        assert stage.settle().released_once > 0
        assert [each["exit_code"] for each in router.events("router_ended")] == [-signal.SIGKILL]
        assert router.stop() == 0
