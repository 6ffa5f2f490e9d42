"""Runs routers as child processes, with a configuration written for them and every signal a test may need.

    with RouterProcess(tmp_path, kafka.bootstrap, [{"name": delay, "default_target": target}]) as router:
        router.start_and_wait()
        router.kill()      # SIGKILL
        router.pause()     # SIGSTOP, past its session if you wait that long
        router.resume()    # SIGCONT

A second router on the same work has the same `group_id` and delay topics, and a directory of its own.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from sidecar.dev.demo import router
from sidecar.dev.local_kafka import free_port


class RouterProcess(router.RouterProcess):
    """A router with a configuration for one test, killed at the end of the ``with`` block."""

    def __init__(
        self,
        directory: Path,
        bootstrap: str,
        delay_topics: Sequence[Mapping[str, Any]],
        *,
        kafka: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Write ``router.toml``: `options` are keys of ``[router]``, `kafka` of ``[kafka]``.

        Without ``group_id`` the group is named after the first delay topic, which is unique to the test.
        """
        directory.mkdir(parents=True, exist_ok=True)
        port = free_port()
        # Routers of other tests use the same brokers and would follow the same policies.
        options.setdefault("policies_topic", f"__{delay_topics[0]['name']}.policies")
        options.setdefault("status_topic", f"__{delay_topics[0]['name']}.status")
        self.group_id = str(options.setdefault("group_id", f"router.{delay_topics[0]['name']}"))
        config = directory / "router.toml"
        config.write_text(
            router.config_text(
                {
                    "kafka": {"bootstrap.servers": bootstrap, **(kafka or {})},
                    "router": options,
                    "http": {"listen": f"127.0.0.1:{port}"},
                    "delay_topics": [dict(topic) for topic in delay_topics],
                }
            )
        )
        super().__init__(config, port, directory / "router.log")

    def start_and_wait(self, timeout_s: float = router.READY_TIMEOUT_S) -> None:
        """Start the router and wait until it is ready; an error includes the last lines of its log."""
        self.start()
        try:
            self.wait_ready(timeout_s)
        except router.RouterProcessError as error:
            raise router.RouterProcessError("\n".join([str(error), *self.last_lines(60)])) from None

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command (``init``, ``check`` ...) with this configuration, to its end."""
        call = [sys.executable, "-m", "sidecar", *arguments, "--config", str(self.config)]
        return subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)

    def init(self) -> None:
        """Create the topics with ``delay-router init``."""
        done = self.command("init")
        assert done.returncode == 0, f"init failed with {done.returncode}:\n{done.stdout}{done.stderr}"

    def pause(self) -> None:
        """Stop the router with SIGSTOP: it neither works nor sends heartbeats, but the process remains."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the router with SIGCONT."""
        self.signal(signal.SIGCONT)

    def events(self, name: str = "") -> list[dict[str, Any]]:
        """Return the log lines, only of event `name` if given, without a line that a kill cut off."""
        lines = (line for line in self.log_text().splitlines() if line[:1] == "{" and line[-1] == "}")
        parsed = (json.loads(line) for line in lines)
        return [event for event in parsed if not name or event.get("event") == name]

    def metric(self, series: str) -> float:
        """Return the value of ``delay_router_<series>``, with labels as they are written, or 0 if it does not exist."""
        status, body = self.http("/metrics")
        assert status == HTTPStatus.OK, body
        values = [line.rpartition(" ") for line in body.splitlines()]
        return sum(float(value) for name, _, value in values if name == f"delay_router_{series}")
