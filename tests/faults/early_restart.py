"""Shows that Kafka tears transactions when a killed broker comes back before the controller has fenced it.

``python -m tests.faults.early_restart --pause 0`` kills one of three brokers after the other with SIGKILL, together
with a process that only has transactional producers, and starts the broker again after a pause. No router takes part.
Each transaction writes four records to ``out`` and its number to ``state``; the process reads the last number from
``state`` when it begins. After every fifth kill all records are read, and torn transactions are listed.

The logs of such a transaction tell the cause (Kafka 4.3.1, ``BrokerServer.startup``)::

    EndTxn ──► the coordinator appends PREPARE_COMMIT to its log, and is killed before a follower has it
           ──► it starts again. Its metadata still name it as the leader of that log: it loads the metadata before it
               registers, and the controller refuses it until its old session has ended
           ──► it finds PREPARE_COMMIT in its log, and sends COMMIT markers to the partitions of other brokers
           ──► the controller fences it. The next coordinator has no PREPARE_COMMIT: ABORT for all partitions

Partitions that got the first marker show the records, the others have lost them. With ``--pause 8``, longer than the
session of 6 s, the controller has chosen another coordinator before the broker reads its log.
"""

import argparse
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka.admin import AdminClient

from sidecar.dev import local_kafka
from sidecar.dev.audit import ranges, read
from sidecar.kafka.client.connections import RenewableProducer
from sidecar.logs import events
from tests.support.topics import create_topic

IDS: Final = 16
PARTITIONS: Final = 9
RECORDS: Final = 4
"""Records of a transaction, each in another partition."""

OUT: Final = "out"
STATE: Final = "state"
TIMEOUT_S: Final = 60.0
SETTLED_S: Final = 25.0
"""Longer than the timeout of a transaction: every open transaction has ended by then."""


def main() -> int:
    """Run the kills, or the process that is killed; return 1 if a transaction was torn."""
    parser = argparse.ArgumentParser(description="kill brokers, and look for transactions that are committed in part")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds until a killed broker is started again")
    parser.add_argument("--produce", metavar="SERVERS", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.produce:
        for number in range(IDS):
            threading.Thread(target=_produce, args=(given.produce, number), daemon=True).start()
        signal.pause()
    return _kill(given.kills, given.pause)


def _kill(kills: int, pause_s: float) -> int:
    choose = random.SystemRandom()
    with local_kafka.cluster(3, own_nodes=True) as cluster:
        admin, config = AdminClient({"bootstrap.servers": cluster.bootstrap}), {"min.insync.replicas": "2"}
        create_topic(admin, OUT, partitions=PARTITIONS, replication=3, config=config)
        create_topic(admin, STATE, partitions=IDS, replication=3, config=config)
        last = None
        for count in range(1, kills + 1):
            with _producing(cluster.bootstrap):
                time.sleep(choose.uniform(8, 16))
                node = last = choose.choice([each for each in cluster.nodes if each is not last])
                node.kill()
            time.sleep(pause_s)
            node.start()
            cluster.wait_ready()
            if count % 5 == 0 or count == kills:
                time.sleep(SETTLED_S)
                torn, whole = _compare(cluster.bootstrap)
                print(f"{count} kills, {whole} transactions, torn: {torn or 'none'}", flush=True)
                if torn:
                    return 1
    return 0


@contextmanager
def _producing(servers: str) -> Iterator[None]:
    """Run the process that produces, and kill it at the end."""
    process = subprocess.Popen([sys.executable, "-m", "tests.faults.early_restart", "--produce", servers])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _compare(servers: str) -> tuple[list[str], int]:
    """Return the torn transactions, and the number of all."""
    released = Counter(value for _, value in _committed(servers, OUT))
    noted = Counter(f"{number} {value}" for number, value in _committed(servers, STATE))
    torn = [
        f"{each}: {released[each]} of {RECORDS} records, {noted[each]} in the state"
        for each in released | noted
        if (released[each], noted[each]) != (RECORDS, 1)
    ]
    return torn, len(noted)


def _produce(servers: str, number: int) -> None:
    """Write transactions of one id, as a router does: begin anew after each error."""
    choose = random.SystemRandom()
    settings = {
        "bootstrap.servers": servers,
        "transactional.id": f"id-{number}",
        "transaction.timeout.ms": 20_000,
        "linger.ms": 0,
    }
    while True:
        try:
            producer = RenewableProducer(settings, events.librdkafka_logger())
            producer.init_transactions(TIMEOUT_S)
            transaction = max((int(value) for _, value in _committed(servers, STATE, number)), default=0)
            while True:
                transaction += 1
                producer.begin_transaction()
                for partition in choose.sample(range(PARTITIONS), RECORDS):
                    producer.produce(OUT, f"{number} {transaction}".encode(), partition=partition)
                producer.produce(STATE, b"%d" % transaction, b"progress", number)
                producer.commit_transaction(TIMEOUT_S)
                time.sleep(choose.uniform(0, 0.15))
        except Exception:  # noqa: BLE001 - a producer of this process ends with the process
            time.sleep(0.2)


def _committed(servers: str, topic: str, number: int | None = None) -> Iterator[tuple[int, str]]:
    """Yield partition and value of each committed record, of one partition or of all."""
    kafka = {"bootstrap.servers": servers, "log_level": "0"}
    within = {place: each for place, each in ranges(kafka, [topic]).items() if number in (None, place[1])}
    for record in read(kafka, within):
        yield record.partition, (record.value or b"").decode()


if __name__ == "__main__":
    sys.exit(main())
