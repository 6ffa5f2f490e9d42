"""Probes and metrics over HTTP, in a thread of their own so that a slow reader never delays a release.

Three paths, GET and HEAD, nothing that changes anything. Dispatch is explicit: the server that comes with
prometheus_client answers metrics on any path, so a probe of a path that does not exist would always be green.
"""

import asyncio
import json
import socket
import threading
import time
from typing import Final, Protocol

import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from index.errors import ConfigError, DelayRouterError
from sidecar.config import HttpConfig
from sidecar.config_admin import Listener

MAX_REQUEST_BYTES: Final = 16_384
"""Request line and headers together."""

MAX_CONNECTIONS: Final = 32
KEEP_ALIVE_S: Final = 5
CONNECTION_LIFETIME_S: Final = 30
"""Longest life of a connection, whatever it does: one that sends a byte a second must not hold a place."""

START_TIMEOUT_S: Final = 10.0
STOP_TIMEOUT_S: Final = 5.0


class Health(Protocol):
    """What the router tells about itself; called from the HTTP thread, so it must not block."""

    @property
    def registry(self) -> CollectorRegistry:
        """Metrics to render."""

    def live(self) -> tuple[bool, dict[str, object]]:
        """Whether the process works at all, and the body of ``/livez``."""

    def ready(self) -> tuple[bool, dict[str, object]]:
        """Whether every assigned partition is recovered and active, and the body of ``/readyz``."""


class HttpServer:
    """A running server; `port` is the real one even where the configuration says 0."""

    def __init__(self, server: uvicorn.Server, bound: socket.socket, name: str = "http") -> None:
        self.port: Final[int] = bound.getsockname()[1]
        self._server = server
        self._thread = threading.Thread(target=server.run, args=([bound],), name=name, daemon=True)

    def start(self) -> None:
        """Return once requests are answered; DelayRouterError when that does not come about."""
        self._thread.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise DelayRouterError("the HTTP server did not start; see the log lines above")
            time.sleep(0.01)

    def stop(self) -> None:
        """Answer what is under way, then close; returns within ``STOP_TIMEOUT_S``."""
        self._server.should_exit = True
        self._thread.join(STOP_TIMEOUT_S)


def serve(listen: str, health: Health) -> HttpServer:
    """Start serving `health` at `listen` (``host:port``); ConfigError when the address cannot be had."""
    bound = bind(HttpConfig(listen=listen), "http")
    settings = uvicorn.Config(
        application(health),
        http=_BoundedConnection,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=MAX_REQUEST_BYTES,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=2,
    )
    server = HttpServer(uvicorn.Server(settings), bound)
    server.start()
    return server


def application(health: Health) -> Starlette:
    """The three paths as an ASGI application."""

    def livez(_: Request) -> Response:
        return _json(*health.live())

    def readyz(_: Request) -> Response:
        return _json(*health.ready())

    def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(health.registry), headers={"content-type": content_type})

    app = Starlette(routes=[Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", metrics)])
    # A path that does not exist is 404, not a redirect to one that does.
    app.router.redirect_slashes = False
    return app


class _BoundedConnection(H11Protocol):
    """A connection with an end; uvicorn has no timeout for a request that never comes to its own."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._end = self.loop.call_later(CONNECTION_LIFETIME_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.cancel()
        super().connection_lost(exc)


def _json(good: bool, body: dict[str, object]) -> Response:
    return Response(json.dumps(body), status_code=200 if good else 503, media_type="application/json")


def bind(config: Listener, section: str) -> socket.socket:
    """A listening socket for the address of a section of the configuration; ConfigError when it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            # So that a restart need not wait for the old connections to leave TIME_WAIT.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(MAX_CONNECTIONS)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ConfigError(
            f"{section}.listen: {config.listen}: {error.strerror or error}; choose another address"
        ) from None
    return bound
