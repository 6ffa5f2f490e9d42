"""A small bar chart for a terminal: how much is pending, by when it is due."""

from collections.abc import Sequence

LABELS = {
    "0": "overdue",
    "1": "1 s",
    "10": "10 s",
    "60": "1 min",
    "600": "10 min",
    "3600": "1 h",
    "21600": "6 h",
    "86400": "1 d",
    "604800": "7 d",
    "+Inf": "later",
}
"""Names of the ranges of ``delay_router_pending_by_due`` by their upper bound in seconds."""

BAR_WIDTH = 40
KIB = 1_024
_FOUR_DIGITS = 999.5
_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL = "█"


def pending_chart(by_due: Sequence[tuple[str, int]], width: int = BAR_WIDTH) -> list[str]:
    """One line for each range of due time, from (upper bound, records); the longest bar is ``width`` wide."""
    most = max((count for _, count in by_due), default=0)
    names = [LABELS.get(bound, f"{bound} s") for bound, _ in by_due]
    name_width = max((len(name) for name in names), default=0)
    count_width = len(f"{most:,}")
    return [
        f"{name:>{name_width}}  {count:>{count_width},}  {bar(count, most, width)}".rstrip()
        for name, (_, count) in zip(names, by_due, strict=True)
    ]


def bar(count: int, most: int, width: int) -> str:
    """A bar in proportion to ``most``, in eighths of a character; anything above zero can be seen."""
    if not count:
        return ""
    eighths = max(1, count * width * 8 // most)
    full, rest = divmod(eighths, 8)
    return _FULL * full + (_EIGHTHS[rest] if rest else "")


def format_bytes(size_bytes: int) -> str:
    """A size for people, to three digits: ``512 B``, ``1.46 MiB``."""
    size, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < _FOUR_DIGITS:
            break
        size, unit = size / KIB, larger
    return f"{size:.3g} {unit}"
