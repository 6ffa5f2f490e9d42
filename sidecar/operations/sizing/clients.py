"""Counts the Kafka clients of a process, their threads and their connections.

librdkafka runs a thread for each broker in each client, so lanes save most of the threads of many partitions::

    threads = partitions x 2  +  14  +  clients x (brokers + 3)
              worker, reader     own    a producer of each partition, or lanes, and 15

Most threads sleep. All numbers are upper bounds: a process makes the consumers of its loaders at their first use.
"""

from typing import Final

LANES: Final = 2
LANES_FROM: Final = 100
"""The lanes that a process needs, and the partitions from which on they pay (BENCHMARKS, 'Many partitions of few
records each'): p99 is higher with 10 partitions in two lanes, and lower with 100 and 300. More lanes change little."""

CLIENTS_OF_PARTITION: Final = 1
"""A producer. The admin client of a take-over ends with it, and the partitions of a process share their consumers."""

SHARED_CONSUMERS: Final = 2
"""Consumers of delay partitions in a process: partitions that were taken over again have another one than the rest."""

SINGLE_CLIENTS: Final = 5
"""The member of the group, the admin client, and the clients of policies, reports and staged buckets."""

READERS: Final = 8
"""Two consumers of each thread that loads, merges or looks for ids: for scattered and for large reads."""

THREADS_OF_CLIENT: Final = 3
"""The threads of a client beside one for each broker: its main thread, and those of two brokers that are only names."""

THREADS_OF_PARTITION: Final = 2
"""The worker and its reader."""

POOL_THREADS: Final = 6
SINGLE_THREADS: Final = 8
"""The threads of the loader pool; and the main thread, and one each for signals, log, HTTP, policies, reports, staged
buckets and topics."""


def recommended_lanes(partitions: int) -> int:
    """Return the number of lanes that a process with so many partitions should have, 0 for none.

    In a process that ``plan`` recommends, each of so many partitions has few records: at most 760 a second.
    """
    return LANES if partitions >= LANES_FROM else 0


def clients(partitions: int, lanes: int) -> int:
    """Return the number of clients of a process, beside those of take-overs."""
    producers = lanes or partitions * CLIENTS_OF_PARTITION
    return producers + SHARED_CONSUMERS + SINGLE_CLIENTS + READERS


def threads(partitions: int, lanes: int, brokers: int) -> int:
    """Return the number of threads of a process."""
    own = POOL_THREADS + SINGLE_THREADS
    return partitions * THREADS_OF_PARTITION + own + client_threads(clients(partitions, lanes), brokers)


def client_threads(count: int, brokers: int) -> int:
    """Return the number of threads of so many clients."""
    return count * (brokers + THREADS_OF_CLIENT)


def connections(partitions: int, lanes: int, brokers: int) -> int:
    """Return the number of connections of a process; each client has one more to its coordinator."""
    return clients(partitions, lanes) * (brokers + 1)
