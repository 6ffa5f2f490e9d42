"""Sets the stage for tests with a router: topics, a producer, records found again by position, and the audit.

    stage = Stage(kafka.bootstrap, tmp_path)
    out = stage.target()
    delay = stage.delay(default_target=out)
    with stage.router() as router:
        router.start_and_wait()
        place = stage.send(delay, ("deliver-after", b"500"), value=b"v")
        (record,) = stage.wait_records(out, 1)

Every name begins with a random word of the stage. Targets have append times, so the broker's time proves "early".

With ``TEST_LANES=1`` in the environment (``make faults LANES=1``) each router uses lanes, also in tests that have no
form of their own for lanes. A router with few partitions has no use for lanes. So each one gets partitions of a topic
without records, which share the lanes with the partitions of the test.
"""

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from index.errors import RefusedError
from index.pending.progress import start_of
from index.rules.rule_history import RuleHistory
from sidecar.config.model import Config
from sidecar.config.retry import RetryConfig
from sidecar.config.units import parse_duration_ms
from sidecar.dev.audit import AttemptRules, AuditedRecord, AuditReport, audit, ranges, read
from sidecar.kafka.client.admin import topic_id
from snapshots.state.inventory import NOTHING_STORED
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, encode_history, encode_progress
from tests.integration.router_process import RouterProcess
from tests.integration.uncommitted import written

Header = tuple[str, bytes | None]

APPEND_TIME: Final = {"message.timestamp.type": "LogAppendTime"}
CREATE_TIME: Final = {"message.timestamp.type": "CreateTime"}
TIMEOUT_S: Final = 60.0
"""Far more than any expected wait takes, also on a busy machine."""

ONE_SEAL: Final = 500
"""Records of one seal: each of a few records in a segment would bear too much of the cost of a read by pointer."""

LANES: Final = int(os.environ.get("TEST_LANES", "0"))
"""The number of lanes of routers for which a test names none."""

COMPANY: Final = 3
"""Partitions beside those of the test: enough for lanes in each of two routers."""


def now_ms() -> int:
    """Return the wall clock in ms, as the router reads it."""
    return time.time_ns() // 1_000_000


def header(record: AuditedRecord, name: str) -> bytes | None:
    """Return the last header of that name. Raise KeyError if there is none."""
    return dict(record.headers)[name]


def released_due_ms(record: AuditedRecord) -> int:
    """Return the due time of a released record; raise ValueError if its header is null."""
    return int(header(record, "delay-due") or b"")


def released_late_ms(record: AuditedRecord) -> int:
    """Return by how much a record was late in a target with append times."""
    return record.timestamp_ms - released_due_ms(record)


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Wait for a condition. Raise AssertionError, which names the missing event, after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.05)


def _attempts_of(options: Mapping[str, Any]) -> AttemptRules:
    """Return the retry of a delay topic as the audit takes it."""
    told = RetryConfig.model_validate(options["retry"])
    factor, jitter = Fraction(told.factor, 1_000), Fraction(told.jitter, 1_000)
    allowed = frozenset(options.get("allowed_targets", ()))
    return AttemptRules(told.first_ms, factor, told.max_ms, jitter, told.attempts, told.dead_letter, allowed)


