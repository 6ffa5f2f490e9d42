# _columns.pyx documents each class. Columns are arrays: times and ends have 64 bits, places have 32, all others are
# bytes.
from typing import Any

from sidecar.kernel.common_form import CommonForm

REVISION: int

class Column:
    def __init__(self, places: Any, content: Any, is_null: Any) -> None: ...

class Batch:
    def __init__(
        self, timestamps_ms: Any, keys: Column, values: Column, header_ends: Any, names: Column, contents: Column
    ) -> None: ...

class ColumnDecider:
    def __init__(self, form: CommonForm, packer: object, packs: bool) -> None: ...
    def decide(self, batch: Batch, start: int, dues_ms: Any, rows: list[Any], ids: list[tuple[int, bytes]]) -> int: ...
