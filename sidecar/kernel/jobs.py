"""The kernel for jobs on Spark, which find it by an entry point of the wheel and know nothing else of the router.

``spark_backfill.kernel`` defines the interface that a job expects. A change that a job would notice raises
``interface``, here and there.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from index.rules.rules import Rules
from sidecar.kernel.common_form import CommonForm
from sidecar.kernel.compiled import not_compiled
from snapshots.segments.codec import SegmentCodec
from snapshots.segments.rows import RowPacker

if TYPE_CHECKING:
    from sidecar.kernel import _columns


class JobKernel:
    """The object behind the entry point; it calls no Kafka client, so any version of the client will do."""

    interface: Final = 1

    def __init__(self) -> None:
        self.home = Path(__file__).resolve().parents[2]

    def why_not(self, environ: Mapping[str, str]) -> str:
        """Return why a process with this environment cannot use the kernel; empty if it can."""
        return not_compiled(environ)

    @property
    def codec(self) -> SegmentCodec:
        """Native codec of segments."""
        from sidecar.kernel import segments  # noqa: PLC0415 -- its modules may not be compiled

        return segments.NATIVE_CODEC

    def decider(self, rules: Rules, packer: RowPacker, *, packs: bool) -> "_columns.ColumnDecider | None":
        """Make a decider of batches by these rules, for records of the common form; None if Python decides all."""
        # A batch has no offsets, from which the jitter of retries comes.
        form = CommonForm.of(rules) if rules.retry is None else None
        if form is None:
            return None
        from sidecar.kernel import _columns  # noqa: PLC0415 -- it may not be compiled

        return _columns.ColumnDecider(form, packer, packs)

    def batch(
        self, timestamps_ms: Any, keys: Any, values: Any, header_ends: Any, names: Any, contents: Any
    ) -> "_columns.Batch":
        """Make a batch of records for a decider, of arrays of 64 bits and columns of ``(places, content, is_null)``."""
        from sidecar.kernel import _columns  # noqa: PLC0415 -- it may not be compiled

        key, value, name, content = (_columns.Column(*each) for each in (keys, values, names, contents))
        return _columns.Batch(timestamps_ms, key, value, header_ends, name, content)


KERNEL: Final = JobKernel()
