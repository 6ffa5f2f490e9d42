"""Chooses between the kernel and Python for a process, and gives the reason if the kernel cannot run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from confluent_kafka import Producer

from index.named.names import hash_of
from index.protocol.headers import RETRY, StrippedNames
from index.protocol.record import Record
from index.protocol.schedule import KEEP_KEY, Schedule
from index.rules.rules import Rules
from sidecar.kernel import librdkafka
from sidecar.kernel.common_form import CommonForm
from sidecar.kernel.compiled import not_compiled
from snapshots.segments.codec import PYTHON_CODEC, SegmentCodec
from snapshots.segments.rows import RowPacker

if TYPE_CHECKING:
    from sidecar.kernel import _deciding, _fetching, _release

_FUNCTIONS: Final = ("rd_kafka_producev", "rd_kafka_headers_new", "rd_kafka_header_add", "rd_kafka_headers_destroy")


@dataclass(frozen=True, slots=True)
class Kernel:
    """The implementation of the hot paths of a process; ``why_not`` is empty if it is native code."""

    why_not: str

    @property
    def is_native(self) -> bool:
        """Says that the implementation is native code."""
        return not self.why_not

    @property
    def name(self) -> str:
        """Name in metrics and status."""
        return "python" if self.why_not else "native"

    def writer(self, producer: Producer, stripped: StrippedNames, source: bytes) -> "_release.Writer | None":
        """Make the native writer of the released records of a partition; return None if Python writes them."""
        watch = None if self.why_not else librdkafka.watch_of(producer)
        if watch is None:
            return None
        from sidecar.kernel import _release  # noqa: PLC0415 -- it may not be compiled

        counted = stripped.and_also(RETRY)
        return _release.Writer(watch, librdkafka.addresses_of(_FUNCTIONS), stripped, counted, KEEP_KEY, source)

    def reader(self, queue: librdkafka.PartitionQueue) -> "_fetching.Reader":
        """Make the native reader of a partition; the kernel must be native."""
        assert not self.why_not, "there is no kernel to read with"
        from sidecar.kernel import _fetching  # noqa: PLC0415 -- it may not be compiled

        return _fetching.Reader(queue.address, librdkafka.addresses_of(librdkafka.READING), librdkafka.memory_file())

    def decider(self, rules: Rules, packer: RowPacker, kinds: tuple[type, type]) -> "_deciding.Decider | None":
        """Make the native decider of records of the common form by these rules; return None if Python decides all.

        ``kinds`` are the types of the payload that it makes.
        """
        form = None if self.why_not else CommonForm.of(rules)
        if form is None:
            return None
        from sidecar.kernel import _deciding  # noqa: PLC0415 -- it may not be compiled

        return _deciding.Decider(form, packer, hash_of, (Record, Schedule, *kinds), KEEP_KEY)

    @property
    def codec(self) -> SegmentCodec:
        """Codec of segments, native or in Python."""
        if self.why_not:
            return PYTHON_CODEC
        from sidecar.kernel import segments  # noqa: PLC0415 -- its modules may not be compiled

        return segments.NATIVE_CODEC

    @classmethod
    def chosen(cls, environ: Mapping[str, str]) -> Self:
        """Choose by the environment and by librdkafka; raise ConfigError for an unknown value of the switch."""
        if why_not := not_compiled(environ):
            return cls(why_not)
        if not librdkafka.plugin():
            return cls("this librdkafka takes no plugin; see 'Limits' in REFERENCE")
        return cls("")


PYTHON: Final = Kernel("it was not asked for")
"""Kernel for callers that do not release records by the million."""
