"""A connection with ends: uvicorn has no timeout for headers that do not come, nor for answers nobody takes."""

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from sidecar.process.listening import Places

MAX_REQUEST_LINE_BYTES: Final = 8_192
MAX_HEADER_BYTES: Final = 16_384
MAX_BODY_BYTES: Final = 65_536
PLACES: Final = Places(connections=256, of_one_client=128)

HEADERS_WITHIN_S: Final = 10.0
ANSWERED_WITHIN_S: Final = 30.0
"""From the end of the headers until the whole answer has been taken."""

KEEP_ALIVE_S: Final = 5
TLS_WITHIN_S: Final = 10.0


class BoundedConnection(H11Protocol):
    """One timer at a time: for the headers of a request, or for the request itself. In between, uvicorn's."""

    _end: asyncio.TimerHandle | None = None
    _awaits_headers = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give a new connection ``HEADERS_WITHIN_S`` for its first request."""
        super().connection_made(transport)
        self._end_in(HEADERS_WITHIN_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Whatever it waited for has come to an end."""
        self._end_never()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Begin the timer of a request with its first bytes, and of its answer when the headers are there."""
        before = self.cycle
        if not self._awaits_headers and before.response_complete:
            # The first bytes of another request.
            self._awaits_headers = True
            self._end_in(HEADERS_WITHIN_S)
        super().data_received(data)
        self._begun(before)

    def on_response_complete(self) -> None:
        """The next request may have been sent already."""
        # The timer goes on: what was written may not have been taken, and closing would wait for that without end.
        done = self.cycle
        super().on_response_complete()
        # One that was sent ahead has begun with that.
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
    """Ends TLS handshakes that do not come to an end; asyncio waits a minute, and uvicorn has no setting for it."""

    async def create_server(self, *arguments, **options):  # type: ignore[no-untyped-def]
        """As asyncio does, with a shorter patience."""
        if options.get("ssl") is not None:
            options |= {"ssl_handshake_timeout": TLS_WITHIN_S, "ssl_shutdown_timeout": TLS_WITHIN_S}
        return await super().create_server(*arguments, **options)
