"""Measure of how plainly a package's docstrings and comments are written."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Relative pronouns that stand in for a noun. In a question they are in place.
_PRONOUN = re.compile(r"\b(what|whoever|whatever|whom|whichever)\b(?![^.!?:;]*\?)", re.IGNORECASE)
_NEITHER_VERB_NOR_NOUN = re.compile(
    r"(what|who|whoever|whom|where|whether|which|those|that|these|this|it|of|as|by|with|from|to|for|at|in|on|how|why|when|so"
    r"|such|the same|each of|none|nothing|neither|not)\b",
    re.IGNORECASE,
)


class Prose(NamedTuple):
    """Pronouns per 1,000 words, and percentage of docstrings that open with neither a verb nor a noun."""

    pronouns: float
    openings: float


def measure(folder: Path) -> Prose:
    """Measure the docstrings and comments of a folder's Python files."""
    words = pronouns = docstrings = openings = 0
    for file in sorted(folder.rglob("*.py")):
        if file.name.endswith("_pb2.py"):
            continue
        source = file.read_text(encoding="utf-8")
        found = list(_docstrings(source))
        docstrings += len(found)
        openings += sum(bool(_NEITHER_VERB_NOR_NOUN.match(text)) for text in found)
        for text in (*found, *_comments(source)):
            plain = re.sub(r"`[^`]*`", "`x`", text)
            words += len(plain.split())
            pronouns += len(_PRONOUN.findall(plain))
    return Prose(1000 * pronouns / max(words, 1), 100 * openings / max(docstrings, 1))


def _docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def _comments(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("#: ")
