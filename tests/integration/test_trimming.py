"""Tests that snapshots and delay topic are trimmed up to the first needed record, and not one record further."""

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs

from sidecar.dev.audit import ranges, read
from sidecar.dev.local_kafka import Cluster
from sidecar.engine.limits import Limits
from tests.integration.command import Command, command_for
from tests.integration.one_worker import log_start, one_worker, remove_below, stored_manifests
from tests.integration.scenario import wait_until

SHORT = Limits(trim_every_s=0.3, look_every_s=0.3, count_every_s=0.3, load_lead_ms=1_000)
QUICK = 'seal_age = "300ms"\nseal_beyond = "0ms"\ntime_step = "1s"\nsegment_records = 50\ntrim = true\n'


class Scene:
    """A delay topic with one partition, and its released records."""

    def __init__(self, kafka: Cluster, unique_name: Callable[[str], str], folder: Path, placement: str) -> None:
        extra = f'placement = "{placement}"\n{QUICK}'
        self.command: Command = command_for(folder, kafka.bootstrap, unique_name, extra=extra)
        result = self.command("init", "--partitions", 1, "--create-targets")
        assert result.exit_code == 0, result.output
        self.topic = self.command.topic
        self._kafka: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap}

    def send(self, values_after_ms: dict[bytes, int]) -> None:
        """Write records that are due after these times."""
        producer = Producer(self._kafka)
        now_ms = time.time_ns() // 1_000_000
        for value, after_ms in values_after_ms.items():
            producer.produce(self.topic, value, headers=[("deliver-at", b"%d" % (now_ms + after_ms))])
        assert producer.flush(30) == 0

    def released(self) -> list[bytes]:
        """Return the values in the target topic."""
        settings = {"bootstrap.servers": str(self._kafka["bootstrap.servers"])}
        return sorted(record.value or b"" for record in read(settings, ranges(settings, [f"{self.topic}-target"])))

    def wait_released(self, *values: bytes) -> None:
        """Wait until exactly these values have been released."""
        wait_until(lambda: len(self.released()) >= len(values), f"{len(values)} released records")
        assert self.released() == sorted(values)


NEAR = {b"near-%03d" % number: 500 + 10 * number for number in range(200)}


def test_inline_buckets_need_nothing_of_the_delay_topic(
    kafka: Cluster, kafka_admin: AdminClient, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    scene = Scene(kafka, unique_name, tmp_path, "inline")
    snapshots = f"{scene.topic}.delay-snapshots"
    with one_worker(scene.command.config, SHORT) as worker:
        scene.send({b"far": 25_000, **NEAR})
        scene.wait_released(*NEAR)
        wait_until(lambda: log_start(kafka_admin, scene.topic) == 201, "the whole delay topic is trimmed")
        wait_until(lambda: log_start(kafka_admin, snapshots) > 0, "segments that have left are trimmed")
        wait_until(lambda: sum(worker.status.by_due) == 1, "the survey finds one record pending")
        assert worker.status.pending == 1
        assert worker.status.lateness[-1] > 0, "how late the others were is told"
        assert worker.status.needed_from is not None
        assert worker.status.needed_from >= 201
        wait_until(lambda: worker.status.needed_since_ms is None, "nothing in the delay topic is needed")
        assert worker.status.snapshot_bytes > 0
        assert worker.count("trim_failures") == 0
    live = [ref.record_offset for bucket in stored_manifests(scene.command.config) for ref in bucket.segments[-1:]]
    assert log_start(kafka_admin, snapshots) <= max(live), "the segment of the record still pending is there"
    with one_worker(scene.command.config, SHORT) as worker:
        scene.wait_released(b"far", *NEAR)
        assert worker.count("records_lost") == 0
        wait_until(lambda: log_start(kafka_admin, snapshots) > max(live), "nothing is live: all that was known is gone")


def test_pointers_hold_the_delay_topic(
    kafka: Cluster, kafka_admin: AdminClient, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    scene = Scene(kafka, unique_name, tmp_path, "pointer")
    with one_worker(scene.command.config, SHORT) as worker:
        scene.send({b"before": 1_000})
        scene.wait_released(b"before")
        sent_ms = time.time() * 1_000
        scene.send({b"far": 20_000, **NEAR})
        scene.wait_released(b"before", *NEAR)
        wait_until(lambda: log_start(kafka_admin, scene.topic) == 1, "what lies before the pointer is trimmed")
        time.sleep(1.5)  # five more trims
        assert log_start(kafka_admin, scene.topic) == 1
        assert worker.status.needed_from == 1
        assert worker.status.needed_since_ms is not None
        assert sent_ms - 1_000 < worker.status.needed_since_ms <= time.time() * 1_000
        scene.wait_released(b"before", b"far", *NEAR)
        wait_until(lambda: log_start(kafka_admin, scene.topic) >= 202, "after the release it is trimmed")
        assert worker.count("records_lost") == 0


def test_pointed_records_that_retention_removed_are_counted_as_lost_and_alarmed(
    kafka: Cluster, kafka_admin: AdminClient, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    scene = Scene(kafka, unique_name, tmp_path, "pointer")
    far = {b"far-%d" % number: 6_000 + number for number in range(20)}
    with capture_logs() as logs, one_worker(scene.command.config, SHORT) as worker:
        scene.send(far)
        wait_until(lambda: worker.status.sealed_to >= 20, "everything is sealed")
        remove_below(kafka_admin, scene.topic, 15)
        wait_until(lambda: worker.count("records_lost") == 15, "the lost ones are counted")
        scene.wait_released(*list(far)[15:])
        wait_until(lambda: worker.status.pending == 0, "nothing is pending")
    told = [line for line in logs if line["event"] == "records_lost"]
    assert sum(line["count"] for line in told) == 15
    assert (told[0]["first_offset"], told[-1]["last_offset"], told[0]["partition"]) == (0, 14, 0)
    assert [line["needed_from"] for line in logs if line["event"] == "needed_records_gone"] == [0]
