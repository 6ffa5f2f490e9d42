"""Splits the documents into pieces: blocks of code, code within a line, links and headings, each with its place."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support.paths import ROOT

_MARKDOWN: Final = MarkdownIt("commonmark").enable("table")


class Piece(NamedTuple):
    """A piece of a document, and its place."""

    place: str
    text: str
    language: str = ""


def documents() -> list[Path]:
    """Return every document."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "helm").rglob("*.md"))]


def current() -> list[Path]:
    """Return the documents about the present program; the changelog is about the past, too."""
    return [path for path in documents() if path.name != "CHANGELOG.md"]


def blocks(document: Path, section: str = "") -> Iterator[Piece]:
    """Yield the blocks of code, fenced or indented, of a document or of one of its sections."""
    tokens, heading = _tokens(document), ""
    for number, token in enumerate(tokens):
        if token.type == "heading_open" and token.tag == "h2":
            heading = tokens[number + 1].content
        elif token.type in ("fence", "code_block") and section in ("", heading):
            yield Piece(_place(document, token), token.content, token.info.strip())


def spans(document: Path) -> Iterator[Piece]:
    """Yield the pieces of code within a line."""
    yield from (Piece(_place(document, line), child.content) for line, child in _children(document, "code_inline"))


def links(document: Path) -> Iterator[Piece]:
    """Yield the targets of links and pictures."""
    for line, child in _children(document, "link_open"):
        yield Piece(_place(document, line), str(child.attrs["href"]))
    for line, child in _children(document, "image"):
        yield Piece(_place(document, line), str(child.attrs["src"]))


def headings(document: Path, levels: str = "123456") -> list[str]:
    """Return the headings as they are written; `levels` of 2 for the sections only."""
    tokens = _tokens(document)
    opened = [place for place, token in enumerate(tokens) if token.type == "heading_open" and token.tag[1] in levels]
    return [tokens[place + 1].content for place in opened]


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in [head, *rows]]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]) + "\n"


def with_table(text: str, name: str, table: str) -> str:
    """Return a document with the table in place of the one between the marks of that name."""
    begin, end = (f"<!-- {name}: {which} -->\n" for which in ("begin", "end"))
    before, _, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    assert closed, f"the document has no marks {begin.strip()} and {end.strip()}"
    return f"{before}{begin}\n{table}\n{end}{after}"


@cache
def _tokens(document: Path) -> list[Token]:
    return _MARKDOWN.parse(document.read_text(encoding="utf-8"))


def _children(document: Path, kind: str) -> Iterator[tuple[Token, Token]]:
    for token in _tokens(document):
        yield from ((token, child) for child in token.children or () if child.type == kind)


def _place(document: Path, token: Token) -> str:
    line = token.map[0] + 1 if token.map else 0
    return f"{document.relative_to(ROOT)}:{line}"
