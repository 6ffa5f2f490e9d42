"""Finds the ``group_id`` under which a job began, so that a changed ``group_id`` makes no new job of it.

Kafka keeps the progress of a job under a name that begins with ``group_id`` (:mod:`spark_backfill.schedule.ledger`). A
job that has no progress under the present ``group_id``, but under another one in the same delay topic, goes on under
that one: a finished job writes nothing, and an unfinished one fences its last writer. The brokers list the groups that
the principal may describe, so the rights on the former groups have to stay for that.
"""

from typing import Final

from confluent_kafka.admin import AdminClient

from spark_backfill import cluster
from spark_backfill.cluster import Topic
from spark_backfill.schedule.ledger import Ledger, group_name
from spark_backfill.settings import Settings

_OF_A_JOB: Final = group_name("", "")


def begun_under(settings: Settings, admin: AdminClient, job: str, topic: Topic) -> str:
    """Return the ``group_id`` with progress of this job in this topic; the present one for a job that has not begun."""
    if _rows_done(settings, settings.group_id, job, topic, settled=False):
        return settings.group_id
    ending = group_name("", job)
    former = {name.removesuffix(ending) for name in cluster.groups(admin) if name.endswith(ending)}
    # Jobs may have names like "a.schedule.b": their groups end like those of job "b".
    rows = {
        group_id: _rows_done(settings, group_id, job, topic, settled=True)
        for group_id in sorted(former - {settings.group_id})
        if _OF_A_JOB not in group_id
    }
    return max(rows, key=rows.__getitem__) if any(rows.values()) else settings.group_id


def _rows_done(settings: Settings, group_id: str, job: str, topic: Topic, *, settled: bool) -> int:
    with Ledger(settings.kafka, group_name(group_id, job), topic.name, settled=settled) as ledger:
        return sum(each.done for each in ledger.read(range(topic.partitions)).values())
