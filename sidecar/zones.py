"""Rules of time zones, from the package tzdata: routers with the same version of it know the same rules on any machine.

The rules are only asked when the next occurrence of a schedule is written, and the result is in that record. So a new
version of the rules holds from the next occurrence on, and never decides again a record that was written before.
"""

import re
from datetime import tzinfo
from functools import lru_cache
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,2}")
"""Matches names of zones, and no path to another place."""


@lru_cache(maxsize=1_024)
def zone_of(name: str) -> tzinfo:
    """Return the rules of a zone by its IANA name; raise ValueError when there is no such zone."""
    found = files("tzdata").joinpath("zoneinfo", *name.split("/")) if _NAME.fullmatch(name) else None
    try:
        if found is not None and found.is_file():
            with found.open("rb") as rules:
                return ZoneInfo.from_file(rules, name)
    except ValueError:
        # The file exists and is no zone.
        found = None
    raise ValueError("no such time zone; expected an IANA name such as Europe/Berlin or America/New_York")
