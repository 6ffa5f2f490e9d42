"""The rules of time zones, from the package tzdata: routers with one version of it know the same, on any machine.

They are only asked when the next occurrence of a schedule is written, and what comes of it is in that record. So a new
version of the rules holds from the next occurrence on, and nothing that was written before is decided anew by it.
"""

import re
from datetime import tzinfo
from functools import lru_cache
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,2}")
"""Nothing that would be a path to somewhere else."""


@lru_cache(maxsize=1_024)
def zone_of(name: str) -> tzinfo:
    """The rules of a zone by its IANA name; ValueError when there is no such zone."""
    found = files("tzdata").joinpath("zoneinfo", *name.split("/")) if _NAME.fullmatch(name) else None
    try:
        if found is not None and found.is_file():
            with found.open("rb") as rules:
                return ZoneInfo.from_file(rules, name)
    except ValueError:
        # A file that is there and no zone.
        found = None
    raise ValueError("no such time zone; expected an IANA name such as Europe/Berlin or America/New_York")
