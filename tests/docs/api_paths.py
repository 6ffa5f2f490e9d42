"""Writes the table of paths in API.md, from the OpenAPI document that the API serves.

``python -m tests.docs.api_paths`` writes it anew, and a test fails if it is old.
"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sidecar.http.api.application import PREFIX, application, document
from tests.docs.documents import table_of, with_table
from tests.support.admin_api import Api
from tests.support.paths import ROOT

FILE: Final = ROOT / "API.md"

_ORDER: Final = ("get", "post", "put", "patch", "delete")


def served() -> dict[str, Any]:
    """Return the OpenAPI document as a router serves it."""
    with tempfile.TemporaryDirectory() as folder:
        return document(application(Api(Path(folder)).backend))


def table(described: Mapping[str, Any]) -> str:
    """Return the table: a line for each request, with its role, meaning and parameters."""
    rows = [
        (
            f"`{method.upper()} {path.removeprefix(PREFIX)}`",
            methods[method]["x-role"],
            _meaning(methods[method]),
            ", ".join(_given(path, methods[method], described)),
        )
        for path, methods in described["paths"].items()
        for method in sorted(methods, key=_ORDER.index)
    ]
    return table_of(("request", "role", "what it does", "may be given"), rows)


def _meaning(operation: Mapping[str, Any]) -> str:
    """Return the first paragraph of the description."""
    first = str(operation["description"]).split("\n\n")[0]
    return " ".join(first.split())


def _given(path: str, operation: Mapping[str, Any], described: Mapping[str, Any]) -> Iterator[str]:
    queries = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
    if queries:
        yield "query: " + ", ".join(f"`{name}`" for name in queries)
    if "requestBody" in operation and path.startswith(f"{PREFIX}/policies"):
        yield "body: keys of the scope"
    elif "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        if "$ref" in schema:
            schema = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        names = schema.get("properties", {})
        yield "body: " + (", ".join(f"`{name}`" for name in names) or "`{}`")


def updated(text: str) -> str:
    """Return the document with this table in place of its own."""
    return with_table(text, "paths", table(served()))


if __name__ == "__main__":
    FILE.write_text(updated(FILE.read_text(encoding="utf-8")), encoding="utf-8")
