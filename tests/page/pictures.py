"""Takes the pictures of the page for OPERATIONS, with doubles behind it: ``python -m tests.page.pictures``."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from index.partition.survey import BOUNDS_MS
from index.protocol.headers import Headers
from index.protocol.record import Record
from sidecar.config.model import Config
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.http.api.server import AdminApi
from sidecar.operations.finding.wanted import ScheduleFilter
from sidecar.operations.status.answers import (
    AttemptAnswer,
    AttemptGroupAnswer,
    AttemptsAnswer,
    DueRange,
    ExhaustedAnswer,
    Fate,
    LookupAnswer,
    PartitionAnswer,
    PendingAnswer,
    RetriesAnswer,
    ScheduleAnswer,
    SchedulesAnswer,
    StatusAnswer,
    TopicAnswer,
)
from sidecar.operations.status.reports import Reported, Vitals
from sidecar.operations.watching.history import MINUTE_MS, MINUTES, HistoryAnswer, MinuteAnswer
from sidecar.operations.watching.routers import RoutersAnswer, routers_answer
from sidecar.policies.origin import ChangeOrigin
from sidecar.policies.policy import target_scope, topic_scope
from tests.page.browser import Browser, browser
from tests.support.admin_api import OPERATE, FakeOperations

FOLDER: Final = Path(__file__).with_name("pictures")
SIZE: Final = (1120, 760)

ORDERS: Final = "orders.delay"
REMINDERS: Final = "billing.reminders.delay"
RETRIES: Final = "payments.retry"
SPENT: Final = 65_377
"""Offset of a record without an attempt left."""

VIEWS: Final = (
    ("topics", "#topics", "td.number a", False),
    ("topic", f"#topic/{ORDERS}", ".bars", True),
    ("pending", f"#pending/{ORDERS}", "tbody", False),
    ("find", f"#find/{ORDERS}/0/8", ".timeline", False),
    ("retries", f"#retries/{RETRIES}", "tbody", False),
    ("policies", "#policies", "section tbody", True),
)
"""Each view with its address, the element that shows that it is ready, and whether it is dark."""

COUNTS: Final = (0, 3, 42, 310, 2_900, 18_000, 90_000, 411_000, 200_000, 145)


class Group(FakeOperations):
    """A group of two routers with something to look at: one topic is paused, and one partition is unserved."""

    def status(self, topic: str = "") -> StatusAnswer:
        why = "no router has reported it for 30 s"
        unserved = PartitionAnswer(partition=1, state="unserved", why=why, pending=5_000, age_ms=95_000, lag=None)
        topics = (
            _topic(ORDERS, [_partition(n, 120_400 * (n + 1), 73_000 * (n + 1)) for n in range(3)]),
            _topic(REMINDERS, [_partition(0, 412, -95_000, state="paused", held=12)], paused=True),
            _topic(RETRIES, [_partition(0, 7, 4_000), unserved]).model_copy(update={"retries": _retries()}),
        )
        wanted = tuple(each for each in topics if topic in ("", each.topic))
        names = ("router-0", "router-1")
        return StatusAnswer(topics=wanted, instances=names, kernels=dict.fromkeys(names, "native"))

    def pending(self, topic: str) -> PendingAnswer:
        bounds_s = [*(bound_ms / 1_000 for bound_ms in BOUNDS_MS), None]
        ranges = tuple(DueRange(within_s=bound, records=n) for bound, n in zip(bounds_s, COUNTS, strict=True))
        targets = {"orders": 700_000, "billing.eu.invoices": 22_000, "audit": 400}
        return PendingAnswer(
            topic=topic,
            records=sum(COUNTS),
            by_due=ranges,
            next_hour=tuple(240 + 7 * (minute * minute % 61) for minute in range(60)),
            next_week=tuple(900 + 5_000 * (8 <= hour % 24 < 20) + 17 * (hour % 31) for hour in range(168)),
            by_target=targets,
        )

    def attempts(self, topic: str, most: int) -> AttemptsAnswer:
        by_attempt = {"1": 3_480, "2": 1_020, "3": 340, "4-7": 141, "8+": 19}
        return AttemptsAnswer(topic=topic, records=5_000, by_attempt=by_attempt, exhausted=0, is_whole=False)

    def history(self, topic: str = "") -> HistoryAnswer:
        first_ms = _now_ms() // MINUTE_MS * MINUTE_MS - MINUTES * MINUTE_MS
        minutes = (
            MinuteAnswer(
                at_ms=first_ms + number * MINUTE_MS,
                released=3_900 + 61 * (number * number % 37),
                lateness_p50_ms=2.4,
                lateness_p99_ms=14.0 + number % 7 + 60 * (31 <= number < 34),
                pending=722_000 + 900 * number - 7 * number * number,
            )
            for number in range(MINUTES)
        )
        return HistoryAnswer(topic=topic, minutes=tuple(minutes))

    def routers(self) -> RoutersAnswer:
        names = ("router-0", "router-1")
        since_ms = _now_ms() - 273_000_000
        told = {name: Vitals("0.2.0", f"delays-{name}", since_ms, 0.21, 402 << 20) for name in names}
        statuses = ((ORDERS, 0), (ORDERS, 1), (ORDERS, 2), (REMINDERS, 0), (RETRIES, 0))
        found = (
            Reported(PartitionStatus(topic, n, PartitionState.ACTIVE, pending=120_400), names[n % 2], 0, 0)
            for topic, n in statuses
        )
        return routers_answer(found, dict.fromkeys(names, "native"), told)

    def lookup(self, topic: str, partition: int, offset: int) -> LookupAnswer:
        is_spent, waits = offset == SPENT, (8_000, 16_000, 32_000, 64_000, 128_000)
        attempt = AttemptAnswer(
            number=8 if is_spent else 3,
            most=8,
            exhausted=is_spent,
            next_waits_ms=() if is_spent else waits,
            dead_letter="payments.dlq",
        )
        return LookupAnswer(
            topic=topic,
            partition=partition,
            offset=offset,
            fate=Fate.PENDING,
            sent_ms=_now_ms() - 84_000_000,
            indexed=True,
            due_ms=_now_ms() + 3_723_000,
            targets=("orders", "audit"),
            attempt=attempt if topic == RETRIES else None,
        )

    def record(self, topic: str, partition: int, offset: int, due_ms: int | None = None) -> Record:
        return self.content

    def schedules(self, wanted: ScheduleFilter, begin: str, most: int, upcoming: int = 0) -> SchedulesAnswer:
        found = tuple(
            ScheduleAnswer(
                partition=number % 3,
                offset=81_204 + 17 * number,
                due_ms=_now_ms() + 123_000 * (number + 1),
                targets=("orders", "audit")[: 1 + number % 2],
                id=f"order-{4_711 + number}",
                key=f"customer-{7 * number}",
                attempt=1 + number % 3 if wanted.topic == RETRIES else None,
            )
            for number in range(6)
        )
        return SchedulesAnswer(topic=wanted.topic, schedules=found, next_from="0/log/81310")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _partition(number: int, pending: int, due_in_ms: int, *, state: str = "active", held: int = 0) -> PartitionAnswer:
    return PartitionAnswer(
        partition=number,
        state=state,
        instance=f"router-{number % 2}",
        pending=pending,
        next_due_ms=_now_ms() + due_in_ms,
        held=held,
    )


def _topic(name: str, partitions: list[PartitionAnswer], *, paused: bool = False) -> TopicAnswer:
    pending = sum(each.pending for each in partitions if each.state != "unserved")
    return TopicAnswer(
        topic=name,
        pending=pending,
        paused=paused,
        drained=False,
        lateness_p50_ms=2.4,
        lateness_p99_ms=17.0,
        partitions=tuple(partitions),
    )


def _retries() -> RetriesAnswer:
    attempts = (("1", 900, 1_000, 48_211, 112), ("2", 1_800, 2_000, 9_240, 20), ("3", 3_600, 4_000, 3_105, 7))
    more = (("4-7", 7_200, 64_000, 4_077, 9), ("8+", 115_200, 128_000, 806, 2))
    return RetriesAnswer(
        attempts=8,
        dead_letter="payments.dlq",
        since_ms=_now_ms() - 93_600_000,
        by_attempt=tuple(
            AttemptGroupAnswer(attempt=label, wait_from_ms=least, wait_to_ms=most, released=released, per_minute=minute)
            for label, least, most, released, minute in (*attempts, *more)
        ),
        exhausted=391,
        exhausted_per_minute=1,
        last_exhausted=(
            ExhaustedAnswer(partition=0, offset=SPENT, at_ms=_now_ms() - 41_000),
            ExhaustedAnswer(partition=0, offset=65_102, at_ms=_now_ms() - 107_000),
        ),
        uncounted=(1,),
    )


def _config(tokens: Path) -> Config:
    topics: list[dict[str, Any]] = [{"name": name, "default_target": "orders"} for name in (ORDERS, REMINDERS, RETRIES)]
    admin = {"listen": "127.0.0.1:0", "token_file": str(tokens), "page": True}
    return Config.model_validate({"kafka": {"bootstrap.servers": "b:1"}, "admin": admin, "delay_topics": topics})


@contextmanager
def shown() -> Iterator[Browser]:
    """Yield a browser with the page, signed in, with these doubles behind it."""
    with tempfile.TemporaryDirectory() as directory:
        tokens = Path(directory) / "tokens"
        tokens.write_text(f"operate+payload {OPERATE}\n")
        config = _config(tokens)
        group = Group(config)
        headers: Headers = [("deliver-at", b"1893456000000"), ("trace-id", b"4f1c99aa"), ("authorization", b"Bearer x")]
        group.content = Record(b"customer-7", b'{"order": 4711}', headers, _now_ms() - 84_000_000)
        alice = group.by(ChangeOrigin("alice", "command", "ops-1"))
        alice.replace_policy(topic_scope(REMINDERS), {"paused": False, "max_delay": "7d"})
        alice.replace_policy(target_scope("audit"), {"records_per_second": 500})
        token = group.by(ChangeOrigin("token 3f9a01c2 (operate)", "admin API", "10.1.2.3"))
        paused = {"paused": True, "paused_reason": "billing moves", "max_delay": "7d"}
        token.replace_policy(topic_scope(REMINDERS), paused)
        token.replace_policy(target_scope("audit"), {"paused": True, "records_per_second": 500})
        for number in range(17):
            group.reject(ORDERS, ("MAX_DELAY_EXCEEDED", "EXPIRED")[number % 3 == 0], "of the picture", b"o-1")
        serving = AdminApi(config, group)
        with browser(Path(directory) / "profile") as window:
            window.open(f"http://localhost:{serving.port}")
            window.sign_in(OPERATE)
            yield window
        serving.stop()


def main() -> None:
    """Write every picture."""
    FOLDER.mkdir(exist_ok=True)
    with shown() as window:
        for name, address, part, dark in VIEWS:
            window.look(*SIZE, dark=dark)
            window.go(address)
            window.wait(f"main {part}")
            window.driver.save_screenshot(str(FOLDER / f"{name}.png"))


if __name__ == "__main__":
    main()
