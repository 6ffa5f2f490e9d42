"""Reads the files of the page once, with headers that restrict the actions of a browser on them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sidecar.http.guard import OpenFile

STATIC: Final = Path(__file__).with_name("static")
INDEX: Final = "index.html"
BELOW: Final = "/page/"
"""Path of all files except the index, which is ``/``."""

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_POLICY: Final = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    # No string becomes markup or script, whatever its origin.
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}

_HEADERS: Final = {
    "content-security-policy": "; ".join(f"{what} {allowed}" for what, allowed in _POLICY.items()),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    # Older browsers do not know frame-ancestors.
    "x-frame-options": "DENY",
}


def page_files() -> Mapping[str, OpenFile]:
    """Return every file of the page by the path at which it is served."""
    found = {path.name: _open(path) for path in sorted(STATIC.iterdir()) if path.suffix in _TYPES}
    return {"/" if name == INDEX else BELOW + name: file for name, file in found.items()}


def _open(path: Path) -> OpenFile:
    body = path.read_bytes()
    return OpenFile(body, {"content-type": _TYPES[path.suffix], "content-length": str(len(body)), **_HEADERS})