class Stage:
    """The topics of one test and operations on them; ``directory`` takes the files of its routers."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.kafka = {"bootstrap.servers": bootstrap}
        self.bootstrap = bootstrap
        self.admin = AdminClient({**self.kafka})
        self.word = f"s{secrets.token_hex(4)}"
        self.group_id = f"{self.word}.group"
        self.delays: dict[str, dict[str, Any]] = {}
        self.targets: list[str] = []
        self._directory = directory
        self._routers: list[RouterProcess] = []
        self._producer = Producer(
            {**self.kafka, "linger.ms": 1, "partitioner": "murmur2_random", "message.max.bytes": 8_000_000}
        )

    def target(self, name: str = "out", partitions: int = 1, config: dict[str, str] | None = None) -> str:
        """Create a target topic, with append times unless ``config`` says otherwise."""
        target = f"{self.word}.{name}"
        self.create([NewTopic(target, partitions, 1, config={**APPEND_TIME, **(config or {})})])
        self.targets.append(target)
        return target

    def delay(
        self,
        name: str = "delay",
        partitions: int = 1,
        *,
        config: dict[str, str] | None = None,
        rejected_config: dict[str, str] | None = None,
        begun: bool = True,
        **options: Any,
    ) -> str:
        """Create a delay topic with its companion topics; ``options`` are its keys in the configuration.

        Without ``begun`` its state is empty, as if it was lost.
        """
        delay = f"{self.word}.{name}"
        compact = {"cleanup.policy": "compact"}
        self.create(
            [
                NewTopic(delay, partitions, 1, config={**APPEND_TIME, "retention.ms": "-1", **(config or {})}),
                NewTopic(f"{delay}.delay-state", partitions, 1, config=compact),
                NewTopic(f"{delay}.delay-snapshots", partitions, 1, config=compact),
                NewTopic(f"{delay}.rejected", 1, 1, config=rejected_config or {}),
                NewTopic(f"{delay}.receipts", partitions, 1, config={}),
            ]
        )
        self.delays[delay] = {"name": delay, **options}
        if begun:
            self._begin(delay, partitions)
        return delay

    def _begin(self, delay: str, partitions: int) -> None:
        """Write the beginning of each partition, as ``delay-router init`` does, but without fencing an owner."""
        config = Config.model_validate({"kafka": self.kafka, "delay_topics": [self.delays[delay]]})
        rules, first = config.rules_for(config.delay_topics[0]), start_of(0)
        state = {
            PROGRESS_KEY: encode_progress(first, self._topic_id(delay), NOTHING_STORED),
            RULES_KEY: encode_history(RuleHistory.beginning(first.cursor, rules)),
        }
        for partition in range(partitions):
            for key, value in state.items():
                self._producer.produce(f"{delay}.delay-state", value, key, partition)
        self.flush()

    def _topic_id(self, topic: str) -> str:
        """Return the id of a new topic. Retry, since a broker that does not know the topic yet may be asked first."""
        found: list[str] = []

        def is_known() -> bool:
            with suppress(RefusedError):
                found.append(topic_id(self.admin, topic))
            return bool(found)

        wait_until(is_known, f"the id of {topic}")
        return found[0]

    def create(self, topics: Sequence[NewTopic]) -> None:
        """Create topics and wait until the brokers know their leaders."""
        for future in self.admin.create_topics(list(topics)).values():
            future.result(TIMEOUT_S)
        wanted = {topic.topic: topic.num_partitions for topic in topics}
        wait_until(lambda: all(self._led(name) == count for name, count in wanted.items()), f"leaders of {wanted}")

    def alter(self, topic: str, config: Mapping[str, str]) -> None:
        """Set these settings of a topic; its leader may know them a little later."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        wanted = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        (future,) = self.admin.incremental_alter_configs([wanted]).values()
        future.result(TIMEOUT_S)

    def delete(self, *topics: str) -> None:
        """Delete topics and wait until the brokers have forgotten them."""
        for future in self.admin.delete_topics(list(topics)).values():
            future.result(TIMEOUT_S)
        wait_until(lambda: not any(self._led(name) for name in topics), f"end of {topics}")

    def end_open(self, delay: str, partition: int = 0) -> None:
        """End the transaction that a killed router may have left open, which would hide later records from readers."""
        successor = Producer({**self.kafka, "transactional.id": f"{self.group_id}.{delay}.{partition}"})
        successor.init_transactions(TIMEOUT_S)

    def router(self, name: str = "router", *, only: Sequence[str] = (), **options: Any) -> RouterProcess:
        """Return a router over all present delay topics, or ``only`` some; routers share a group.

        ``options`` are keys of ``[router]``.
        """
        topics = [topic for name, topic in self.delays.items() if not only or name in only]
        if LANES and "lanes" not in options:
            topics.append(self._company)
            options["lanes"] = LANES
        # With an instance id, a restart after a kill takes the partitions back at once; two of one group need their own
        # ids.
        options = {"group_id": self.group_id, "session_timeout": "3s", "instance_id": "one", **options}
        made = RouterProcess(self._directory / name, self.bootstrap, topics, **options)
        self._routers.append(made)
        return made

    @cached_property
    def _company(self) -> dict[str, Any]:
        """The delay topic without records, for routers that need several partitions to use lanes."""
        self.targets.remove(target := self.target("beside"))
        return self.delays.pop(self.delay("company", COMPANY, default_target=target))

    def print_logs(self) -> None:
        """Print the last lines of the routers' logs; pytest shows them with a failure."""
        for router in self._routers:
            # Messages of librdkafka about an outage would fill the page.
            own = [event for event in router.events() if event["event"] not in ("library_log", "check")]
            print(f"--- {router.log}", *own[-40:], *router.last_lines(5), sep="\n")

    def send(
        self,
        topic: str,
        *headers: Header,
        value: bytes | None = b"v",
        key: bytes | None = b"k",
        partition: int = 0,
        timestamp_ms: int = 0,
    ) -> str:
        """Write one record and return its place, ``topic/partition/offset``."""
        places: list[str] = []

        def delivered(error: KafkaError | None, sent: Message) -> None:
            assert error is None, error
            places.append(f"{sent.topic()}/{sent.partition()}/{sent.offset()}")

        self._producer.produce(topic, value, key, partition, delivered, None, timestamp_ms, list(headers))
        assert self._producer.flush(TIMEOUT_S) == 0
        return places[0]

    def post(self, topic: str, *headers: Header, value: bytes, key: bytes | None = b"k", partition: int = 0) -> None:
        """Write one record without waiting for it; see ``flush``."""
        self._producer.produce(topic, value, key, partition, headers=list(headers))
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait for all posted records."""
        assert self._producer.flush(TIMEOUT_S) == 0

    def send_many(self, topic: str, records: Sequence[Sequence[Header]], *, partition: int = 0) -> None:
        """Write records with these headers; their values count from 0, so all differ."""
        for number, headers in enumerate(records):
            self.post(topic, *headers, value=b"%d" % number, key=b"k%d" % (number % 7), partition=partition)
        self.flush()

    def records(self, topic: str) -> list[AuditedRecord]:
        """Return the committed records of a topic, by partition and offset."""
        found = read(self.kafka, ranges(self.kafka, [topic]))
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def wait_records(self, topic: str, count: int, timeout_s: float = TIMEOUT_S) -> list[AuditedRecord]:
        """Wait for that many committed records, and return all of them."""
        found: list[AuditedRecord] = []

        def enough() -> bool:
            found[:] = self.records(topic)
            return len(found) >= count

        wait_until(enough, f"{count} records in {topic}", timeout_s)
        return found

    def audit(self, delays: Sequence[str] = (), targets: Sequence[str] = ()) -> AuditReport:
        """Audit these topics, by default all of the stage: find the fate of every record sent."""
        defaults = {name: options.get("default_target", "") for name, options in self.delays.items()}
        delays_ms = {name: parse_duration_ms(options.get("delay", "0")) for name, options in self.delays.items()}
        delays = delays or list(self.delays)
        return audit(
            self.kafka,
            delay=delays,
            targets=targets or self.targets,
            rejected=[f"{delay}.rejected" for delay in delays],
            receipts=[f"{delay}.receipts" for delay in delays],
            default_targets=defaults,
            default_delays_ms=delays_ms,
            retries={name: _attempts_of(options) for name, options in self.delays.items() if "retry" in options},
        )

    def settle(
        self, delays: Sequence[str] = (), targets: Sequence[str] = (), *, timeout_s: float = 120.0
    ) -> AuditReport:
        """Wait until every record has left. Raise AssertionError if one is lost, doubled, early, altered or astray."""
        report = self.audit(delays, targets)
        deadline = time.monotonic() + timeout_s
        while (report.lost or report.pending) and time.monotonic() < deadline:
            time.sleep(0.2)
            report = self.audit(delays, targets)
        assert report.ok, "\n".join([report.summary(), json.dumps(report.samples, indent=1), *self._written(report)])
        assert report.pending == 0, report.summary()
        assert report.create_time == 0, report.summary()
        return report

    def _written(self, report: AuditReport) -> list[str]:
        """Return the places of lost records that only a reader of uncommitted records sees."""
        sources = [sample.partition(":")[0] for sample in report.samples.get("lost", ())]
        topics = [*self.targets, *(f"{delay}.rejected" for delay in self.delays)]
        return written(self.kafka, topics, sources) if sources else []

    def _led(self, topic: str) -> int:
        found = self.admin.list_topics(timeout=TIMEOUT_S).topics.get(topic)
        return 0 if found is None else sum(partition.leader >= 0 for partition in found.partitions.values())


class Load(threading.Thread):
    """Writes records with random delays at a steady rate until told to stop; the context ends with ``finish``."""

    def __init__(
        self,
        stage: Stage,
        topics: Sequence[str],
        rng: Random,
        *,
        partitions: int = 1,
        a_second: int = 300,
        delays_ms: tuple[int, int] = (0, 2_500),
    ) -> None:
        super().__init__(daemon=True)
        # Idempotent, so that the load itself writes no duplicates when a broker goes away.
        self._producer = Producer({**stage.kafka, "linger.ms": 1, "enable.idempotence": True})
        self._topics = topics
        self._rng = Random(rng.random())
        self._partitions = partitions
        self._a_second = a_second
        self._delays_ms = delays_ms
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Stop, and wait until the brokers have every record."""
        self._stopping.set()
        self.join(TIMEOUT_S)
        assert self._producer.flush(TIMEOUT_S) == 0

    def run(self) -> None:
        number = 0
        while not self._stopping.wait(0.02):
            for _ in range(max(1, self._a_second // 50)):
                number += 1
                self._write(number)
            self._producer.poll(0)

    def _write(self, number: int) -> None:
        rng = self._rng
        headers: list[Header] = [("n", b"%d" % number), ("n", None), ("e", b"")]
        match rng.randrange(4):
            case 0:
                headers.insert(0, ("deliver-at", b"%d" % (now_ms() + rng.randint(*self._delays_ms))))
            case 1 | 2:
                headers.append(("deliver-after", b"%d" % rng.randint(*self._delays_ms)))
            case _ if rng.random() < 0.2:
                headers.append(("deliver-after", b"soon"))  # to be rejected
        key = rng.choice([None, b"", b"%d" % rng.randrange(50)])
        value = rng.choice([None, b"", b"%d" % number, rng.randbytes(200)])
        topic, partition = rng.choice(self._topics), rng.randrange(self._partitions)
        self._producer.produce(topic, value, key, partition, headers=list(headers))
