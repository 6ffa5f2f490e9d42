"""Starts tracing if the configuration asks for it; only then it loads OpenTelemetry."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from index.errors import ConfigError
from sidecar.config.model import Config
from sidecar.extras import install_hint

if TYPE_CHECKING:
    from sidecar.tracing.releases import ReleaseTracing

NEEDED: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def started(config: Config) -> "ReleaseTracing | None":
    """Start and return the tracing of releases, or return None when ``router.tracing`` is off.

    Raise ConfigError when the extra ``tracing`` is not installed.
    """
    if not config.router.tracing:
        return None
    if not all(map(_is_there, NEEDED)):
        raise ConfigError(f"router.tracing needs OpenTelemetry: {install_hint('tracing', 'image EXTRAS=1')}")
    from sidecar.tracing.spans import exporting  # noqa: PLC0415 - it is an extra, and slow to import

    tracing = exporting()
    tracing.start()
    return tracing


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
