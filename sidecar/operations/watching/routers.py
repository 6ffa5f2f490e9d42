"""Shapes and makes the answer about each router of a group."""

from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import Field

from sidecar.operations.status.answers import Answer
from sidecar.operations.status.reports import Reported, Vitals

_UNTOLD: Final = Vitals("", "", None, None, None)


class RouterAnswer(Answer):
    """One router, by its last report; a field that a router of an older version does not report is empty or null."""

    instance: str
    version: str
    kernel: str = Field(description="native or python")
    host: str
    since_ms: int | None = Field(description="Start of the process; milliseconds since 1970")
    cpu_cores: float | None = Field(description="Cores in use, on average over the last ten seconds or so")
    memory_bytes: int | None = Field(description="Resident memory")
    pending: int = Field(description="Pending records of its partitions")
    partitions: dict[str, tuple[int, ...]] = Field(description="Its partitions, by delay topic")


class RoutersAnswer(Answer):
    """The routers of the group that have reported lately."""

    routers: tuple[RouterAnswer, ...]


def routers_answer(
    partitions: Iterable[Reported], kernels: Mapping[str, str], vitals: Mapping[str, Vitals]
) -> RoutersAnswer:
    """Return the routers that have a kernel told, by name, each with those of the partitions that it has reported."""
    held: dict[str, dict[str, list[int]]] = {name: {} for name in kernels}
    pending = dict.fromkeys(kernels, 0)
    for each in partitions:
        if each.instance in held:
            held[each.instance].setdefault(each.status.topic, []).append(each.status.partition)
            pending[each.instance] += each.status.pending
    return RoutersAnswer(
        routers=tuple(
            RouterAnswer(
                instance=name,
                kernel=kernels[name],
                pending=pending[name],
                partitions={topic: tuple(sorted(held[name][topic])) for topic in sorted(held[name])},
                **vitals.get(name, _UNTOLD).plain(),
            )
            for name in sorted(kernels)
        )
    )
