"""The imports of a module, read from its syntax tree: late imports too, and those for types or by a string."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Import(NamedTuple):
    """One imported module (``a.b.c``) and the line of the import."""

    line: int
    module: str

    @property
    def top(self) -> str:
        """The package at top level: ``a`` of ``a.b.c``."""
        return self.module.partition(".")[0]


def imports_of(source: str, package: str) -> list[Import]:
    """Return every import of a module whose package is ``package``, with relative imports made absolute.

    ``from a import b`` counts as ``a.b``: the tree does not show whether ``b`` is a module, and every rule is about a
    prefix.
    """
    return [found for node in ast.walk(ast.parse(source)) for found in _imports_in(node, package)]


def _imports_in(node: ast.AST, package: str) -> Iterator[Import]:
    match node:
        case ast.Import(names=names):
            for alias in names:
                yield Import(node.lineno, alias.name)
        case ast.ImportFrom(module=module, names=names, level=level):
            base = _absolute(module or "", level, package)
            for alias in names:
                yield Import(node.lineno, base if alias.name == "*" else f"{base}.{alias.name}")
        case ast.Call(
            func=ast.Name(id="__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            yield Import(node.lineno, name)


def _absolute(module: str, level: int, package: str) -> str:
    if not level:
        return module
    parents = package.split(".")[: len(package.split(".")) - level + 1]
    return ".".join([*parents, module] if module else parents)


def modules_in(root: Path, room: str) -> Iterator[tuple[Path, str]]:
    """Yield each module of a room, without generated ones, and the package it is in."""
    for path in sorted((root / room).rglob("*.py")):
        if not path.name.endswith("_pb2.py"):
            yield path, ".".join(path.parent.relative_to(root).parts)
