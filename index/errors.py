"""The one tree of errors; every package adds its branch here or below it.

::

    DelayRouterError
    ├── ConfigError            configuration or usage: exit code 2
    ├── FormatError            bytes that cannot be trusted (snapshots)
    │   └── StateLostError     the stored bytes can be trusted, but some are gone
    ├── RefusedError           a partition that must not start, with the way out (sidecar)
    ├── NotYetError            a partition that cannot start now and will by itself (sidecar)
    ├── ClusterError           a request to the cluster failed (sidecar)
    └── ConnectionLostError    a producer that must begin no further transaction (sidecar)
"""

from enum import Enum


class DelayRouterError(Exception):
    """Root of every error this project raises on purpose."""


class ConfigError(DelayRouterError):
    """Configuration or usage that cannot be accepted; the message names the key, the place and the remedy."""


class FormatError(DelayRouterError):
    """Stored bytes that are damaged, of an unknown version or over a size limit; nothing is guessed from them."""


class StateLostError(FormatError):
    """Part of the state of a partition is gone; the remainder must not be used."""


class RefusedError(DelayRouterError):
    """A partition that must not start; the message says why and how to go on."""


class NotYetError(DelayRouterError):
    """A partition that cannot start yet; the obstacle ends by itself."""


class ClusterTrouble(Enum):
    """The cause of a failed request to the cluster, as far as a decision depends on it."""

    UNANSWERED = "no broker has said anything, so brokers may be away"
    UNREADABLE = "a batch of records that the client can never read"
    OTHER = "anything else"


class ClusterError(DelayRouterError):
    """A failed request to the cluster.

    ``code`` is Kafka's name of the error, ``verdict`` its meaning for a producer, and ``remedy`` the way out for an
    operator; each may be empty.
    """

    def __init__(self, kind: ClusterTrouble, text: str, *, code: str = "", verdict: str = "", remedy: str = "") -> None:
        super().__init__(text)
        self.kind = kind
        self.code = code
        self.verdict = verdict
        self.remedy = remedy


class ConnectionLostError(DelayRouterError):
    """The producer must begin no further transaction: take the partition over again, however the last one ended.

    ``committed_s`` is the running time (``Clock.running_s``) of the last commit that succeeded, -infinity if none has.
    """

    def __init__(self, why: str, committed_s: float) -> None:
        super().__init__(why)
        self.committed_s = committed_s


def forget_frames(error: BaseException) -> None:
    """Let go of the frames that an error and its causes have passed, and so of the objects in their variables.

    An error that is stored to be raised later, as in a future, and the frames that it has passed refer to each other.
    Garbage collection is off most of the time, so such objects would stay.
    """
    passed: BaseException | None = error
    while passed is not None:
        passed.__traceback__ = None
        passed = passed.__cause__ or passed.__context__


def changed_on_disk(place: str, why: str) -> str:
    """Describe a batch that fails its checksum on every read, and the first remedy; ``place`` is TOPIC/PARTITION."""
    return (
        f"{place} has a batch that cannot be read ({why}): its bytes have changed on the disk of the broker"
        " that leads the partition. Let another replica lead it: its copy may be sound"
    )
