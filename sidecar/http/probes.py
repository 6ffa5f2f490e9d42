"""Probes and metrics over HTTP, in a thread of their own so that a slow reader never delays a release.

There are three paths and a first page that names them, with GET and HEAD only; no request changes anything. Dispatch
is explicit: the server that comes with prometheus_client answers metrics on any path, so a probe of a path that does
not exist would always be green.

Every client that can reach the port may ask, so no client may cost much. A probe is never refused and never waits for
other clients: there is always room for its connection (:mod:`sidecar.http.listening`), and its answer is made again
only so often that this takes a tenth of a core (more only where making it takes longer than 0.1 s). All other requests
of a client are refused (429) beyond a rate.
"""

import json
import math
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sidecar.config.model import HttpConfig
from sidecar.http.listening import client_of
from sidecar.http.pace import ANYBODY, Pace
from sidecar.http.server import HttpServer

REST_FACTOR: Final = 9
MAX_REST_S: Final = 1.0

FIRST: Final = """kafka-delay-router: probes and metrics

/livez    whether the process works
/readyz   whether it releases from every partition that it has; if not, why
/metrics  for Prometheus

The page (/) and the admin API (/api/v1/openapi.json lists its paths) are on a listener of their own, with
tokens: [admin] in the configuration.
"""

MISSING: Final = f"No such path. These exist:\n\n{FIRST}"

OPENMETRICS: Final = "application/openmetrics-text"

PROBES: Final = frozenset({"/livez", "/readyz"})


class Health(Protocol):
    """The router's account of its own health; called from the HTTP thread, so it must not block."""

    @property
    def registry(self) -> CollectorRegistry:
        """The registry of the metrics to render."""

    def live(self) -> tuple[bool, dict[str, object]]:
        """Say whether the process works at all, with the body of ``/livez``."""

    def ready(self) -> tuple[bool, dict[str, object]]:
        """Say whether every assigned partition is recovered and active, with the body of ``/readyz``."""


def serve(listen: str, health: Health) -> HttpServer:
    """Start serving `health` at `listen` (``host:port``); raise ConfigError when the address is not available."""
    server = HttpServer(application(health), HttpConfig(listen=listen), "http")
    server.start()
    return server


def application(health: Health) -> ASGIApp:
    """Return the paths as an ASGI application."""
    ready = Frugal(lambda: _json(*health.ready()))
    texts: dict[str, Frugal] = {}

    async def livez(_: Request) -> Response:
        return _json(*health.live())

    async def readyz(_: Request) -> Response:
        return ready.get()

    async def metrics(request: Request) -> Response:
        # Two formats: others differ in a version that the client names, and each would be rendered and kept.
        asked = request.headers.get("accept", "")
        encode, content_type = choose_encoder(OPENMETRICS if OPENMETRICS in asked else "")

        def text() -> Response:
            return Response(encode(health.registry), headers={"content-type": content_type})

        # ``texts`` has one entry for each format. Another thread renders it, so that probes do not
        # wait for it.
        return await run_in_threadpool(texts.setdefault(content_type, Frugal(text)).get)

    async def first(_: Request) -> Response:
        return Response(FIRST, media_type="text/plain")

    async def missing(_: Request, __: Exception) -> Response:
        return Response(MISSING, status_code=404, media_type="text/plain")

    paths = {"/": first, "/livez": livez, "/readyz": readyz, "/metrics": metrics}
    app = Starlette(routes=[Route(path, answer) for path, answer in paths.items()], exception_handlers={404: missing})
    # Answer 404 to a missing path instead of redirecting to a similar one.
    app.router.redirect_slashes = False
    return Paced(app)


class Frugal:
    """An answer that is given again for nine times the processor time that making it took, and 1 s at most."""

    def __init__(self, make: Callable[[], Response]) -> None:
        self._make = make
        self._making = threading.Lock()
        self._made: Response | None = None
        self._good_until_s = 0.0

    def get(self) -> Response:
        """Return the answer, made again where that is due; callers that ask meanwhile wait for the same answer."""
        with self._making:
            if self._made is not None and time.monotonic() < self._good_until_s:
                return self._made
            # Measure the time of this thread alone: other work of the process must not make the answer old.
            began_s = time.thread_time()
            self._made = made = self._make()
            took_s = time.thread_time() - began_s
            self._good_until_s = time.monotonic() + min(REST_FACTOR * took_s, MAX_REST_S)
            return made


class Paced:
    """Refuses requests of a client beyond the rate, except probes: their answer costs no more than a refusal."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._pace = Pace()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 429, or let the application answer."""
        if scope["type"] == "http" and scope["path"] not in PROBES:
            wait_s = self._pace.wait_s(client_of(scope["client"]), ANYBODY)
            if wait_s:
                refusal = Response(status_code=429, headers={"retry-after": str(math.ceil(wait_s))})
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _json(good: bool, body: dict[str, object]) -> Response:
    return Response(json.dumps(body), status_code=200 if good else 503, media_type="application/json")
