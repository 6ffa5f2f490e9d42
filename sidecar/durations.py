"""Formats durations for people: exactly, or roughly if only the magnitude matters.

:mod:`sidecar.config.units` formats durations in the notation of the configuration, which can be parsed again.
"""

from typing import Final

_UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_ROUGH_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000))


def spoken_duration(duration_ms: int) -> str:
    """Return the exact duration for people, with each unit that it has.

    >>> spoken_duration(1_209_610_000), spoken_duration(500), spoken_duration(0)
    ('14d 10s', '500ms', '0s')
    """
    parts, left_ms = [], duration_ms
    for unit, unit_ms in _UNITS_MS.items():
        count, left_ms = divmod(left_ms, unit_ms)
        parts += [f"{count}{unit}"] if count else []
    return " ".join(parts) or "0s"


def rough_duration(duration_ms: int) -> str:
    """Return the duration for people in one unit, rounded down: the largest of which it has two, else seconds.

    >>> rough_duration(9 * 60_000 + 12_000), rough_duration(90_000), rough_duration(600)
    ('9 min', '90 s', '0 s')
    """
    for unit, unit_ms in _ROUGH_UNITS:
        # Rounding down to a single unit would lose too much.
        if duration_ms >= 2 * unit_ms:
            return f"{duration_ms // unit_ms} {unit}"
    return f"{duration_ms // 1_000} s"
