"""The files of the page by their paths, read once, with the headers that fence in what a browser does with them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sidecar.http.guard import OpenFile

STATIC: Final = Path(__file__).with_name("static")
INDEX: Final = "index.html"
BELOW: Final = "/page/"
"""Where all files are but the first one, which is ``/``."""

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
    # No string becomes markup or script, whoever wrote it.
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}

_HEADERS: Final = {
    "content-security-policy": "; ".join(f"{what} {allowed}" for what, allowed in _POLICY.items()),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    # For browsers that do not know frame-ancestors.
    "x-frame-options": "DENY",
}


def page_files() -> Mapping[str, OpenFile]:
    """Every file of the page by the path it is served at."""
    found = {path.name: _open(path) for path in sorted(STATIC.iterdir()) if path.suffix in _TYPES}
    return {"/" if name == INDEX else BELOW + name: file for name, file in found.items()}


def _open(path: Path) -> OpenFile:
    body = path.read_bytes()
    return OpenFile(body, {"content-type": _TYPES[path.suffix], "content-length": str(len(body)), **_HEADERS})
