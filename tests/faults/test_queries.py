"""Tests of controls that cancel by query while routers die: each has one receipt and the right number in it."""

import json
import time
from collections import Counter
from random import Random
from typing import Any, Final

import pytest

from sidecar.dev.audit import AuditedRecord
from tests.faults.named_load import SLACK_MS
from tests.faults.stage import SMALL_BUCKETS, FaultStage, settled
from tests.integration.scenario import APPEND_TIME, Header, Load, Stage, header, wait_until

KILLS: Final = 6
TENANTS: Final = 8
FURTHEST_MS: Final = 15_000
RECORDS_BETWEEN_QUERIES: Final = 80
"""Two to three queries a second: those of some twenty seconds are in force together, and there may be 100."""
WHERE: Final = "deliver-cancel-where"
DELAYS: Final = (0, FURTHEST_MS)


class TenantLoad(Load):
    """Schedules of some tenants, and queries that cancel the schedules of one of them."""

    def _write(self, number: int) -> None:
        tenant = f"{self._rng.randrange(TENANTS)}"
        headers: list[Header] = [("tenant", tenant.encode())]
        if number % RECORDS_BETWEEN_QUERIES == 0:
            meant: dict[str, Any] = {"header": {"name": "tenant", "value": tenant}}
            headers = [(WHERE, json.dumps(meant).encode())]
        else:
            headers.append(("deliver-after", b"%d" % self._rng.randint(*self._delays_ms)))
        self._producer.produce(self._topics[0], b"%d" % number, b"k", 0, headers=[*headers])


@pytest.mark.timeout(300)
def test_queries_hold_while_routers_die_and_others_take_over(lone: FaultStage, rng: Random) -> None:
    out = lone.target()
    delay = lone.delay(default_target=out, **SMALL_BUCKETS)
    # Only the write time of a receipt shows which records its query must not have missed.
    lone.alter(f"{delay}.receipts", APPEND_TIME)
    routers = [lone.router(name, instance_id=name, session_timeout="2s") for name in ("one", "two")]
    with routers[0], routers[1], TenantLoad(lone, [delay], rng, a_second=200, delays_ms=DELAYS) as load:
        for router in routers:
            router.start()
        for kill in range(KILLS):
            wait_until_one_is_answered(lone, delay)
            time.sleep(rng.uniform(1.0, 4.0))
            router = routers[kill % 2]
            router.kill()
            router.start()
        load.finish()
        report = settled(lone)
        assert report.rejected == 0, report.summary()
        check_queries(lone, delay, out)
        assert report.answered > KILLS < report.cancelled, report.summary()
        assert [router.stop() for router in routers] == [0, 0]


def wait_until_one_is_answered(stage: FaultStage, delay: str) -> None:
    """Wait until a router answers one more query, which shows that it serves the partition again."""
    before = stage.offsets(f"{delay}.receipts")
    wait_until(lambda: stage.offsets(f"{delay}.receipts") > before, "a router answers a query")


def check_queries(stage: Stage, delay: str, out: str) -> None:
    """Assert that each query has cancelled all schedules in front of it, no other, and has counted them."""
    left_ms = {_offset(each): each.timestamp_ms for each in stage.records(out)}
    receipts = {_offset(each): each for each in stage.records(f"{delay}.receipts")}
    sent = stage.records(delay)
    queries = {each.offset: _tenant_of(each) for each in sent if dict(each.headers).get(WHERE)}
    assert receipts.keys() == queries.keys()
    took: Counter[int] = Counter()
    for schedule in (each for each in sent if each.offset not in queries):
        tenant = header(schedule, "tenant")
        behind = [offset for offset, each in queries.items() if offset > schedule.offset and each == tenant]
        if schedule.offset not in left_ms:
            assert behind, f"{schedule.offset} has not left, and no query is about it"
            took[behind[0]] += 1
        elif behind:
            answered_ms = receipts[behind[0]].timestamp_ms
            assert left_ms[schedule.offset] <= answered_ms + SLACK_MS, f"{behind[0]} spared {schedule.offset}"
    counted = {offset: json.loads(each.value or b"")["matched"] for offset, each in receipts.items()}
    assert counted == {offset: took[offset] for offset in queries}


def _offset(written: AuditedRecord) -> int:
    """Return the offset of the record because of which a router has written this one."""
    return int((header(written, "delay-source") or b"").rpartition(b"/")[2])


def _tenant_of(query: AuditedRecord) -> bytes:
    said = json.loads(header(query, WHERE) or b"")
    return str(said["header"]["value"]).encode()
