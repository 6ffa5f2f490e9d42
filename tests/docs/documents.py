"""The documents, taken apart: blocks of code, code within a line, links and headings, each with its place."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support.paths import ROOT

_MARKDOWN: Final = MarkdownIt("commonmark").enable("table")


class Piece(NamedTuple):
    """Something that a document says, and where."""

    place: str
    text: str
    language: str = ""


def documents() -> list[Path]:
    """Every document there is."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "helm").rglob("*.md"))]


def current() -> list[Path]:
    """Those that speak of the program as it is; the changelog speaks of what it was, too."""
    return [path for path in documents() if path.name != "CHANGELOG.md"]


def blocks(document: Path) -> Iterator[Piece]:
    """Blocks of code, fenced or indented."""
    for token in _tokens(document):
        if token.type in ("fence", "code_block"):
            yield Piece(_place(document, token), token.content, token.info.strip())


def spans(document: Path) -> Iterator[Piece]:
    """Code within a line."""
    yield from (Piece(_place(document, line), child.content) for line, child in _children(document, "code_inline"))


def links(document: Path) -> Iterator[Piece]:
    """Where links and pictures lead to."""
    for line, child in _children(document, "link_open"):
        yield Piece(_place(document, line), str(child.attrs["href"]))
    for line, child in _children(document, "image"):
        yield Piece(_place(document, line), str(child.attrs["src"]))


def headings(document: Path, levels: str = "123456") -> list[str]:
    """The headings, as they are written; `levels` of 2 for the sections only."""
    tokens = _tokens(document)
    opened = [place for place, token in enumerate(tokens) if token.type == "heading_open" and token.tag[1] in levels]
    return [tokens[place + 1].content for place in opened]


def anchor(heading: str) -> str:
    """What a link to a heading ends with, as forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@cache
def _tokens(document: Path) -> list[Token]:
    return _MARKDOWN.parse(document.read_text(encoding="utf-8"))


def _children(document: Path, kind: str) -> Iterator[tuple[Token, Token]]:
    for token in _tokens(document):
        yield from ((token, child) for child in token.children or () if child.type == kind)


def _place(document: Path, token: Token) -> str:
    line = token.map[0] + 1 if token.map else 0
    return f"{document.relative_to(ROOT)}:{line}"
