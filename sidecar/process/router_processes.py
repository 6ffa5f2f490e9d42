"""Runs several router processes on one machine, so that a group uses more than one core of it.

A router process computes on one core, since Python runs one thread at a time. The group shares the partitions of its
delay topics out among all processes. Each process is a whole router, with addresses of its own::

    delay-router run --processes 3 ──┬── router 0    [http] 127.0.0.1:8080    [admin] 127.0.0.1:8081
                                     ├── router 1    [http] 127.0.0.1:8090    [admin] 127.0.0.1:8091
                                     └── router 2    [http] 127.0.0.1:8100    [admin] 127.0.0.1:8101

A router that ends is started again after a pause; its partitions are served by the others meanwhile. A router that ends
because of its configuration ends all of them, as long as none has served: the same configuration would end the others,
too. Later a file that is being replaced, or a port that another program takes for a moment, must not end a service.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from index.errors import ConfigError
from sidecar.config.model import Config

PORT_STEP: Final = 10
"""The distance between the ports of one router and the next; [http] and [admin] have neighbouring ports by default."""

LAST_PORT: Final = 65_535
WRONG_CONFIGURATION: Final = 2

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
SERVED_S: Final = 60.0
"""The time after which a router has served: its end is no sign of the same trouble as its last end."""

LOOK_EVERY_S: Final = 0.1
END_WITHIN_S: Final = 29.0
"""The time for all routers to end: a little more than a router takes, and less than the 30 s of service managers."""


def command_of(config_file: Path | None) -> list[str]:
    """Return the command that runs one router with a configuration."""
    named = [] if config_file is None else ["--config", str(config_file)]
    return [sys.executable, "-m", "sidecar", "run", *named]


def settings_of(config: Config, count: int) -> list[dict[str, str]]:
    """Return the environment variables in which each of ``count`` routers differs from the configuration.

    Raise ConfigError if there are not enough ports.
    """
    return [_settings_of(config, number) for number in range(count)]


def _settings_of(config: Config, number: int) -> dict[str, str]:
    settings = {"DELAY_ROUTER__HTTP__LISTEN": _moved("http", config.http.listen, number)}
    if config.admin.is_on:
        settings["DELAY_ROUTER__ADMIN__LISTEN"] = _moved("admin", config.admin.listen, number)
    if config.router.instance_id:
        settings["DELAY_ROUTER__ROUTER__INSTANCE_ID"] = f"{config.router.instance_id}-{number}"
    return settings


def _moved(section: str, listen: str, number: int) -> str:
    host, _, port = listen.rpartition(":")
    moved = int(port) + PORT_STEP * number
    if moved > LAST_PORT:
        raise ConfigError(
            f"[{section}] listen: router {number} would need port {moved}, and {LAST_PORT} is the last one. Choose a"
            f" lower port than {port}: each router takes one {PORT_STEP} higher than the one before"
        )
    return f"{host}:{moved}" if int(port) else listen


@dataclass(eq=False)
class _Router:
    """One of the routers: its process, and when to start it again after its end."""

    number: int
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    start_s: float = 0.0
    pause_s: float = FIRST_PAUSE_S


class RouterProcesses:
    """Keeps one process running for each of ``environments``, all with the same command."""

    def __init__(self, command: Sequence[str], environments: Sequence[Mapping[str, str]]) -> None:
        self._command = command
        self._routers = [_Router(number, environment) for number, environment in enumerate(environments)]
        self._has_served = False
        self._log = structlog.get_logger()

    def run(self, is_stopping: Callable[[], bool]) -> int:
        """Keep the routers running until ``is_stopping``, end them, and return the exit code."""
        exit_code = 0
        try:
            while not is_stopping() and exit_code != WRONG_CONFIGURATION:
                now_s = time.monotonic()
                exit_code = max([self._look(each, now_s) for each in self._routers])
                time.sleep(LOOK_EVERY_S)
        finally:
            ended = self._end()
        return exit_code or ended

    def _look(self, router: _Router, now_s: float) -> int:
        """Start a router that is due to start, and note its end; return the exit code if it must not start again."""
        if router.process is None:
            if now_s >= router.start_s:
                self._start(router, now_s)
            return 0
        code = router.process.poll()
        if now_s - router.started_s > SERVED_S:
            router.pause_s, self._has_served = FIRST_PAUSE_S, True
        if code is None:
            return 0
        self._pause(router, now_s, exit_code=code)
        return code if code == WRONG_CONFIGURATION and not self._has_served else 0

    def _start(self, router: _Router, now_s: float) -> None:
        try:
            router.process, router.started_s = subprocess.Popen(self._command, env=router.environment), now_s
        except OSError as error:
            # The machine may lack memory or processes for a moment.
            self._pause(router, now_s, exit_code=None, error=str(error))

    def _pause(self, router: _Router, now_s: float, **ended: object) -> None:
        self._log.error("router_ended", router=router.number, **ended, started_again_in_s=router.pause_s)
        router.process, router.start_s = None, now_s + router.pause_s
        router.pause_s = min(2 * router.pause_s, LONGEST_PAUSE_S)

    def _end(self) -> int:
        """Ask all routers to end, kill those that do not, and return the exit code: 0 if each ended in order."""
        processes = [each.process for each in self._routers if each.process is not None]
        for process in processes:
            process.terminate()
        until_s = time.monotonic() + END_WITHIN_S
        codes: list[int] = []
        for process in processes:
            try:
                codes.append(process.wait(max(0.0, until_s - time.monotonic())))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(process.wait())
        return int(any(codes))
