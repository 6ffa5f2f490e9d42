"""Writes the table of values in the chart's README, from ``values.yaml`` and its comments.

``python -m tests.helm.values_table`` writes it anew, and a test fails if it is old.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.helm.chart import CHART

README: Final = CHART / "README.md"
VALUES: Final = CHART / "values.yaml"

_BEGIN: Final = "<!-- values: begin -->\n"
_END: Final = "<!-- values: end -->\n"
_KEY: Final = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z._]+):(?: +(?P<default>[^#\s].*?))?(?: +# (?P<comment>.*))?")


class Row(NamedTuple):
    """A value by its path; `default` is None for a value that only holds others."""

    path: tuple[str, ...]
    default: str | None
    meaning: str


def rows(text: str) -> Iterator[Row]:
    """Yield every value in file order, with the comments above and behind it; a blank line ends a comment."""
    above: list[str] = []
    path: tuple[str, ...] = ()
    for line in text.splitlines():
        found = _KEY.fullmatch(line)
        if found:
            path = (*path[: len(found["indent"]) // 2], found["key"])
            behind = [_shown(found["comment"])] if found["comment"] else []
            yield Row(path, found["default"], " ".join([*above, *behind]))
            above = []
        elif line.strip().startswith("#"):
            above.append(line.strip().removeprefix("#").strip())
        else:
            above = []


def _shown(comment: str) -> str:
    """Return the comment as shown: an item of a list is an example of a possible value."""
    example, end, rest = comment.partition(";")
    return f"As `{example}`{end}{rest}" if comment.startswith("- ") else comment


def table(found: Sequence[Row]) -> str:
    """Return the table as Markdown, without values that only hold others and have no comment."""
    lines = ["| value | default | meaning |", "|---|---|---|"]
    for row in found:
        name = ".".join(f'"{key}"' if "." in key else key for key in row.path)
        if row.default is not None or row.meaning:
            default = "" if row.default is None else f"`{row.default}`"
            # Otherwise Markdown would read it as the start of a tag.
            meaning = row.meaning.replace("<", "&lt;")
            lines.append(f"| `{name}` | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


def updated(readme: str) -> str:
    """Return the README with this table in place of its own."""
    before, _, rest = readme.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{table([*rows(VALUES.read_text())])}\n{_END}{after}"


if __name__ == "__main__":
    README.write_text(updated(README.read_text()))
