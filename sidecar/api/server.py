"""The listener of the admin API: a thread and an event loop of its own, off the release path."""

import ssl
from collections.abc import Callable
from pathlib import Path

import structlog
import uvicorn
from starlette.types import ASGIApp

from sidecar.admission import connection
from sidecar.admission.guard import Guard
from sidecar.admission.open_files import NO_FILES
from sidecar.admission.tls import Certificates
from sidecar.admission.tokens import TokenFile
from sidecar.api.application import application
from sidecar.api.backend import Backend, Services
from sidecar.config.model import Config
from sidecar.page.files import page_files
from sidecar.process.http_server import HttpServer
from sidecar.process.listening import ACCEPTED_AT_ONCE, bind
from sidecar.process.pace import Pace


class AdminServer:
    """The running API; ``port`` is the real one even where the configuration says 0."""

    def __init__(self, server: HttpServer, backend: Backend) -> None:
        self.port = server.port
        self._server = server
        self._backend = backend

    @property
    def is_idle(self) -> bool:
        """Whether no call to the cluster hangs."""
        return self._backend.is_idle

    def stop(self) -> None:
        """Answer what is under way, then close."""
        self._server.stop()
        self._backend.stop()


def serve(config: Config, services: Services) -> AdminServer:
    """Start serving; ConfigError when token file, certificate or address cannot be had."""
    admin = config.admin
    tokens = TokenFile(Path(admin.token_file))
    certificates = Certificates(admin) if admin.tls_cert_file else None
    backend = Backend(config, services)
    open_files = page_files() if admin.page else NO_FILES
    app = Guard(application(backend), admin, tokens, Pace(), open_files)
    server = HttpServer(_uvicorn(app, certificates), bind(admin, "admin", connection.PLACES), "admin")
    server.start()
    structlog.get_logger().info(
        "admin_listening", listen=admin.listen, port=server.port, tls=certificates is not None, page=admin.page
    )
    return AdminServer(server, backend)


def _uvicorn(app: ASGIApp, certificates: Certificates | None) -> uvicorn.Server:
    settings = uvicorn.Config(
        app,
        http=connection.BoundedConnection,
        ws="none",
        loop=f"{connection.__name__}:{connection.BoundedLoop.__name__}",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # The address in the audit log is that of the connection, not what a header says.
        proxy_headers=False,
        backlog=ACCEPTED_AT_ONCE,
        h11_max_incomplete_event_size=connection.MAX_REQUEST_LINE_BYTES + connection.MAX_HEADER_BYTES,
        timeout_keep_alive=connection.KEEP_ALIVE_S,
        timeout_graceful_shutdown=2,
        ssl_context_factory=_factory(certificates),
    )
    return uvicorn.Server(settings)


def _factory(
    certificates: Certificates | None,
) -> Callable[[uvicorn.Config, Callable[[], ssl.SSLContext]], ssl.SSLContext] | None:
    return None if certificates is None else lambda _config, _default: certificates.context
