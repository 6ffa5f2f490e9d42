"""Runs the router: makes and connects all parts, top to bottom, and stops them in reverse order.

Threads: the main thread is the group member. There is one worker per assigned partition, and one thread each for
policies, reports, HTTP, writing the log, and waiting for signals. The admin API adds one thread, and a few for its
calls to the cluster. Tracing adds one thread, and one that sends spans.

SIGTERM and SIGINT end the loop of the group member; workers then finish or abandon their transactions within one
deadline. The end of the process does not wait for threads (``cli.program.main``). A part that hangs in a client by then
is left behind: the next owner fences its open transaction, or the transaction times out.
"""

import os
import signal
import threading
import time
from collections import deque
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event

import structlog

from index.errors import DelayRouterError
from sidecar import __version__, failpoints
from sidecar.clock import SystemClock
from sidecar.config.model import Config
from sidecar.engine.context import NO_TRACING
from sidecar.engine.limits import LIMITS
from sidecar.engine.release.rates import RateLimits
from sidecar.http import probes
from sidecar.kafka.client import admin as cluster
from sidecar.kafka.client import clients
from sidecar.kafka.client.group_view import view_group
from sidecar.kafka.client.membership import GroupMember, MembershipError
from sidecar.kafka.doubts.look import Looks
from sidecar.kafka.reading.handed_over import UNSEEN
from sidecar.kafka.reading.tail_clients import TailClients
from sidecar.kafka.writing.lanes import Lanes
from sidecar.kafka.writing.target_directory import TargetDirectory
from sidecar.kernel.choice import Kernel
from sidecar.kernel.librdkafka import check_client
from sidecar.logs import events
from sidecar.logs.lines import LineWriter
from sidecar.metrics import DroppedLines, Metrics
from sidecar.operations.sizing.container_memory import limit_bytes
from sidecar.operations.status import report_publisher
from sidecar.operations.watching.vitals import VitalsProbe
from sidecar.policies import watch as policy_watch
from sidecar.process.garbage import GarbageCollection
from sidecar.process.health import ProcessHealth
from sidecar.process.heap import HeapTrim, glibc_trim
from sidecar.process.host.budget import PayloadBudget
from sidecar.process.host.pool import LoaderPool
from sidecar.process.host.shared import Shared
from sidecar.process.host.staging import Staging
from sidecar.process.instance_name import take_name
from sidecar.process.ownerless import Ownerless
from sidecar.process.partition_collector import PartitionCollector, TopicCollector
from sidecar.process.router_processes import RouterProcesses, command_of, settings_of
from sidecar.process.served_topics import UsableTopics
from sidecar.process.topic_watch import TopicWatch
from sidecar.process.workers import Assignment, Workers
from sidecar.tracing.start import started
from snapshots.libraries import check_libraries

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
EXIT_WITHIN_S = 27.0
"""Longest time from SIGTERM or SIGINT to the end of the process."""

_FAILURES = 100
"""Most errors of connections that are kept to tell why no broker answers."""


def run(config: Config) -> int:
    """Run until SIGTERM or SIGINT, and return the exit code."""
    failpoints.arm(os.environ)
    check_libraries()
    check_client()
    kernel = Kernel.chosen(os.environ)
    with events.in_background(config.router.log_level) as lines:
        return _run(config, lines, kernel)


def run_several(config: Config, config_file: Path | None, count: int) -> int:
    """Run ``count`` routers in processes of their own until SIGTERM or SIGINT, and return the exit code."""
    stops: list[int] = []
    for number in STOP_SIGNALS:
        # A handler may interrupt the main thread anywhere, so it takes no lock.
        signal.signal(number, lambda number, _: stops.append(number))
    environments = [{**os.environ, **settings} for settings in settings_of(config, count)]
    return RouterProcesses(command_of(config_file), environments).run(lambda: bool(stops))


def _run(config: Config, lines: LineWriter, kernel: Kernel) -> int:
    stopping = _stopping_on_signals(lines)
    workers, is_told = Workers(), True
    try:
        # The parts stop at the end, in the reverse order of their start.
        with ExitStack() as running:
            return _serve(config, lines, kernel, stopping, workers, running)
    except DelayRouterError:
        # The process ends with this reason. A line above it that the router has stopped would look like the reason.
        is_told = False
        raise
    finally:
        if is_told:
            structlog.get_logger().info("stopped", every_worker_finished=workers.is_idle)


