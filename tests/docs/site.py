"""Copies the documents, and the files that they link to, for the site: ``python -m tests.docs.site FOLDER``.

``make site`` builds the site from the copies (``mkdocs.yml``). A link to a folder has no page, so it becomes its text.
Lists are written as Python-Markdown needs them: four spaces in front of all that belongs to an item, and an empty line
before the next item.
"""

import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from tests.docs.documents import documents, links
from tests.support.paths import ROOT

_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)\)")
_INDENT: Final = " " * 3
_ITEM: Final = re.compile(r"\d+\. ")


def copy(into: Path) -> None:
    """Replace a folder by copies of the documents and of the files that they link to, at the same relative paths."""
    shutil.rmtree(into, ignore_errors=True)
    for document in documents():
        text = "\n".join(_with_lists(document.read_text().split("\n")))
        _place(document, into).write_text(_LINK.sub(partial(_kept, document.parent), text))
        for target in {document.parent / link.text.partition("#")[0] for link in links(document)}:
            if target.is_file() and target.suffix != ".md":
                shutil.copyfile(target, _place(target.resolve(), into))


def _place(file: Path, into: Path) -> Path:
    place = into / file.relative_to(ROOT)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _with_lists(lines: Iterable[str]) -> Iterator[str]:
    is_code, is_in_item = False, False
    for line in lines:
        is_code ^= line.startswith("```")
        if is_in_item and _ITEM.match(line):
            yield ""
        is_in_item = line.startswith(_INDENT) and not is_code
        yield f" {line}" if is_in_item else line


def _kept(folder: Path, link: re.Match[str]) -> str:
    return link[1] if (folder / link[2]).is_dir() else link[0]


if __name__ == "__main__":
    copy(Path(sys.argv[1]))
