"""A Kafka for the demo, the tests and the benchmarks, on any machine that has a cluster, Docker or Java.

    with local_kafka.cluster() as kafka:
        AdminClient({"bootstrap.servers": kafka.bootstrap})

The first of these ways that is possible gives the broker:

1. ``KAFKA_BOOTSTRAP_SERVERS`` is set: that cluster is used as it is. Nothing is started or removed, and ``nodes`` is
   empty.
2. A Docker engine answers and testcontainers is installed (extra ``local``): one node runs in a container.
3. Java 17 and Maven are installed: Maven resolves the Kafka jars once into a cache
   (:mod:`~sidecar.dev.local_kafka.maven`), and one or three KRaft nodes run as child processes in a temporary
   directory. They answer after a few seconds.
4. Otherwise :class:`KafkaUnavailable` is raised, with one line that says how to get a broker.

``KAFKA_VERSION`` chooses the version for ways 2 and 3, as in ``KAFKA_VERSION=3.9.1``.

``own_nodes=True`` skips ways 1 and 2, for callers that kill, pause and restart brokers (:class:`Node`). A cluster of
three nodes never runs in a container.

Directory and processes are removed at the end of the ``with`` block, and also when the process that opened it dies
(:mod:`~sidecar.dev.local_kafka.reaper`). The logs stay, and their place is printed, when an exception leaves the block
or ``keep_logs`` was set.

Begin with :mod:`sidecar.dev.local_kafka.choose`.
"""

from sidecar.dev.local_kafka.choose import SERVERS_VARIABLE, check_available, cluster
from sidecar.dev.local_kafka.errors import KafkaUnavailable
from sidecar.dev.local_kafka.maven import kafka_version
from sidecar.dev.local_kafka.node import Node
from sidecar.dev.local_kafka.own import Cluster
from sidecar.dev.local_kafka.settings import BENCH_JVM, TEST_JVM, Address, PerNode, free_port, is_free

__all__ = [
    "BENCH_JVM",
    "SERVERS_VARIABLE",
    "TEST_JVM",
    "Address",
    "Cluster",
    "KafkaUnavailable",
    "Node",
    "PerNode",
    "check_available",
    "cluster",
    "free_port",
    "is_free",
    "kafka_version",
]