def _serve(
    config: Config, lines: LineWriter, kernel: Kernel, stopping: Event, workers: Workers, running: ExitStack
) -> int:
    """Start one part after the other, stay a member of the group until ``stopping``, and return the exit code."""
    failures: deque[str] = deque(maxlen=_FAILURES)
    admin, clock = cluster.connect(config, lambda failure: failures.append(failure.str())), SystemClock()
    vitals = VitalsProbe(clock)
    metrics, budget = Metrics(kernel.name, limit_bytes() or 0), PayloadBudget(config.router.payload_memory_bytes)
    health = ProcessHealth(metrics.registry, workers.statuses)
    metrics.registry.register(PartitionCollector(workers.statuses, lambda: budget.used_bytes))
    metrics.registry.register(DroppedLines(lambda: lines.dropped))
    server = probes.serve(config.http.listen, health)
    running.callback(server.stop)
    structlog.get_logger().info(
        "router_started",
        version=__version__,
        topics=[topic.name for topic in config.delay_topics],
        group=config.router.group_id,
        brokers=config.bootstrap,
        listen=config.http.listen,
    )
    structlog.get_logger().info(
        "kernel_chosen", kernel=kernel.name, why=kernel.why_not, unseen="" if kernel.is_native else UNSEEN
    )
    tracing = started(config)
    if tracing is not None:
        running.callback(tracing.stop)
    policies = policy_watch.watch(config, admin, metrics.registry)
    running.callback(policies.stop)
    if config.admin.is_on:
        # A router without the API needs neither its memory nor its time.
        from sidecar.http.api import server as admin_api  # noqa: PLC0415

        running.callback(admin_api.start(config, admin, policies, workers.statuses, kernel.name).stop)
    publish = partial(report_publisher.publish, config, admin, workers.statuses, kernel.name, stopping.is_set)
    running.callback(publish(vitals.take))
    staging = Staging(lambda: clients.staging_reader(config), clock)
    running.callback(staging.stop)
    pool = LoaderPool(
        lambda: clients.reader(config), lambda: clients.bulk_reader(config), partial(cluster.uncommitted_end, admin)
    )
    running.callback(pool.stop)
    usable = UsableTopics(config, admin, health, failures)
    metrics.registry.register(TopicCollector(usable.partitions))
    topics = usable.wait(stopping)
    if stopping.is_set():
        return 0
    if not topics:
        return 1
    topics_doubted = threading.Event()
    # The member is made last, because it starts the workers that ask it.
    ownerless = Ownerless(
        partial(view_group, admin, config.router.group_id),
        usable.partitions,
        lambda member_id: member.join_anew(member_id),  # noqa: PLW0108
        topics_doubted,
        clock,
    )
    watch = TopicWatch(usable, workers, policies.learn, ownerless.look, topics_doubted)
    running.callback(watch.stop)
    shared = Shared(
        config=config,
        admin=admin,
        directory=TargetDirectory(admin, clock.running_s),
        budget=budget,
        metrics=metrics,
        pool=pool,
        staging=staging,
        policies=policies,
        still_ours=lambda topic, partition: member.still_ours(topic, partition),  # noqa: PLW0108
        clock=clock,
        rates=RateLimits(clock.running_s, threading.Lock()),
        limits=LIMITS,
        tails=TailClients(lambda limits: clients.tail(config, *limits)),
        looks={each.name: Looks() for each in config.delay_topics},
        lanes=Lanes(config.router.group_id, config.router.lanes, partial(clients.producer, config), clock),
        kernel=kernel,
        tracing=tracing or NO_TRACING,
        topics_doubted=topics_doubted,
    )
    garbage = GarbageCollection(lambda: budget.used_bytes)
    heap = HeapTrim(lambda: budget.used_bytes, lambda: pool.is_merging, lambda: workers.served, glibc_trim())
    assignment = Assignment(workers, shared, usable, health, garbage, heap)
    instance_id, leaves = _instance_id(config)
    member = GroupMember(
        lambda on_commit, on_error: clients.group_member(config, topics, on_commit, on_error, instance_id),
        config.router.group_id,
        assignment,
        clock,
        leaves=leaves,
    )
    running.callback(workers.stop)
    watch.start()
    try:
        member.run(topics, stopping)
    except MembershipError as error:
        structlog.get_logger().error("membership_failed", error=str(error))
        return 1
    finally:
        # After any end the last report says where the partitions stood.
        stopping.set()
    return 0


def _instance_id(config: Config) -> tuple[str, bool]:
    """Return the static name in the group, and whether to leave the group at an orderly end.

    A configured name is kept, so that a restart gets its partitions back. A member without a name always leaves.
    """
    if config.router.instance_id:
        return config.router.instance_id, False
    # The system releases the name at any end of the process.
    place = take_name(config.router.group_id)
    if place is None:
        structlog.get_logger().info(
            "membership_without_name",
            why="no lock file could be had in the directory for temporary files",
            remedy="set router.instance_id, so that a restart after a crash need not wait for router.session_timeout",
        )
        return "", True
    structlog.get_logger().info("membership_named", instance_id=place.name)
    return place.name, True


def _stopping_on_signals(lines: LineWriter) -> Event:
    """Return an event that the first stop signal sets, in a thread of its own.

    A signal handler would interrupt the main thread at any point, which may hold the lock that the handler needs, and
    each further signal would run the handler once more inside itself.
    """
    stopping = Event()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda _number, _frame: None)

    def stop() -> None:
        os.read(reader, 1)
        stopping.set()
        # A part may hang by then, for example in a client whose brokers are silent; the process must end within 30 s.
        time.sleep(EXIT_WITHIN_S)
        # Do not flush the streams of the interpreter: a thread that hangs in one holds its lock.
        lines.drain(events.DRAIN_S)
        os._exit(0)

    threading.Thread(target=stop, name="signals", daemon=True).start()
    return stopping
