"""Compares the memory limit of the container that ``check`` runs in with the memory that a router may take.

A client unpacks all batches of a fetch together. A batch that unpacks to far more than its size in the log (a
compression bomb) kills a process whose limit has no room for it, and again at each restart.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from sidecar.cluster.topics.findings import Finding, error, ok
from sidecar.cluster.topics.retention import DEFAULT_MAX_MESSAGE_BYTES
from sidecar.config.librdkafka_keys import most_unpacked_bytes
from sidecar.config.model import Config
from sidecar.kafka.client.admin import Described, TopicFacts
from sidecar.kafka.client.commands import alter_command
from sidecar.operations.sizing.memory import ANY_CODEC, MIB, MOST_TIMES, UNPACKED_TIMES, own_bytes, unpacked_bytes

LEAST_BATCH_BYTES: Final = 16_384
"""Default batch size of producers; a smaller limit for batches is no remedy."""

NO_LIMIT_BYTES: Final = 1 << 60
"""Limits from this value on mean no limit: version 1 of cgroups has no other sign for it."""

_ROOTS: Final = (
    ("/sys/fs/cgroup", "memory.max"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
)


def limit_bytes(proc: Path = Path("/proc/self/cgroup"), roots: Iterable[tuple[str, str]] = _ROOTS) -> int | None:
    """Return the lowest memory limit of the groups that this process belongs to, None without any."""
    inside = [""]
    with suppress(OSError):
        inside += [line.split(":", 2)[2] for line in proc.read_text().splitlines() if line.count(":") > 1]
    limits = []
    for root, name in roots:
        for group in inside:
            with suppress(OSError, ValueError):
                limits.append(int((Path(root) / group.lstrip("/") / name).read_text()))
    return min((limit for limit in limits if limit < NO_LIMIT_BYTES), default=None)


def finding(config: Config, answers: Mapping[str, Described], limit: int | None) -> Finding | None:
    """Compare a limit with the payload memory and the largest fetch of a delay topic; None where there is no limit."""
    facts = [each for topic in config.delay_topics if isinstance(each := answers.get(topic.name), TopicFacts)]
    if limit is None or not facts:
        return None
    own = own_bytes(config.router.payload_memory_bytes, sum(each.partitions for each in facts))
    largest = max(facts, key=lambda each: fetch_bytes(config, each))
    unpacked = fetch_bytes(config, largest)
    thing = "memory limit"
    needed = own + unpacked
    if needed <= limit:
        return ok(thing, f"{_mib(limit)}; a router takes {_mib(needed)} at most")
    batch_bytes, codec = _batch_bytes(largest), _codec(largest)
    return error(
        thing,
        f"{_mib(limit)}, but a router may take {_mib(needed)}: {_mib(own)} with payload_memory, and {_mib(unpacked)}"
        f" for a fetch of {largest.name} that unpacks to as much as its codec allows (max.message.bytes={batch_bytes},"
        f" compression.type={codec}); it would be killed, at each start again",
        "; or ".join(_remedies(config, largest, needed, limit - own)),
    )


def _remedies(config: Config, largest: TopicFacts, needed: int, room: int) -> Iterator[str]:
    yield f"raise the limit to {_mib(needed)} (chart: resources.limits.memory)"
    yield "lower router.payload_memory"
    fitting = room // UNPACKED_TIMES.get(_codec(largest), MOST_TIMES)
    if fitting >= LEAST_BATCH_BYTES:
        fewer = alter_command(config.bootstrap, largest.name, {"max.message.bytes": str(fitting)})
        yield f"let only smaller batches in: {fewer}"


def fetch_bytes(config: Config, facts: TopicFacts) -> int:
    """Return the most bytes that the client unpacks a fetch of this topic to."""
    return unpacked_bytes(_batch_bytes(facts), _codec(facts), most_unpacked_bytes(config.kafka))


def _batch_bytes(facts: TopicFacts) -> int:
    return facts.number("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)


def _codec(facts: TopicFacts) -> str:
    return (facts.settings or {}).get("compression.type", ANY_CODEC)


def _mib(size_bytes: int) -> str:
    return f"{-(-size_bytes // MIB):,} MiB"
