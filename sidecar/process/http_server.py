"""A uvicorn server in a thread of its own, for the probes and for the admin API."""

import threading
import time
from typing import Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from index.errors import DelayRouterError
from sidecar.process.listening import ListeningSocket

START_TIMEOUT_S: Final = 10.0
STOP_TIMEOUT_S: Final = 5.0


class HttpServer:
    """A running server; `port` is the real one even where the configuration says 0."""

    def __init__(self, server: uvicorn.Server, bound: ListeningSocket, name: str = "http") -> None:
        self.port: Final[int] = bound.getsockname()[1]
        self._server = server
        bound.busy = self._busy
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

    def _busy(self) -> set[int]:
        """File descriptors of connections with a request that has not been answered."""
        return {
            each.transport.get_extra_info("socket").fileno()
            for each in self._server.server_state.connections
            if isinstance(each, H11Protocol) and each.cycle is not None and not each.cycle.response_complete
        }
