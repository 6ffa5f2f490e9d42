"""Plays the demo from its first topic to its closing line, against a running Kafka."""

import secrets
import sys
import tempfile
import time
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from rich.console import Console

from index.errors import DelayRouterError
from sidecar.dev.audit import AttemptRules, AuditError, AuditReport, audit
from sidecar.dev.demo.board import Board
from sidecar.dev.demo.kafka_side import Watch, create_targets, delete_topics, send, watching
from sidecar.dev.demo.orders import (
    APPENDED,
    ATTEMPTS,
    CHANGING,
    FACTOR,
    FAILING,
    FIRST_WAIT_MS,
    LONGEST_DELAY_MS,
    MAX_DELAY,
    MAX_WAIT_MS,
    REGRETTED,
    RETRIED,
    SENT_BACK,
    TIMES,
    Topics,
    changing,
    orders,
    regretted,
    retried,
)
from sidecar.dev.demo.router import RouterProcess, RouterProcessError, config_text, init
from sidecar.dev.demo.show import Show, show
from sidecar.dev.local_kafka import free_port
from sidecar.dev.local_kafka.reaper import Reaper

KILL_AFTER_S: Final = 4.0
"""Time of the kill: some orders have arrived by then, and others become due while no router runs."""

PATIENCE_S: Final = 60.0
"""Time after the last due time during which the demo waits for missing orders; then they count as lost."""

AFTERMATH_S: Final = 0.5
"""Time that the router runs on after the last arrival: any further record of it would be an error, and is counted."""

_PROBE_S: Final = 0.2
_LOG_LINES: Final = 20
_GROUP: Final = "delay-router-demo"


