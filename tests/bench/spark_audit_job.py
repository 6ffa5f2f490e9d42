"""Runs one ``audit`` in a separate process, with a session of two cores, and times the session's start separately."""

import sys
import time
from pathlib import Path
from typing import Any

from spark_backfill import session
from spark_backfill.audit.job import audit, pin
from spark_backfill.audit.scope import AuditRequest
from spark_backfill.audit.table import GROUPS
from spark_backfill.settings import load
from spark_backfill.source import connector_options
from tests.bench import child
from tests.bench.spark_job import CONF


def main() -> None:
    """Run the audit, and answer with its duration from pinning the logs to the counts by hour."""
    given: dict[str, Any] = child.arguments()
    settings = load(Path(given["config"]), {})
    began_s = time.monotonic()
    spark = session.start("bench", CONF, _say)
    started_s = time.monotonic()
    pinned = pin(settings, AuditRequest(settings.delay_topics, grace_ms=0))
    with audit(spark, settings, connector_options(settings.kafka), pinned, _say) as audited:
        total = audited.total()
        hours = audited.by(GROUPS["hour"])
    elapsed_s = time.monotonic() - started_s
    spark.stop()
    assert sum(each.counts["sent"] for each in hours) == total.counts["sent"]
    child.answer(elapsed_s=elapsed_s, start_s=started_s - began_s, counts=dict(total.counts))


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
