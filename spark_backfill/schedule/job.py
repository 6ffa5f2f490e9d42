"""``schedule``: turns a table of schedules into records of a delay topic, each row exactly once.

1. *Check the columns*, before a row is read (:mod:`spark_backfill.schedule.columns`).
2. *Survey all rows* by the router's own rules, as if they were written now, and count the rows that are invalid or past
   due (:mod:`spark_backfill.schedule.survey`); by default one invalid row means that nothing is written.
3. *Write*, delay partition by delay partition, in transactions that hold the rows and how many are done
   (:mod:`spark_backfill.schedule.write`).

**Guaranteed**: every row is written once, even if a task is repeated, the job is killed and run again, or two runs of
it go on at once; a finished job that is run again writes nothing. **Not guaranteed**: the job is not one transaction
(Kafka has none over several producers), so consumers see rows of a running job before its last ones; and the brokers
remember a job only for ``offsets.retention.minutes`` after its last transaction, a week by default.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark_backfill import cluster
from spark_backfill.errors import JobError
from spark_backfill.schedule.begun import begun_under
from spark_backfill.schedule.ledger import Ledger, check_same_rows, group_name, table_changed
from spark_backfill.schedule.progress import WritingLines, surveying
from spark_backfill.schedule.survey import Route, RowSurvey, merged
from spark_backfill.schedule.tasks import INVALID, SORTED, SURVEYED, WRITTEN, RowDeciding, Writing
from spark_backfill.schedule.write import WriteTarget, WrittenRows
from spark_backfill.settings import DelayTopic, Settings
from spark_backfill.stages import said

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """The request for a job: ``on_invalid`` is fail, skip or divert, ``on_past`` is release, fail or skip."""

    topic: DelayTopic
    job: str
    on_invalid: str = "fail"
    on_past: str = "release"
    divert_to: str = ""
    batch: int = 10_000
    dry_run: bool = False


@dataclass(slots=True)
class ScheduleReport:
    """The result of a job; rows ``before`` were done by an earlier run of it."""

    survey: RowSurvey
    written: int = 0
    left_out: int = 0
    before: int = 0
    seconds: float = 0.0
    diverted_to: str = ""
    refused: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return a flat object, with counts and samples by reason."""
        survey = self.survey
        targets: Counter[str] = Counter()
        for route, count in survey.routes.items():
            targets.update(dict.fromkeys(route.targets, count))
        return {
            "rows": survey.rows,
            "valid": survey.valid,
            "invalid": survey.invalid,
            "past_due": survey.past,
            "reasons": dict(survey.reasons),
            "samples": survey.samples,
            "targets": dict(targets),
            "written": self.written,
            "left_out": self.left_out,
            "before": self.before,
            "seconds": round(self.seconds, 1),
            "diverted_to": self.diverted_to,
            "refused": self.refused,
        }


def schedule(settings: Settings, request: ScheduleRequest, rows: DataFrame, say: Say) -> ScheduleReport:
    """Run the job; ``rows`` have the columns of :func:`spark_backfill.schedule.source.rows`.

    Forbidden rows end it with ``report.refused`` set and nothing written. Raises JobError when the delay topic is
    missing, the job has begun with other rows, the table changes meanwhile, or another run of it takes over.
    """
    began_s = time.monotonic()
    admin = cluster.connect(settings)
    delay = cluster.topic(admin, request.topic.name)
    group_id = begun_under(settings, admin, request.job, delay)
    if group_id != settings.group_id:
        say(f"job {request.job} was begun under group_id {group_id}, and goes on under it")
        settings = replace(settings, group_id=group_id)
    max_bytes = int(cluster.topic_settings(admin, [delay.name])[delay.name]["max.message.bytes"])
    now_ms = time.time_ns() // 1_000_000
    rules = request.topic.rules.to_json()
    decider = RowDeciding(rules, request.job, delay.partitions, max_bytes, now_ms, skip_past=request.on_past == "skip")
    say(f"surveying the rows for {delay.name} ({delay.partitions} partitions)")
    context = rows.sparkSession.sparkContext
    with said(context, "schedule", partial(surveying, context), say):
        surveyed = rows.mapInArrow(decider.survey, SURVEYED).collect()
    survey = merged(RowSurvey.from_json(row["survey"]) for row in surveyed)
    unknown = _unknown_targets(admin, survey)
    survey.refuse(unknown)
    decider = replace(decider, unknown=unknown)
    report = ScheduleReport(survey)
    say(f"{survey.rows:,} rows: {survey.valid:,} valid ({survey.past:,} past due), {survey.invalid:,} invalid")
    with Ledger(settings.kafka, group_name(settings.group_id, request.job), delay.name, settled=False) as ledger:
        found = ledger.read(range(delay.partitions))
        check_same_rows(request.job, delay.name, _fingerprints(survey), found)
        report.before = sum(progress.done for progress in found.values())
        if report.before == survey.rows:
            say("nothing is left to write")
        elif not (refused := _refusal(request, survey)) and not request.dry_run:
            _write(settings, request, rows, decider, report, ledger, say)
        else:
            report.refused = refused
    report.seconds = time.monotonic() - began_s
    return report


