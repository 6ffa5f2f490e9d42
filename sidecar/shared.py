"""What the workers of a process have in common."""

from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient

from sidecar.budget import PayloadBudget
from sidecar.config import Config
from sidecar.loading import LoaderPool
from sidecar.metrics import Metrics
from sidecar.policies import WITHOUT_POLICIES, Policies
from sidecar.rates import RateLimits
from sidecar.staging import Staging
from sidecar.targets import TargetDirectory


@dataclass(frozen=True, slots=True)
class Shared:
    """Each part is safe to use from any thread.

    ``still_ours`` asks the group whether this process is still assigned a partition, ``now_ns`` is the wall clock.
    """

    config: Config
    admin: AdminClient
    directory: TargetDirectory
    budget: PayloadBudget
    metrics: Metrics
    pool: LoaderPool
    staging: Staging
    still_ours: Callable[[str, int], bool]
    now_ns: Callable[[], int]
    policies: Policies = WITHOUT_POLICIES
    limits: RateLimits = field(default_factory=RateLimits)

    def now_ms(self) -> int:
        """The wall clock."""
        return self.now_ns() // 1_000_000
