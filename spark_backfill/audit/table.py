"""The counts of an audit and the way they are shown; this module needs no Spark."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rich.table import Table

FOREIGN: Final = "foreign"

OUTCOMES: Final = (
    "released",
    "rejected",
    "pending",
    "doubled",
    "lost",
    "cancelled",
    "replaced",
    "moved",
    "answered",
    "unprovable",
    "unread",
)
"""Outcomes of a sent record, which has exactly one of them."""

ASIDE: Final = ("early", "altered", "astray", "untimed", "illegible")
"""Remarks on a record, in addition to its outcome."""

VIOLATIONS: Final = ("lost", "doubled", "early", "altered", "astray", FOREIGN)
"""Findings that a router must never cause; the audit fails with the first."""

COUNTS: Final = ("sent", *OUTCOMES, *ASIDE, FOREIGN)

GROUPS: Final = {"topic": ("topic",), "partition": ("topic", "partition"), "hour": ("topic", "partition", "hour_ms")}
"""Keys by which a summary may be grouped."""

SAMPLES: Final = 20
"""Findings shown one by one."""

LATE_STEPS: Final = 9
"""Lateness is counted in 2**9 steps for each doubling: exact below 1,024 ms, then within 0.2 %."""

PERCENTILES: Final = {"late_p50_ms": 0.5, "late_p99_ms": 0.99}
LATENESS: Final = (*PERCENTILES, "late_max_ms")

NOTES: Final = {
    "lost": "due for longer than the grace period when looked for, and nowhere; a router that is down or behind makes"
    " such records too, until it has caught up; or a move whose schedule has no record",
    "doubled": "more than once in a topic, in a topic too many, both released and rejected, or one of these although a"
    " receipt names it; or named in, or answered by, more than one receipt",
    "early": "appended to a target before the due time",
    "altered": "key, value or headers differ from the sent record; or a receipt tells something else than the topics",
    "astray": "in a topic the record did not ask for",
    FOREIGN: "copies whose origin is not in the delay topic",
    "answered": "controls that are no schedules, each with its receipt",
    "unprovable": "nowhere, but the topics no longer reach back so far (retention, compaction), or a query"
    " whose receipt does not prove it may have cancelled them: no verdict",
    "unread": "to be released to a topic that was left out; name it with --target",
    "untimed": "in a topic without message.timestamp.type=LogAppendTime: neither early nor late can be judged",
    "illegible": "released, although its schedule cannot be read here; is an alias missing in the configuration?",
}

_ALWAYS_SHOWN: Final = frozenset({"sent", "released", "rejected", "pending", "lost", "doubled", "early", "altered"})


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of a group of records, which ``keys`` name; ``lateness`` has no values where nothing was timed."""

    keys: tuple[tuple[str, str | int | None], ...]
    counts: Mapping[str, int]
    lateness: Mapping[str, int | None]

    @property
    def violations(self) -> int:
        """Number of findings that a correct router never causes."""
        return sum(self.counts[name] for name in VIOLATIONS)

    def as_json(self) -> dict[str, Any]:
        """Return a flat object: keys, counts, lateness."""
        return {**dict(self.keys), **self.counts, **self.lateness}


NO_RECORDS: Final = Tally((), dict.fromkeys(COUNTS, 0), dict.fromkeys(LATENESS))


def tally(row: Mapping[str, Any], keys: Sequence[str]) -> Tally:
    """Build a tally from a row of a summary."""
    return Tally(
        tuple((key, row[key]) for key in keys),
        {name: int(row[name] or 0) for name in COUNTS},
        {name: None if row[name] is None else int(row[name]) for name in LATENESS},
    )


def table(tallies: Sequence[Tally], total: Tally) -> Table:
    """Show counts line by line, the total last; columns of zeros are left out, except the usual ones."""
    counts = [name for name in COUNTS if name in _ALWAYS_SHOWN or total.counts[name]]
    keys = [name for name, _ in tallies[0].keys] if tallies else []
    shown = Table(show_footer=False, pad_edge=False, header_style="bold")
    for name in keys:
        shown.add_column(name)
    for name in counts:
        shown.add_column(name, justify="right", style="red" if name in VIOLATIONS and total.counts[name] else None)
    for heading in ("late p50", "p99", "max"):
        shown.add_column(heading, justify="right")
    for each in tallies:
        shown.add_row(*(_key(name, value) for name, value in each.keys), *_cells(each, counts))
    if keys:
        shown.add_section()
        shown.add_row("total", *[""] * (len(keys) - 1), *_cells(total, counts), style="bold")
    else:
        shown.add_row(*_cells(total, counts), style="bold")
    return shown


def notes(total: Tally) -> list[str]:
    """Return a line that explains each unusual count."""
    return [f"{name} {total.counts[name]:,}: {text}" for name, text in NOTES.items() if total.counts[name]]


def verdict(total: Tally) -> str:
    """Sum up the audit in one line."""
    if total.violations:
        found = ", ".join(f"{name} {total.counts[name]:,}" for name in VIOLATIONS if total.counts[name])
        return f"VIOLATIONS: {found}"
    if total.counts["unprovable"] or total.counts["unread"]:
        open_ = total.counts["unprovable"] + total.counts["unread"]
        return f"no violation found; no verdict on {open_:,} of {total.counts['sent']:,} records"
    return f"no violation: {total.counts['sent']:,} records sent, each accounted for once"


def _cells(each: Tally, counts: Iterable[str]) -> list[str]:
    late = ("" if value is None else f"{value:,} ms" for value in each.lateness.values())
    return [*(f"{each.counts[name]:,}" for name in counts), *late]


def _key(name: str, value: str | int | None) -> str:
    if value is None:
        return "-"
    return f"{datetime.fromtimestamp(int(value) / 1000, UTC):%Y-%m-%d %H}h" if name == "hour_ms" else str(value)
