"""Measures the ceiling and the raw consume loop: the two figures that all ratios refer to."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from tests.bench import c_loop, child, workload
from tests.bench.context import Context
from tests.bench.results import Row

TRANSACTION_RECORDS: Final = 10_000
RUNS: Final = 3
TIMEOUT_S: Final = 180.0


class Settings(NamedTuple):
    """The settings of the copy loop."""

    linger_ms: int
    chunk: int


# The best of about twenty tried settings; none is the best in every run.
CANDIDATES: Final = (Settings(5, 1_000), Settings(20, 1_000), Settings(5, 5_000), Settings(0, 1_000))

IN_C: Final = CANDIDATES[:2]
"""The size of a read matters less in C, where reading costs little."""


def warm_up(context: Context) -> None:
    """Copy some records and ignore the time: a broker that has just been started is far slower at first."""
    with _source(context, count := context.sizes.loop_records // 2) as source:
        for settings in CANDIDATES:
            _copy(context, source, count, settings)


def ceiling(context: Context) -> Iterator[Row]:
    """Measure the transactional copy: the median of the best settings, bare and with the router's headers.

    The loop in Python is the ceiling for the ratios; the loop in C shows the share of Python in it.
    """
    count = context.sizes.loop_records
    with _source(context, count) as source, _c_library(context) as library:
        rates: dict[Settings, list[float]] = {settings: [] for settings in CANDIDATES}
        with_headers: dict[Settings, list[float]] = {settings: [] for settings in CANDIDATES}
        in_c: dict[bool, dict[Settings, list[float]]] = {each: {s: [] for s in IN_C} for each in (False, True)}
        # Settings take turns, so that a disturbance of some seconds does not decide between them.
        for _ in range(RUNS):
            for settings in CANDIDATES:
                rates[settings].append(_copy(context, source, count, settings))
                with_headers[settings].append(_copy(context, source, count, settings, as_released=True))
            for settings in IN_C if library else ():
                for as_released, found in in_c.items():
                    rate = _copy(context, source, count, settings, as_released=as_released, library=library)
                    found[settings].append(rate)
    best = max(rates, key=lambda settings: median(rates[settings]))
    context.ceiling_per_s = median(rates[best])
    tried = ", ".join(f"linger {s.linger_ms} chunk {s.chunk}: {median(r) / 1000:.0f}" for s, r in rates.items())
    yield Row(
        "ceiling",
        "transactional consume→produce, 10 k a transaction",
        context.ceiling_per_s,
        "records/s",
        1.0,
        "ceiling",
        detail=f"linger.ms {best.linger_ms}, consume({best.chunk}); best {max(rates[best]) / 1000:.0f} k/s; "
        f"medians of all in k/s: {tried}",
    )
    yield _beside(context, "the same, with the three headers of a released record", with_headers)
    if library:
        yield _beside(context, "the bare loop in C, with the same librdkafka", in_c[False])
        yield _beside(context, "the loop in C, with the three headers", in_c[True])


def _beside(context: Context, name: str, rates: dict[Settings, list[float]]) -> Row:
    """Return the row of another loop, compared with the ceiling, by its best settings."""
    rate = max(map(median, rates.values()))
    return Row("ceiling", name, rate, "records/s", context.of_ceiling(rate), "ceiling")


@contextmanager
def _c_library(context: Context) -> Iterator[Path | None]:
    """Yield the loop in C until the end of the block, or None, with a message, if it cannot be compiled."""
    with tempfile.TemporaryDirectory(prefix="delay-router-bench-") as directory:
        library = None
        try:
            library = c_loop.compiled(Path(directory))
        except (OSError, subprocess.CalledProcessError) as error:
            context.say(f"without the loop in C: {error}")
        yield library


def raw_consume(context: Context) -> Iterator[Row]:
    """Measure consume + headers(): the median of three runs."""
    count = context.sizes.loop_records
    arguments = {"bootstrap": context.bootstrap, "count": count, "loop": "consume"}
    with _source(context, count) as source:
        rates = [
            float(child.run("tests.bench.loops", TIMEOUT_S, source=source, **arguments)["rate"]) for _ in range(RUNS)
        ]
    context.consume_per_s = median(rates)
    yield Row(
        "consume",
        "raw consume + headers()",
        context.consume_per_s,
        "records/s",
        context.consume_per_s / context.ceiling_per_s if context.ceiling_per_s else None,
        "ceiling" if context.ceiling_per_s else "",
        detail=f"best {max(rates) / 1000:.0f} k/s",
    )


@contextmanager
def _source(context: Context, count: int) -> Iterator[str]:
    topic = workload.name("source")
    workload.create(context.bootstrap, topic)
    now_ms = workload.now_ms()
    workload.fill(context.bootstrap, topic, count, lambda number: workload.headers(now_ms + number, topic))
    yield topic
    workload.delete(context.bootstrap, [topic])


def _copy(
    context: Context,
    source: str,
    count: int,
    settings: Settings,
    *,
    as_released: bool = False,
    library: Path | None = None,
) -> float:
    """Run the loop once, in C if there is a library. Return the rate in records per second."""
    target = workload.name("copy")
    # The broker stamps the append time, as for the router's target.
    workload.create(context.bootstrap, target, workload.APPEND_TIME)
    loop = {"library": str(library)} if library else {"loop": "copy"}
    result = child.run(
        "tests.bench.c_loop" if library else "tests.bench.loops",
        TIMEOUT_S,
        **loop,
        bootstrap=context.bootstrap,
        source=source,
        target=target,
        count=count,
        transaction_records=TRANSACTION_RECORDS,
        linger_ms=settings.linger_ms,
        chunk=settings.chunk,
        as_released=as_released,
    )
    workload.delete(context.bootstrap, [target])
    return float(result["rate"])
