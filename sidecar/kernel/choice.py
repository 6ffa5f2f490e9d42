"""Whether a process runs with the kernel, and why not where it does not."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from confluent_kafka import Producer

from index.errors import ConfigError
from index.headers import StrippedNames
from index.names import hash_of
from index.record import Record
from index.rules import Rules
from index.schedule import KEEP_KEY, Schedule
from sidecar.kafka import librdkafka
from sidecar.kernel.common_form import CommonForm
from snapshots.codec import PYTHON_CODEC, SegmentCodec
from snapshots.rows import RowPacker

if TYPE_CHECKING:
    from sidecar.kernel import _deciding, _fetching, _release

SWITCH: Final = "DELAY_ROUTER_KERNEL"

REVISION: Final = 9
"""Of the compiled modules that this code calls: raised with each change of what one of them is given or gives."""

_FUNCTIONS: Final = ("rd_kafka_producev", "rd_kafka_headers_new", "rd_kafka_header_add", "rd_kafka_headers_destroy")
_READING: Final = (
    "rd_kafka_consume_batch_queue",
    "rd_kafka_message_timestamp",
    "rd_kafka_message_destroy",
    "rd_kafka_message_errstr",
)


def not_compiled(environ: Mapping[str, str]) -> str:
    """Why a process with this environment does not run what is compiled; empty where it can, whatever its client.

    ConfigError for a value of the switch that means nothing.
    """
    given = environ.get(SWITCH, "")
    if given == "off":
        return f"switched off by {SWITCH}=off"
    if given not in {"", "on"}:
        raise ConfigError(f"{SWITCH}={given}: write off or on")
    try:
        from sidecar.kernel import _columns, _deciding, _fetching, _release, _rows, _runs, _segments  # noqa: PLC0415
    except ImportError as error:
        return f"it is not compiled for this Python ({error}); see 'Limits' in OPERATIONS"
    for module in (_columns, _deciding, _fetching, _release, _rows, _runs, _segments):
        if module.REVISION != REVISION:
            return f"it was compiled from other sources (revision {module.REVISION}, not {REVISION})"
    return ""


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the hot paths of a process run with; ``why_not`` is empty where that is native code."""

    why_not: str

    @property
    def is_native(self) -> bool:
        """Whether it is native code."""
        return not self.why_not

    @property
    def name(self) -> str:
        """As metrics and status show it."""
        return "python" if self.why_not else "native"

    def writer(self, producer: Producer, stripped: StrippedNames, source: bytes) -> "_release.Writer | None":
        """What writes the released records of a partition; None where Python does."""
        if self.why_not or not isinstance(producer, Producer):
            return None
        from sidecar.kernel import _release  # noqa: PLC0415 -- it need not be there

        addresses = {name: librdkafka.address_of(name) for name in _FUNCTIONS}
        return _release.Writer(producer, librdkafka.CLIENT_HANDLE, addresses, stripped, KEEP_KEY, source)

    def reader(self, queue: librdkafka.PartitionQueue) -> "_fetching.Reader":
        """What takes the messages of a partition; only where the kernel is native."""
        assert not self.why_not, "there is no kernel to read with"
        from sidecar.kernel import _fetching  # noqa: PLC0415 -- it need not be there

        addresses = {name: librdkafka.address_of(name) for name in _READING}
        return _fetching.Reader(queue.address, addresses, librdkafka.RAW_HEADERS_AT)

    def decider(self, rules: Rules, packer: RowPacker, kinds: tuple[type, type]) -> "_deciding.Decider | None":
        """What decides records of the common form by these rules, as ``kinds``; None where Python decides all."""
        form = None if self.why_not else CommonForm.of(rules)
        if form is None:
            return None
        from sidecar.kernel import _deciding  # noqa: PLC0415 -- it need not be there

        return _deciding.Decider(form, packer, hash_of, (Record, Schedule, *kinds), KEEP_KEY)

    @property
    def codec(self) -> SegmentCodec:
        """What encodes and decodes segments."""
        if self.why_not:
            return PYTHON_CODEC
        from sidecar.kernel import segments  # noqa: PLC0415 -- what it needs need not be there

        return segments.NATIVE_CODEC

    @classmethod
    def chosen(cls, environ: Mapping[str, str]) -> Self:
        """As the environment says, and as it can be; ConfigError for a value of the switch that means nothing."""
        if why_not := not_compiled(environ):
            return cls(why_not)
        if not librdkafka.is_known():
            return cls(f"the layout of confluent-kafka {librdkafka.versions()[0]} is not known to it")
        return cls("")


PYTHON: Final = Kernel("it was not asked for")
"""For whoever does not release records by the million."""
