"""``delay-router dev``: runs a Kafka and a router until Ctrl-C, for trying out producers.

Both are removed at the end. The configuration file has a fixed place for each port, and every command shown names it,
so a command pasted into another terminal works as it is.
"""

import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from confluent_kafka import Consumer, KafkaException, Message
from rich.console import Console
from rich.markup import escape

from index.errors import DelayRouterError
from sidecar.dev import local_kafka
from sidecar.dev.demo.kafka_side import POLL_RECORDS, create_targets, reading
from sidecar.dev.demo.orders import Header, Topics
from sidecar.dev.demo.router import RouterProcess, RouterProcessError, config_text, init
from sidecar.dev.local_kafka.reaper import Reaper

HTTP_PORT: Final = 9080
PAGE_PORT: Final = 9081
"""Ports of the router, not those of a router with the default configuration: that one may run beside. A port in use is
replaced by a free one."""

MAX_DELAY: Final = "7d"
SHOWN_CHARACTERS: Final = 60
_POLL_S: Final = 0.2
_LOG_LINES: Final = 20


def main(port: int, console: Console) -> int:
    """Run until Ctrl-C, the orderly end, and return 0; return 1 when something is missing or fails."""
    if os.environ.get(local_kafka.SERVERS_VARIABLE, "").strip():
        print(
            f"dev starts a Kafka of its own, but {local_kafka.SERVERS_VARIABLE} names another one: unset it, or work "
            "with that one by delay-router init --create-targets and delay-router run",
            file=sys.stderr,
        )
        return 1
    try:
        console.print("starting Kafka ...")
        with local_kafka.cluster(port=port) as kafka:
            return _Dev(kafka.bootstrap, port, console).stay()
    except local_kafka.KafkaUnavailable as error:
        print(error, file=sys.stderr)
    except KafkaException as error:
        print(f"Kafka: {error.args[0].str()}", file=sys.stderr)
    except KeyboardInterrupt:
        console.print("stopped; nothing is left running")
        return 0
    return 1


class PageAddress(NamedTuple):
    """Address of the router's page, and the token for it."""

    url: str
    token: str


class _Dev:
    """Runs the router beside a Kafka that answers."""

    def __init__(self, bootstrap: str, port: int, console: Console) -> None:
        self._bootstrap = bootstrap
        self._console = console
        self._topics = Topics.of("")
        self._directory = folder(port)
        self._page = PageAddress(f"http://127.0.0.1:{_free(PAGE_PORT)}", secrets.token_hex(16))

    def stay(self) -> int:
        """Run the router and show arrivals until KeyboardInterrupt; return 1 when the router ends by itself."""
        with ExitStack() as stack:
            reaper = Reaper()
            stack.callback(reaper.close)
            # A killed run may have left the directory; no other run uses it now, because this one holds the port.
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory.mkdir(parents=True)
            stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
            reaper.watch(self._directory)
            router = stack.enter_context(self._router())
            try:
                self._serve(router)
            except DelayRouterError as error:
                print(error, *router.last_lines(_LOG_LINES), sep="\n", file=sys.stderr)
            except KeyboardInterrupt:
                self._console.print("stopping ...")
                router.stop()
                raise
        return 1

    def _router(self) -> RouterProcess:
        """Write the configuration and return the router, not started."""
        topics, port = self._topics, _free(HTTP_PORT)
        config = self._directory / "delay-router.toml"
        tokens = self._directory / "tokens"
        tokens.touch(mode=0o600)
        tokens.write_text(f"operate {self._page.token}\n")
        sections: dict[str, Any] = {
            "kafka": {"bootstrap.servers": self._bootstrap},
            # Static membership: a restarted router gets its partitions back at once.
            "router": {"instance_id": "dev-1"},
            "http": {"listen": f"127.0.0.1:{port}"},
            "admin": {"listen": self._page.url.removeprefix("http://"), "token_file": str(tokens), "page": True},
            "delay_topics": [topics.section(MAX_DELAY)],
        }
        config.write_text(config_text(sections))
        return RouterProcess(config, port, self._directory / "router.log")

    def _serve(self, router: RouterProcess) -> None:
        self._console.print("creating the topics, starting the router ...")
        create_targets(self._bootstrap, (self._topics.orders, self._topics.billing))
        init(router.config)
        router.start()
        router.wait_ready()
        with reading(self._bootstrap, self._topics[1:]) as consumer:
            for line in introduction(self._bootstrap, self._topics, router, self._page):
                self._say(line)
            while router.running:
                self._show(consumer)
        raise RouterProcessError(f"the router ended by itself with exit code {router.exit_code}")

    def _show(self, consumer: Consumer) -> None:
        for message in consumer.consume(POLL_RECORDS, _POLL_S):
            if message.error() is not None:
                raise KafkaException(message.error())
            self._say(arrival(message))

    def _say(self, line: str) -> None:
        # Not wrapped, so that commands can be copied.
        self._console.print(escape(line), soft_wrap=True, highlight=False)
        self._console.file.flush()


def folder(port: int) -> Path:
    """Return the directory with the configuration of the router beside the Kafka on this port."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "kafka-delay-router" / f"dev-{port}"


def _free(port: int) -> int:
    return port if local_kafka.is_free(port) else local_kafka.free_port()


def introduction(bootstrap: str, topics: Topics, router: RouterProcess, page: PageAddress) -> Sequence[str]:
    """Return the lines that name Kafka, router, page and topics, and three commands that work as they are."""
    program, given = _program(), f"--config {shlex.quote(str(router.config))}"
    return (
        "",
        f"Kafka answers on {bootstrap}, the router is ready.",
        f"Metrics: http://127.0.0.1:{router.port}/metrics",
        f"To look at in a browser: {page.url}",
        f"  which asks for the token {page.token}",
        f"Records written to {topics.delay} come out in {topics.orders}, or {topics.billing} by deliver-to.",
        "",
        "In another terminal:",
        f"  {program} send {topics.delay} --key 42 --value hello --after 10s {given}",
        f"  {program} lookup {topics.delay}/0/0 {given}",
        f"  {program} status {given}",
        "",
        "Ctrl-C ends both, and nothing is kept.",
        f"Records that arrive in {', '.join(topics[1:])}:",
    )


def arrival(message: Message) -> str:
    """Return a line about a released or rejected record."""
    headers = dict(cast("list[Header]", message.headers() or []))
    line = f"  {message.topic()}  key {_shown(message.key())}  value {_shown(message.value())}"
    if code := headers.get("delay-error"):
        return f"{line}  {_text(code)}: {_text(headers.get('delay-error-message') or b'')}"
    if "delay-due" not in headers:
        # A record of another producer, or a note in the rejected topic about records that were driven again.
        return f"{line}  {', '.join(headers)}".rstrip()
    late_ms = message.timestamp()[1] - int(headers["delay-due"] or 0)
    return f"{line}  {late_ms} ms after it was due"


def _shown(raw: bytes | str | None) -> str:
    """Return bytes as text that is safe for a terminal and short enough for a line."""
    if raw is None:
        return "null"
    text = _text(raw.encode() if isinstance(raw, str) else raw)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _text(raw: bytes) -> str:
    return "".join(each if each.isprintable() else "�" for each in raw.decode(errors="replace"))


def _program() -> str:
    """Return the command for this program in another terminal: its name if every shell finds it, else its path."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m sidecar"
    found = shutil.which(called.name)
    # The PATH of the next terminal lacks the directory that an activated environment has added.
    if found and "VIRTUAL_ENV" not in os.environ and Path(found).resolve() == called.resolve():
        return called.name
    return shlex.quote(str(called.absolute()))
