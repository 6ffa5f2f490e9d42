"""Writes a record to a delay topic, unless the present rules reject it, and tells when and where the record goes.

The rules judge the record first, so the caller learns of a rejection that would otherwise show only in the rejected
topic.
"""

from index.errors import ConfigError
from index.protocol.schedule import AT_ONCE, Rejection, due_ms_of, schedule_of
from index.rules.rules import Rules
from sidecar import clock
from sidecar.kafka.writing.record_writer import RecordWriter
from sidecar.operations.controls.orders import NewRecord, Written


def write(writer: RecordWriter, rules: Rules, record: NewRecord) -> Written:
    """Write a record to the delay topic of the rules; raise ConfigError when they reject it.

    Raise KafkaException when the record was not written, and OutcomeUnknownError when that is unknown.
    """
    verdict = rules.decide(record.headers, clock.now_ms())
    if isinstance(verdict, Rejection):
        raise ConfigError(f"{verdict.reason}: {verdict.message}; nothing was written")
    written = writer.write(rules.topic, *record)
    # The due time counts from the timestamp of the written record, which the broker sets where the topic says so.
    decided = rules.decide(record.headers, written.timestamp_ms)
    due_ms = due_ms_of(verdict if isinstance(decided, Rejection) else decided)
    schedule = schedule_of(verdict)
    return Written(
        rules.topic,
        written.partition,
        written.offset,
        written.timestamp_ms if due_ms == AT_ONCE else due_ms,
        schedule.targets if schedule else (),
    )