class Demo:
    """One run of the demo with a router of its own; `shared` says that the cluster holds other topics too."""

    def __init__(self, bootstrap: str, console: Console, *, count: int, kill: bool, shared: bool) -> None:
        self._bootstrap = bootstrap
        self._console = console
        self._count = count
        self._kill = kill
        self._prefix = f"demo-{secrets.token_hex(4)}." if shared else ""
        self._topics = Topics.of(self._prefix)
        self._board = Board()

    def run(self) -> int:
        """Run the demo and return the exit code; every outcome removes topics, files and processes."""
        with ExitStack() as stack:
            reaper = Reaper()
            stack.callback(reaper.close)
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="delay-router-demo-")))
            reaper.watch(directory)
            if self._prefix:
                stack.callback(delete_topics, self._bootstrap, self._prefix)
            router = stack.enter_context(self._router(directory))
            try:
                return self._play(router)
            except (DelayRouterError, AuditError, KafkaException) as error:
                print(f"the demo failed: {error}", file=sys.stderr)
                if lines := router.last_lines(_LOG_LINES):
                    print("the last lines of the router's log:", *lines, sep="\n", file=sys.stderr)
                return 1

    def _play(self, router: RouterProcess) -> int:
        self._console.print("creating the topics, starting the router ...")
        topics = self._topics
        create_targets(self._bootstrap, (topics.orders, topics.billing, topics.dead))
        init(router.config)
        router.start()
        router.wait_ready()
        with (
            show(self._board, self._console) as shown,
            watching(self._bootstrap, topics, self._board, shown.say) as watch,
        ):
            now_ms = int(time.time() * 1000)
            made = [
                *orders(self._count, topics, now_ms),
                *regretted(self._count + FAILING, topics, now_ms),
                *changing(self._count + FAILING + REGRETTED, topics, now_ms),
                *retried(self._count + FAILING + REGRETTED + CHANGING, topics),
            ]
            send(self._bootstrap, topics, made, self._board)
            shown.say(f"{len(made)} orders sent")
            self._follow(watch, shown, router)
        if code := router.stop():
            raise RouterProcessError(f"the router ended with exit code {code} after SIGTERM")
        return self.conclude()

    def _follow(self, watch: Watch, shown: Show, router: RouterProcess) -> None:
        """Show arrivals, and kill the router in the middle, until every order has come to its end."""
        began = time.monotonic()
        deadline = began + LONGEST_DELAY_MS / 1000 + PATIENCE_S
        crash = _Crash(router, shown, began + KILL_AFTER_S) if self._kill else None
        completed_at = 0.0
        while (now := time.monotonic()) < deadline:
            for row in watch.poll():
                shown.finished(row)
            if not router.running:
                raise RouterProcessError(f"the router ended by itself with exit code {router.exit_code}")
            if crash is not None:
                crash.proceed(now)
            if self._board.complete and (crash is None or crash.over):
                completed_at = completed_at or now
                if now > completed_at + AFTERMATH_S:
                    return

    def conclude(self) -> int:
        """Print the counts of the audit; return 0 when they fit the sent orders, else 1."""
        topics = self._topics
        report = audit(
            {"bootstrap.servers": self._bootstrap},
            delay=[topics.delay, topics.retry],
            targets=[topics.orders, topics.billing, topics.dead],
            rejected=[topics.rejected, f"{topics.retry}.rejected"],
            receipts=[topics.receipts, f"{topics.retry}.receipts"],
            default_targets=dict.fromkeys((topics.delay, topics.retry), topics.orders),
            retries={
                topics.retry: AttemptRules(
                    *(FIRST_WAIT_MS, Fraction(FACTOR), MAX_WAIT_MS, Fraction(0), ATTEMPTS, topics.dead, frozenset())
                )
            },
        )
        for name, lines in report.samples.items():
            print(*(f"{name}: {line}" for line in lines), sep="\n", file=sys.stderr)
        # A terminal wraps at words, for people; a program reads one line.
        as_lines = not self._console.is_terminal
        self._console.print(
            f"counted from the topics: half of the copies arrived within {report.percentile_ms(50)} ms of their due "
            f"time, the last after {report.percentile_ms(100)} ms",
            soft_wrap=as_lines,
            highlight=False,
        )
        self._console.print(report.summary(), soft_wrap=as_lines, highlight=False, style="bold")
        return 0 if self._as_expected(report) else 1

    def _as_expected(self, report: AuditReport) -> bool:
        return (
            report.ok
            and report.sent == self._count + FAILING + REGRETTED + CHANGING + APPENDED + RETRIED + SENT_BACK
            # Besides the orders: the replacement, the moved order, each occurrence, and all that is retried.
            and report.released_once == self._count + 2 + TIMES + RETRIED + SENT_BACK
            and report.rejected == FAILING
            and (report.cancelled, report.replaced, report.moved, report.answered) == (1, 1, 1, 2)
        )

    def _router(self, directory: Path) -> RouterProcess:
        """Write the configuration and return the router, not started."""
        topics = self._topics
        port = free_port()
        config = directory / "delay-router.toml"
        config.write_text(
            config_text(
                {
                    "kafka": {"bootstrap.servers": self._bootstrap},
                    # Static membership: after the crash the router gets its partitions back without waiting for the
                    # session of the killed one.
                    "router": {"group_id": f"{self._prefix}{_GROUP}", "instance_id": "demo-1"},
                    "http": {"listen": f"127.0.0.1:{port}"},
                    "delay_topics": [topics.section(MAX_DELAY), topics.retry_section()],
                }
            )
        )
        return RouterProcess(config, port, directory / "router.log")


class _Crash:
    """Kills the router with SIGKILL, starts it again, and notes the moment when it is ready again."""

    def __init__(self, router: RouterProcess, shown: Show, at: float) -> None:
        self._router = router
        self._shown = shown
        self._at = at
        self._killed_at = 0.0
        self._next_probe = 0.0
        self.over = False

    def proceed(self, now: float) -> None:
        """Take the next step once its time has come."""
        if not self._killed_at:
            if now >= self._at:
                self._kill(now)
        elif not self.over and now >= self._next_probe:
            self._next_probe = now + _PROBE_S
            if self._router.ready():
                self.over = True
                self._shown.say(f"the router is ready again, {time.monotonic() - self._killed_at:.1f} s after the kill")

    def _kill(self, now: float) -> None:
        self._killed_at = now
        pid = self._router.pid
        self._router.kill()
        self._router.start()
        self._shown.say(f"router {pid} killed with SIGKILL, started again as {self._router.pid}")
