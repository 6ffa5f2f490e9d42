"""Says whether the compiled modules of the kernel are there, fit this code, and are switched on."""

from collections.abc import Mapping
from typing import Final

from index.errors import ConfigError

SWITCH: Final = "DELAY_ROUTER_KERNEL"

REVISION: Final = 13
"""Revision of the compiled modules that this code calls, raised with each change of their arguments or results."""


def not_compiled(environ: Mapping[str, str]) -> str:
    """Return why a process with this environment cannot run the compiled modules; empty if it can.

    Whether librdkafka takes its plugin is not considered. Raise ConfigError for an unknown value of the switch.
    """
    given = environ.get(SWITCH, "")
    if given == "off":
        return f"switched off by {SWITCH}=off"
    if given not in {"", "on"}:
        raise ConfigError(f"{SWITCH}={given}: write off or on")
    try:
        from sidecar.kernel import _columns, _deciding, _fetching, _release, _rows, _runs, _segments  # noqa: PLC0415
    except ImportError as error:
        return f"it is not compiled for this Python ({error}); see 'Limits' in REFERENCE"
    for module in (_columns, _deciding, _fetching, _release, _rows, _runs, _segments):
        if module.REVISION != REVISION:
            return f"it was compiled from other sources (revision {module.REVISION}, not {REVISION})"
    return ""
