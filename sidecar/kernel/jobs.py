"""The kernel as jobs on Spark take it: they find it by an entry point of the wheel, and know no more of the router.

What a job may ask for is its business, ``spark_backfill.kernel``. A change of it that a job would notice raises
``interface``, there too.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from index.rules import Rules
from sidecar.kernel.choice import not_compiled
from sidecar.kernel.common_form import CommonForm
from snapshots.codec import SegmentCodec
from snapshots.rows import RowPacker

if TYPE_CHECKING:
    from sidecar.kernel import _columns


class JobKernel:
    """What is behind the entry point; with a client of any version, which none of it calls."""

    interface: Final = 1

    def __init__(self) -> None:
        self.home = Path(__file__).resolve().parents[2]

    def why_not(self, environ: Mapping[str, str]) -> str:
        """Why it cannot be used in a process with this environment; empty where it can."""
        return not_compiled(environ)

    @property
    def codec(self) -> SegmentCodec:
        """What encodes and decodes segments."""
        from sidecar.kernel import segments  # noqa: PLC0415 -- what it needs need not be there

        return segments.NATIVE_CODEC

    def decider(self, rules: Rules, packer: RowPacker, *, packs: bool) -> "_columns.ColumnDecider | None":
        """What decides records of the common form by these rules, in batches; None where Python decides all."""
        form = CommonForm.of(rules)
        if form is None:
            return None
        from sidecar.kernel import _columns  # noqa: PLC0415 -- it need not be there

        return _columns.ColumnDecider(form, packer, packs)

    def batch(
        self, timestamps_ms: Any, keys: Any, values: Any, header_ends: Any, names: Any, contents: Any
    ) -> "_columns.Batch":
        """Records for a decider: arrays of 64 bits, and columns of ``(places, content, is_null)``."""
        from sidecar.kernel import _columns  # noqa: PLC0415 -- it need not be there

        key, value, name, content = (_columns.Column(*each) for each in (keys, values, names, contents))
        return _columns.Batch(timestamps_ms, key, value, header_ends, name, content)


KERNEL: Final = JobKernel()
