"""Tests that numbers in sentences of the documents are those of the code."""

import re
from typing import Final

import pytest

from index.buckets.bucket_rules import MOST_SEGMENTS
from index.protocol.readers import MAX_HOPS
from index.rules.unreadable import MAX_HEADERS
from sidecar.app import EXIT_WITHIN_S
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import RouterConfig
from sidecar.config.units import format_duration
from sidecar.engine.limits import LIMITS
from sidecar.engine.ownership.tail import HELD_UP_RECORDS
from sidecar.http.api.calls import MAX_UNDER_WAY
from sidecar.http.pace import ANYBODY
from sidecar.http.server import HEADERS_WITHIN_S, PLACES
from sidecar.kafka.reading.bad_batches import TRIES
from sidecar.logs.lines import MAX_BYTES
from sidecar.operations.finding.store import MOST_READ, READ_FOR_S
from sidecar.operations.sizing.capacity import (
    BROKER_TRANSACTIONS,
    PENDING_BYTES,
    Load,
    memory,
)
from sidecar.operations.sizing.clients import (
    CLIENTS_OF_PARTITION,
    LANES,
    LANES_FROM,
    READERS,
    SHARED_CONSUMERS,
    THREADS_OF_CLIENT,
    THREADS_OF_PARTITION,
    client_threads,
    clients,
    threads,
)
from sidecar.operations.sizing.memory import MIB, MOST_TIMES, PARTITION_BYTES, PROCESS_BYTES
from sidecar.operations.status.report_publisher import AT_LEAST_EVERY_S
from sidecar.operations.status.reports import STALE_MS
from sidecar.operations.status.searching import MOST_RECORDS, SEARCH_S
from sidecar.process.topic_watch import EVERY_S as TOPICS_EVERY_S
from sidecar.tracing.releases import EXAMINED_RECORDS
from tests.docs.capacity import CHART_FILE, PENDING, with_hundred_partitions
from tests.support.paths import ROOT

PAYLOAD_MIB: Final = RouterConfig.model_fields["payload_memory_bytes"].default // MIB
SEAL_BEYOND_MS: Final = DelayTopicConfig.model_fields["seal_beyond_ms"].default
HELD: Final = f"holds at most {LIMITS.held_records:,} records or {LIMITS.held_bytes // MIB} MiB"

CHART: Final = str(CHART_FILE.relative_to(ROOT))
ROOM: Final = f"up to {(2_048 * MIB - memory(Load(1, 1, 1, 1, 1), 0).total_bytes) // PARTITION_BYTES} partitions"
"""The partitions that the default memory limit of the chart has room for, without pending records."""

PARTS_OF_LIMIT: Final = (
    f"`config.router.payload_memory` ({PAYLOAD_MIB} MiB) + {PROCESS_BYTES // MIB} MiB"
    f" + {PARTITION_BYTES // MIB} MiB for each partition + {PENDING_BYTES} B for each pending record"
    f" + {MOST_TIMES:,} \N{MULTIPLICATION SIGN} `max.message.bytes`"
)

HUNDRED_PARTITIONS: Final = [with_hundred_partitions(each) for each in PENDING]

THREADS: Final = (
    f"{threads(2, 0, 1) - threads(1, 0, 1)} a partition with one broker, most of them asleep, and"
    f" {CLIENTS_OF_PARTITION} more for each further broker. In lanes (`router.lanes`) a partition has"
    f" {THREADS_OF_PARTITION}, for any number of brokers. Each client, a lane included, has {THREADS_OF_CLIENT},"
    " and 1 more for each broker."
)
OWN_CLIENTS: Final = clients(0, LANES) - LANES