def _fingerprints(survey: RowSurvey) -> dict[int, str]:
    return {partition: each.text() for partition, each in survey.partitions.items()}


def _refusal(request: ScheduleRequest, survey: RowSurvey) -> str:
    if survey.invalid and request.on_invalid == "fail":
        return f"{survey.invalid:,} rows are invalid; mend them, or pass --on-invalid skip or divert"
    if survey.past and request.on_past == "fail":
        return f"{survey.past:,} rows are past due; pass --on-past release or skip"
    return ""


def _unknown_targets(admin: Any, survey: RowSurvey) -> dict[Route, str]:
    """Return routes to a topic or a partition that does not exist, with a message."""
    found = cluster.topics(admin, {name for route in survey.routes for name in route.targets})
    unknown = {}
    for route in survey.routes:
        for name in route.targets:
            if name not in found:
                unknown[route] = f"Target topic {name} does not exist; create it first"
            elif route.partition >= found[name].partitions:
                unknown[route] = f"Target topic {name} has {found[name].partitions} partitions, not {route.partition}"
    return unknown


def _write(
    settings: Settings,
    request: ScheduleRequest,
    rows: DataFrame,
    decider: RowDeciding,
    report: ScheduleReport,
    ledger: Ledger,
    say: Say,
) -> None:
    if report.survey.invalid and request.on_invalid == "divert":
        report.diverted_to = f"{request.divert_to.rstrip('/')}/run={decider.now_ms}"
        rows.mapInArrow(decider.invalid, INVALID).write.parquet(report.diverted_to)
    target = WriteTarget(
        kafka=settings.kafka,
        group_id=settings.group_id,
        job=request.job,
        topic=request.topic.name,
        fingerprints=_fingerprints(report.survey),
        batch=request.batch,
        max_bytes=decider.max_bytes,
    )
    partitions = sorted(report.survey.partitions)
    placed = rows.mapInArrow(decider.in_place, SORTED).repartition(len(partitions), "partition")
    written = placed.sortWithinPartitions("partition", "digest").mapInArrow(Writing(target).run, WRITTEN)
    context = rows.sparkSession.sparkContext
    lines = partial(WritingLines, context, ledger=ledger, partitions=partitions, rows=report.survey.rows)
    with said(context, "schedule", lines, say):
        try:
            tasks = [WrittenRows(**row.asDict()) for row in written.collect()]
        except PySparkException as error:
            # The error of a task stands at the end of a page of traces.
            if refused := re.findall(r"JobError: (.+)", str(error)):
                raise JobError(refused[0]) from error
            raise
    _check_all_done(request.job, report.survey, tasks)
    report.written = sum(each.written for each in tasks)
    report.left_out = sum(each.left_out for each in tasks)
    report.before = sum(each.before for each in tasks)


def _check_all_done(job: str, survey: RowSurvey, tasks: Iterable[WrittenRows]) -> None:
    """Refuse partitions that were not done to their end: no task sees a partition whose rows have all vanished."""
    done = {each.partition: each.written + each.left_out + each.before for each in tasks}
    for partition, surveyed in sorted(survey.partitions.items()):
        if (rows := done.get(partition, 0)) != surveyed.rows:
            raise table_changed(job, partition, rows)
