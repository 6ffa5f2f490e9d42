"""Sends one HTTP request, for commands."""

import http.client
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

from index.errors import ConfigError, DelayRouterError

MAX_BODY_BYTES: Final = 64 << 20


def parts_of(url: str, wanted: str) -> SplitResult:
    """Return the parts of an http or https URL; raise ConfigError with the text ``wanted`` for any other."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(wanted)
    return parts


def exchange(
    url: str,
    method: str,
    path: str,
    *,
    timeout_s: float,
    hint: str,
    tls: ssl.SSLContext | None = None,
    body: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Return status and body of the answer for ``path`` below a valid URL.

    Raise DelayRouterError with ``hint`` when no answer comes.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = (
        http.client.HTTPSConnection(host, port, timeout=timeout_s, context=tls)
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=timeout_s)
    )
    try:
        connection.request(method, parts.path.rstrip("/") + path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read(MAX_BODY_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise DelayRouterError(f"{url} does not answer ({error}); {hint}") from None
    finally:
        connection.close()