SENTENCES: Final = [
    ("OPERATIONS.md", HELD),
    ("RUNBOOK.md", HELD),
    ("OPERATIONS.md", f"At {HELD_UP_RECORDS:,} offsets behind it"),
    ("OPERATIONS.md", f"gives its partitions up within {EXIT_WITHIN_S:.0f} s"),
    ("OPERATIONS.md", f"otherwise every {AT_LEAST_EVERY_S:.0f} s"),
    ("OPERATIONS.md", f"A partition without a report for {STALE_MS // 1_000} s is `unserved`"),
    ("OPERATIONS.md", f"It reads {MOST_RECORDS:,} records or {SEARCH_S:.0f} s at most"),
    ("OPERATIONS.md", f"One page reads {MOST_READ:,} records or {READ_FOR_S:.0f} s at most"),
    ("OPERATIONS.md", f"With `seal_beyond` ({format_duration(SEAL_BEYOND_MS)[:-1]} s)"),
    ("OPERATIONS.md", f"more than {MOST_SEGMENTS:,} segments"),
    ("OPERATIONS.md", f"`payload_memory` ({PAYLOAD_MIB} MiB), {PROCESS_BYTES // MIB} MiB"),
    ("OPERATIONS.md", f"{PARTITION_BYTES // MIB} MiB \N{MULTIPLICATION SIGN} partitions"),
    ("OPERATIONS.md", ROOM),
    (CHART, f"The default limit of 2 GiB has room for that with {ROOM}"),
    ("OPERATIONS.md", f"it says {HUNDRED_PARTITIONS[1]} with the largest fetch"),
    (CHART, PARTS_OF_LIMIT),
    (CHART, "1 M records need {}, 10 M {}, 100 M {} and 1 G {}".format(*HUNDRED_PARTITIONS)),
    ("OPERATIONS.md", f"at most {PLACES.connections} connections, {PLACES.of_one_client} of one client"),
    ("OPERATIONS.md", f"Headers have {HEADERS_WITHIN_S:.0f} s"),
    ("OPERATIONS.md", THREADS),
    ("OPERATIONS.md", f"A process has {threads(0, LANES, 0) - client_threads(clients(0, LANES), 0)} for itself"),
    ("OPERATIONS.md", f"and up to {OWN_CLIENTS} clients beside producers"),
    ("OPERATIONS.md", f"`plan` recommends {LANES} from {LANES_FROM} partitions in a process on"),
    ("OPERATIONS.md", f"With 30 brokers, 100 partitions in 8 lanes have up to {threads(100, 8, 30)} threads"),
    ("OPERATIONS.md", f"{client_threads(clients(100, 8), 30)} of {clients(100, 8)} clients"),
    ("OPERATIONS.md", f"In {LANES} lanes they have up to {threads(100, LANES, 30)}"),
    ("OPERATIONS.md", f"without lanes {threads(100, 0, 30):,}"),
    ("OPERATIONS.md", "takes some {:,} to {:,} transactions a second".format(*BROKER_TRANSACTIONS)),
    (
        "OPERATIONS.md",
        f"429 beyond {ANYBODY.per_s:.0f} requests a second and client, with bursts of {ANYBODY.burst:.0f}",
    ),
    ("API.md", f"has at most {MAX_UNDER_WAY} calls of a kind under way"),
    ("OPERATIONS.md", f"the first {EXAMINED_RECORDS:,} records of a transaction"),
    ("REFERENCE.md", f"for {LIMITS.drain_within_s:.0f} s at most; then the partition is not served"),
    ("REFERENCE.md", f"lines wait in memory ({MAX_BYTES // MIB} MiB)"),
    ("REFERENCE.md", f"rejected after {MAX_HOPS} routers in a row"),
    ("RUNBOOK.md", f"more than {MAX_HEADERS:,} headers"),
    ("RUNBOOK.md", f"check again every {TOPICS_EVERY_S:.0f} seconds"),
    ("RUNBOOK.md", f"has tried {['no', 'one', 'two', 'three'][TRIES]} times"),
]


@pytest.mark.parametrize(("document", "sentence"), SENTENCES)
def test_a_number_is_that_of_the_code(document: str, sentence: str) -> None:
    assert sentence in re.sub(r"\s+", " ", (ROOT / document).read_text(encoding="utf-8"))


def test_measured_processes_stay_below_the_formula_of_threads() -> None:
    """Compare with the table of BENCHMARKS, one broker: of the loaders' consumers only some were made."""
    text = (ROOT / "BENCHMARKS.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| p50 .*? ([\d,]+) threads \| (?:p50 .*? ([\d,]+) threads)?", text, re.MULTILINE)
    assert len(rows) == 4
    for partitions, *measured in rows:
        for lanes, found in zip((0, LANES), measured, strict=True):
            if found:
                most = threads(int(partitions), lanes, 1)
                assert most - client_threads(READERS + SHARED_CONSUMERS, 1) <= int(found.replace(",", "")) <= most
