"""The running router: everything is made and connected here, top to bottom, and taken down in reverse.

Threads: the main one is the group member, one worker per assigned partition, one for policies, one for reports, one for
HTTP, and where the admin API is on, one for that and a few for its calls to the cluster. SIGTERM and SIGINT end the
group member's loop; workers then finish or abandon their transactions within one deadline. Whatever hangs in a client
by then is left behind: an open transaction is settled by whoever fences it, or by its timeout.
"""

import os
import signal
import sys
import threading
import time

import structlog

from sidecar import admin as cluster
from sidecar import clients, failpoints, http, policy_watch, report_publisher
from sidecar.admin_api import AdminApi
from sidecar.budget import PayloadBudget
from sidecar.config import Config
from sidecar.garbage import GarbageCollection
from sidecar.group import GroupMember, MembershipError
from sidecar.health import ProcessHealth
from sidecar.loading import LoaderPool
from sidecar.metrics import Metrics
from sidecar.partition_status import PartitionCollector
from sidecar.shared import Shared
from sidecar.staging import Staging
from sidecar.targets import TargetDirectory
from sidecar.usable import UsableTopics
from sidecar.workers import Assignment, Workers

SWITCH_THREADS_S = 0.001
"""How long a thread that only computes (deciding, encoding, merging) may hold up one that has something to release.
Python's default is five times that, and a transaction meets it several times."""

EXIT_WITHIN_S = 27.0
"""From SIGTERM or SIGINT to the end of the process at the latest."""


def run(config: Config) -> int:
    """Run until SIGTERM or SIGINT; the exit code."""
    failpoints.arm(os.environ)
    sys.setswitchinterval(SWITCH_THREADS_S)
    stopping = _stopping_on_signals()
    admin = cluster.connect(config)
    metrics, budget, workers = Metrics(), PayloadBudget(config.router.payload_memory_bytes), Workers()
    health = ProcessHealth(metrics.registry, workers.statuses)
    metrics.registry.register(PartitionCollector(workers.statuses, lambda: budget.used_bytes))
    pool = LoaderPool(lambda: clients.reader(config), lambda: clients.bulk_reader(config))
    staging = Staging(lambda: clients.staging_reader(config))
    server = http.serve(config.http.listen, health)
    policies, stop_policies = policy_watch.watch(config, admin, metrics.registry)
    stop_reports = report_publisher.publish(config, admin, workers.statuses)
    api = AdminApi()
    try:
        api.start(config, admin, policies, workers.statuses)
        usable = UsableTopics(config, admin, health)
        topics = usable.wait(stopping)
        if stopping.is_set():
            return 0
        if not topics:
            return 1
        shared = Shared(
            config=config,
            admin=admin,
            directory=TargetDirectory(admin, time.monotonic),
            budget=budget,
            metrics=metrics,
            pool=pool,
            staging=staging,
            # The member is made last, since it starts the workers that ask it.
            policies=policies,
            still_ours=lambda topic, partition: member.still_ours(topic, partition),  # noqa: PLW0108
            now_ns=time.time_ns,
        )
        assignment = Assignment(workers, shared, usable, health, GarbageCollection(lambda: budget.used_bytes))
        member = GroupMember(
            lambda on_commit: clients.group_member(config, topics, on_commit), config.router.group_id, assignment
        )
        member.run(topics, stopping)
    except MembershipError as error:
        structlog.get_logger().error("membership_failed", error=str(error))
        return 1
    else:
        return 0
    finally:
        finished = workers.stop_all()
        pool.stop()
        stop_reports()
        stop_policies()
        staging.stop()
        server.stop()
        api.stop()
        structlog.get_logger().info("stopped", every_worker_finished=finished)
        if not finished or not pool.is_idle or not api.is_idle:
            # A client that hangs in a call would keep the interpreter from exiting.
            _exit_now()


def _stopping_on_signals() -> threading.Event:
    stopping = threading.Event()

    def stop(_number: int, _frame: object) -> None:
        if not stopping.is_set():
            # Whatever hangs by then, in a client whose brokers are silent for example: the contract says 30 s.
            deadline = threading.Timer(EXIT_WITHIN_S, _exit_now)
            deadline.daemon = True
            deadline.start()
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    return stopping


def _exit_now() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
