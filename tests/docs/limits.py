"""Lists the fixed limits of a router for users, each with its value from the code."""

from typing import Final

from index.buckets.bucket_rules import MOST_SEGMENTS
from index.protocol.headers import MAX_TOPIC_CHARS
from index.protocol.occurrences import COUNTED_AT_MOST
from index.protocol.readers import MAX_HOPS, MAX_ID_BYTES
from index.protocol.recurring import MAX_TEXT_BYTES
from index.protocol.times import INT64_MAX
from index.rules.retrying import MAX_ATTEMPTS
from index.rules.rules_stored import MIN_PERIOD_MS
from index.rules.spreading import MAX_SPREAD_MS
from index.rules.unreadable import MAX_HEADERS
from sidecar.app import EXIT_WITHIN_S
from sidecar.config.units import MAX_DURATION_MS, format_duration, format_size
from sidecar.config.value_types import MAX_REASON_CHARACTERS
from sidecar.engine.limits import LIMITS as OF_PARTITION
from sidecar.engine.ownership.tail import HELD_UP_RECORDS
from sidecar.http.api.calls import MAX_UNDER_WAY
from sidecar.http.guard import MAX_BODY_BYTES
from sidecar.http.pace import ANYBODY, KNOWN, UNKNOWN, Rate
from sidecar.http.server import ANSWERED_WITHIN_S, HEADERS_WITHIN_S, MAX_HEADER_BYTES, PLACES
from sidecar.http.tokens import MAX_TOKENS, MIN_TOKEN_CHARACTERS
from sidecar.logs.events import DRAIN_S, MAX_TEXT_CHARACTERS
from sidecar.logs.lines import MAX_BYTES as LOG_BYTES
from sidecar.operations.finding.store import MOST_READ, READ_FOR_S
from sidecar.operations.rejected.selection import MOST_REDRIVEN
from sidecar.operations.status.reports import STALE_MS
from sidecar.operations.status.searching import MOST_RECORDS, SEARCH_S
from sidecar.policies.policy import MAX_POLICY_BYTES
from sidecar.process.topic_watch import EVERY_S as TOPICS_EVERY_S
from sidecar.tracing.releases import EXAMINED_RECORDS, WAITING_RELEASES


def _rate(rate: Rate) -> str:
    return f"{rate.per_s:,.0f} a second, {rate.burst:,.0f} at once"


LIMITS: Final = [
    ("digits of a number in a header", str(len(str(INT64_MAX))), "`INVALID_SCHEDULE`"),
    ("`deliver-id`", f"{MAX_ID_BYTES} bytes", "`INVALID_SCHEDULE`"),
    ("cron fields, and the name of a time zone", f"{MAX_TEXT_BYTES} bytes", "`INVALID_SCHEDULE`"),
    ("shortest period of a recurring schedule", f"`{format_duration(MIN_PERIOD_MS)}`, or `min_period`",
     "`INVALID_SCHEDULE`"),
    ("missed occurrences by cron that are counted", f"{COUNTED_AT_MOST:,}", "the others are not counted"),
    ("headers of a record", f"{MAX_HEADERS:,}", "`UNREADABLE`"),
    ("routers in a row that a record without a time passes", str(MAX_HOPS), "rejected: a loop"),
    ("attempts of a record", f"{MAX_ATTEMPTS:,}", "`INVALID_SCHEDULE`"),
    ("name of a topic", f"{MAX_TOPIC_CHARS} characters", "no target"),
    ("`spread`", f"`{format_duration(MAX_SPREAD_MS)}`", "refused"),
    ("a duration of the configuration or a policy", f"`{format_duration(MAX_DURATION_MS)}`", "refused"),
    ("`paused_reason`", f"{MAX_REASON_CHARACTERS} characters", "refused"),
    ("a policy", format_size(MAX_POLICY_BYTES), "refused"),
    ("held records of a partition", f"{OF_PARTITION.held_records:,}, or {format_size(OF_PARTITION.held_bytes)}",
     "the partition waits as a whole"),
    ("offsets that a paused partition reads behind a record that came late", f"{HELD_UP_RECORDS:,}",
     "intake waits until the pause ends"),
    ("segments of a merged bucket", f"{MOST_SEGMENTS:,}", "the buckets are not merged"),
    ("time before its due time at which a segment is read", f"`{format_duration(OF_PARTITION.load_lead_ms)}`", ""),
    ("pause after a failed seal or merge", f"{OF_PARTITION.bucket_again_s:.0f} s", ""),
    ("time between two checks of the served topics", f"{TOPICS_EVERY_S:.0f} s", ""),
    ("time of an orderly end", f"{EXIT_WITHIN_S:.0f} s", "the next owner takes over as after a crash"),
    ("age of a report in the status topic", f"{STALE_MS // 1_000} s", "the partition is `unserved`"),
    ("records that `lookup` reads", f"{MOST_RECORDS:,}, or {SEARCH_S:.0f} s", "the answer is `unknown`"),
    ("records that one page of `schedules` reads", f"{MOST_READ:,}, or {READ_FOR_S:.0f} s", "the next page goes on"),
    ("times that `redrive` takes a record by default", str(MOST_REDRIVEN), "the record stays (`--max-redriven`)"),
    ("connections of a listener", f"{PLACES.connections}, {PLACES.of_one_client} of one client",
     "the oldest idle one is closed"),
    ("headers of an HTTP request", f"{format_size(MAX_HEADER_BYTES)}, within {HEADERS_WITHIN_S:.0f} s", "closed"),
    ("an HTTP request", f"{ANSWERED_WITHIN_S:.0f} s", "closed"),
    ("body of an API request", format_size(MAX_BODY_BYTES), "413"),
    ("calls of one kind that an API has under way", str(MAX_UNDER_WAY), "503"),
    ("requests of one client for metrics", _rate(ANYBODY), "429"),
    ("requests of one token", _rate(KNOWN), "429"),
    ("requests without a known token, all together", _rate(UNKNOWN), "429"),
    ("tokens in `token_file`", f"{MAX_TOKENS:,}, each of {MIN_TOKEN_CHARACTERS} characters or more", "refused"),
    ("text in a log line", f"{MAX_TEXT_CHARACTERS:,} characters", "cut"),
    ("log lines that wait for a reader", format_size(LOG_BYTES), "dropped and counted"),
    ("wait for the reader of the log at the end", f"{DRAIN_S:.0f} s", "lines are lost"),
    ("records of a transaction that may get a span", f"{EXAMINED_RECORDS:,}", "no span"),
    ("releases that wait for their spans", f"{WAITING_RELEASES:,}", "no spans; `traces_dropped`"),
]  # fmt: skip
"""Rows of the table: what is limited, the limit, and what happens beyond it."""
