"""Measure of how plainly a package's docstrings, comments and texts for users are written."""

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
    for source in _sources(folder):
        found = list(_docstrings(source))
        docstrings += len(found)
        openings += sum(bool(_NEITHER_VERB_NOR_NOUN.match(text)) for text in found)
        for text in (*found, *_comments(source)):
            counted = _count(text)
            words += counted[0]
            pronouns += counted[1]
    return Prose(1000 * pronouns / max(words, 1), 100 * openings / max(docstrings, 1))


def pronouns_in_texts(folder: Path) -> float:
    """Return the pronouns per 1,000 words of the texts for users: string literals with a space, without docstrings."""
    counted = [_count(text) for source in _sources(folder) for text in _texts(source)]
    return 1000 * sum(pronouns for _, pronouns in counted) / max(sum(words for words, _ in counted), 1)


def _sources(folder: Path) -> Iterator[str]:
    for file in sorted(folder.rglob("*.py")):
        if not file.name.endswith("_pb2.py"):
            yield file.read_text(encoding="utf-8")


def _count(text: str) -> tuple[int, int]:
    """Return the numbers of words and of pronouns in a text; code in backquotes is one word."""
    plain = re.sub(r"`[^`]*`", "`x`", text)
    return len(plain.split()), len(_PRONOUN.findall(plain))


def _texts(source: str) -> Iterator[str]:
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings)
    return (text.value for text in texts if isinstance(text.value, str) and " " in text.value)


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
