"""One HTTP listener: an event loop in a thread of its own, with the same limits for probes and for the admin API.

The router has two of them. Each has a thread and places for connections of its own, so a flood of the admin API cannot
take the places of the probes. Applications add the limits of callers: :mod:`sidecar.http.probes` a rate for each
client, and the guard of the admin API tokens, roles and bodies.
"""

import asyncio
import ssl
import threading
import time
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from index.errors import DelayRouterError
from sidecar.config.listeners import Listener
from sidecar.http.listening import ACCEPTED_AT_ONCE, ConnectionLimits, bind

MAX_REQUEST_LINE_BYTES: Final = 8_192
MAX_HEADER_BYTES: Final = 16_384
PLACES: Final = ConnectionLimits(connections=256, of_one_client=128)

HEADERS_WITHIN_S: Final = 10.0
ANSWERED_WITHIN_S: Final = 30.0
"""Time from the end of the headers until the client has taken the whole answer."""

KEEP_ALIVE_S: Final = 5
TLS_WITHIN_S: Final = 10.0

START_TIMEOUT_S: Final = 10.0
STOP_TIMEOUT_S: Final = 5.0


class HttpServer:
    """A running listener; `port` is the real one even where the configuration says 0."""

    def __init__(self, app: ASGIApp, address: Listener, name: str, tls: ssl.SSLContext | None = None) -> None:
        """Bind the address of the section `name` of the configuration; raise ConfigError when it is not available."""
        bound = bind(address, name, PLACES)
        bound.busy = self._busy
        self.port: Final[int] = bound.getsockname()[1]
        self._server = uvicorn.Server(_settings(app, tls))
        self._thread = threading.Thread(target=self._server.run, args=([bound],), name=name, daemon=True)

    def start(self) -> None:
        """Start, and return once requests are answered; raise DelayRouterError when that takes too long."""
        self._thread.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise DelayRouterError("the HTTP server did not start; see the log lines above")
            time.sleep(0.01)

    def stop(self) -> None:
        """Answer the requests under way, then close; return within ``STOP_TIMEOUT_S``."""
        self._server.should_exit = True
        self._thread.join(STOP_TIMEOUT_S)

    def _busy(self) -> set[int]:
        """Return the file descriptors of connections with a request that has not been answered."""
        return {
            each.transport.get_extra_info("socket").fileno()
            for each in self._server.server_state.connections
            if isinstance(each, H11Protocol) and each.cycle is not None and not each.cycle.response_complete
        }


def _settings(app: ASGIApp, tls: ssl.SSLContext | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedConnection,
        ws="none",
        loop=f"{__name__}:{BoundedLoop.__name__}",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # The address of the connection identifies a client; any client could send a header with another address.
        proxy_headers=False,
        backlog=ACCEPTED_AT_ONCE,
        h11_max_incomplete_event_size=MAX_REQUEST_LINE_BYTES + MAX_HEADER_BYTES,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=2,
        ssl_context_factory=None if tls is None else lambda _config, _default: tls,
    )


class BoundedConnection(H11Protocol):
    """A connection with one timer at a time: for the headers of a request, or for the request itself.

    uvicorn has a timer only for the time between two requests.
    """

    _end: asyncio.TimerHandle | None = None
    _awaits_headers = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give a new connection ``HEADERS_WITHIN_S`` for its first request."""
        super().connection_made(transport)
        self._end_in(HEADERS_WITHIN_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._end_never()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Begin the timer of a request with its first bytes, and of its answer when the headers are there."""
        before = self.cycle
        if not self._awaits_headers and before.response_complete:
            # These are the first bytes of another request.
            self._awaits_headers = True
            self._end_in(HEADERS_WITHIN_S)
        super().data_received(data)
        self._begun(before)

    def on_response_complete(self) -> None:
        """Begin the timer of the next request if it has been sent already."""
        # The timer goes on: the client may not have taken the answer yet, and a close would wait for that for ever.
        done = self.cycle
        super().on_response_complete()
        # uvicorn has now begun a request that the client sent ahead.
        self._begun(done)

    def _begun(self, before: object) -> None:
        if self.cycle is not before and not self.cycle.response_complete:
            self._awaits_headers = False
            self._end_in(ANSWERED_WITHIN_S)

    def _end_in(self, seconds: float) -> None:
        self._end_never()
        self._end = self.loop.call_later(seconds, self.transport.abort)

    def _end_never(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None


class BoundedLoop(asyncio.SelectorEventLoop):
    """An event loop that ends slow TLS handshakes; asyncio waits a minute, and uvicorn has no setting for it."""

    async def create_server(self, *arguments, **options):  # type: ignore[no-untyped-def]
        """Listen as asyncio does, with shorter TLS timeouts."""
        if options.get("ssl") is not None:
            options |= {"ssl_handshake_timeout": TLS_WITHIN_S, "ssl_shutdown_timeout": TLS_WITHIN_S}
        return await super().create_server(*arguments, **options)
