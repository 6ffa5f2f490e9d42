"""Whether anything is traced: nothing of OpenTelemetry is loaded unless it is."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from index.errors import ConfigError
from sidecar.config.model import Config

if TYPE_CHECKING:
    from sidecar.tracing.releases import ReleaseTracing

NEEDED: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def started(config: Config) -> "ReleaseTracing | None":
    """What tells of releases, running; None when ``router.tracing`` is off. ConfigError where its extra is missing."""
    if not config.router.tracing:
        return None
    if not all(map(_is_there, NEEDED)):
        raise ConfigError("router.tracing needs the extra of that name: pip install 'kafka-delay-router[tracing]'")
    from sidecar.tracing.spans import exporting  # noqa: PLC0415 - it is an extra, and takes its time

    tracing = exporting()
    tracing.start()
    return tracing


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
