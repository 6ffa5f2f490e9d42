"""Measures how soon another process has the partitions of a killed one, from the moment that the group knows it."""

import time
from collections.abc import Iterator
from typing import Any, Final

import psutil
from confluent_kafka.admin import AdminClient

from tests.bench import growth, router, workload
from tests.bench.context import Context
from tests.bench.instances import Group
from tests.bench.machine import cpu_s
from tests.bench.results import BenchmarkFailed, Row, at_most

KNOWN_WITHIN_S: Final = 60.0
POLL_S: Final = 0.05
TAKE_OVER_S: Final = 5.0


def take_over(context: Context) -> Iterator[Row]:
    """Measure a router of another name under a load; lost, doubled or early records end the benchmark."""
    count, group_id = growth.many(context), workload.name("router")
    settings = {"lanes": growth.LANES, "group_id": group_id, "instance_id": "one"}
    with router.running(context.bootstrap, count, router=settings) as running:
        first_ms = workload.now_ms() + growth.LEAD_S * 1_000
        last_ms = first_ms + context.sizes.growing_s * 1_000
        records = count * growth.PER_PARTITION * context.sizes.growing_s
        growth.fill(context, running.delay_topic, running.target, [first_ms, last_ms], range(count), records)
        workload.sleep_until(first_ms)
        admin = workload.admin(context.bootstrap)
        (dead,) = _members(admin, group_id)
        running.process.kill()
        killed_s = time.monotonic()
        # A process with another name is another member, also on the same port.
        config = running.process.config
        config.write_text(config.read_text().replace('"instance_id" = "one"', '"instance_id" = "two"'))
        running.process.start()
        known_s = _wait_until_known(admin, group_id, dead)
        process = psutil.Process(running.process.pid)
        used_s = cpu_s(process)
        Group((running.process,), running.delay_topic, running.target, "").wait_shared_out(count)
        seconds, used_s = time.monotonic() - known_s, cpu_s(process) - used_s
        workload.sleep_until(last_ms)
        lateness = growth.read(context, running.target, records, first_ms)
    what = f"{count} partitions, {growth.LANES} lanes: from the end of a session to the last active"
    detail = (
        f"{used_s:.1f} s of CPU of the router; the session ended {known_s - killed_s:.1f} s after kill -9;"
        f" {lateness.text()}"
    )
    yield Row("take-over", what, seconds, "s", goal=at_most(TAKE_OVER_S), detail=detail)


def _wait_until_known(admin: AdminClient, group_id: str, dead: str) -> float:
    """Wait until the group has removed the dead member and has another one. Return the time."""
    until_s = time.monotonic() + KNOWN_WITHIN_S
    while not (members := _members(admin, group_id)) or dead in members:
        if time.monotonic() > until_s:
            raise BenchmarkFailed(f"the group has the members {members}, of which {dead} is dead")
        time.sleep(POLL_S)
    return time.monotonic()


def _members(admin: AdminClient, group_id: str) -> set[str]:
    # The type hints of the package call every field None.
    groups: list[Any] = admin.list_groups(group_id, timeout=workload.REQUEST_TIMEOUT_S)
    return {member.id for group in groups for member in group.members}
