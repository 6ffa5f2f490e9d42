"""The parts that the workers of a process share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event, Lock

from confluent_kafka.admin import AdminClient

from sidecar.clock import Clock
from sidecar.config.model import Config
from sidecar.engine.context import NO_TRACING, Tracing
from sidecar.engine.limits import Limits
from sidecar.engine.release.rates import RateLimits
from sidecar.kafka.doubts.look import Looks
from sidecar.kafka.reading.tail_clients import TailClients
from sidecar.kafka.writing.lanes import Lanes
from sidecar.kafka.writing.target_directory import TargetDirectory
from sidecar.kernel.choice import PYTHON, Kernel
from sidecar.metrics import Metrics
from sidecar.policies.table import WITHOUT_POLICIES, Policies
from sidecar.process.host.budget import PayloadBudget
from sidecar.process.host.pool import LoaderPool
from sidecar.process.host.staging import Staging


@dataclass(frozen=True, slots=True)
class Shared:
    """The parts that the workers of a process share; any thread may use each of them.

    ``still_ours`` asks the group whether this process is still assigned a partition. A worker sets ``topics_doubted``
    after brokers have refused a request: the watch of topics then looks at once for a missing right or topic. An
    assignment sets it, too: the watch then looks for partitions without an owner. ``looks`` are by delay topic.
    """

    config: Config
    admin: AdminClient
    directory: TargetDirectory
    budget: PayloadBudget
    metrics: Metrics
    pool: LoaderPool
    staging: Staging
    still_ours: Callable[[str, int], bool]
    clock: Clock
    rates: RateLimits
    limits: Limits
    lanes: Lanes
    tails: TailClients
    looks: Mapping[str, Looks]
    policies: Policies = WITHOUT_POLICIES
    kernel: Kernel = PYTHON
    tracing: Tracing = NO_TRACING
    topics_doubted: Event = field(default_factory=Event)
    turnstile: Lock = field(default_factory=Lock)
