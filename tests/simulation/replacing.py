"""What a wrong router is: names of the shipped code, each replaced by an override with one thing wrong."""

from collections.abc import Mapping
from typing import ClassVar

OWNED = "sidecar.partition.owned_partition."
"""Where an owned partition is put together."""


class Wrong:
    """A mistake that looks reasonable while it is made; caught from outside, not by assertions of what it overrides."""

    replaces: ClassVar[Mapping[str, object]]
