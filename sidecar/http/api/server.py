"""Runs the admin API in the router, with a thread and an event loop of its own beside the release path."""

from contextlib import ExitStack
from pathlib import Path

import structlog
from confluent_kafka.admin import AdminClient

from sidecar import clock
from sidecar.clock import SystemClock
from sidecar.config.model import Config
from sidecar.http.api.application import application
from sidecar.http.api.backend import ALWAYS_ANSWERING, Backend
from sidecar.http.guard import NO_FILES, Guard
from sidecar.http.pace import Pace
from sidecar.http.page.files import page_files
from sidecar.http.server import HttpServer
from sidecar.http.tls import Certificates
from sidecar.http.tokens import TokenFile
from sidecar.operations.desk import Operations
from sidecar.operations.status.inquiries import Statuses
from sidecar.operations.status.report_publisher import instance_name
from sidecar.operations.status.report_reader import ReportReader
from sidecar.operations.watching.history import History
from sidecar.policies.table import Policies
from sidecar.process.broker_pulse import Pulse, pulse_of


class AdminApi:
    """The running API; ``port`` is the real one even where the configuration says 0."""

    def __init__(self, config: Config, operations: Operations, pulse: Pulse = ALWAYS_ANSWERING) -> None:
        """Serve the API; raise ConfigError when token file, certificate or address cannot be used."""
        admin = config.admin
        tokens = TokenFile(Path(admin.token_file))
        tls = Certificates(admin).context if admin.tls_cert_file else None
        self._backend = Backend(config, operations, pulse)
        self.behind = ExitStack()
        """The operations and the pulse, which are closed after the listener."""
        files = page_files() if admin.page else NO_FILES
        guard = Guard(application(self._backend), admin, tokens, Pace(), files)
        self._server = HttpServer(guard, admin, "admin", tls)
        self._server.start()
        self.port = self._server.port
        structlog.get_logger().info(
            "admin_listening", listen=admin.listen, port=self.port, tls=tls is not None, page=admin.page
        )

    def stop(self) -> None:
        """Answer the requests under way, then close the listener and all that is behind it."""
        self._server.stop()
        self._backend.stop()
        self.behind.close()


def start(config: Config, admin: AdminClient, policies: Policies, own: Statuses, kernel: str) -> AdminApi:
    """Serve the API for this router; raise ConfigError when token file, certificate or address cannot be used.

    ``own`` returns the statuses of this process, which are newer than any report; ``kernel`` is its kernel.
    """
    with ExitStack() as started:
        history = History(clock.now_ms)
        reports = ReportReader(config, admin, clock.now_ms, history.add)
        name = instance_name(config)
        operations = Operations(
            config, admin, policies, reports, own=own, instance=name, kernel=kernel, history=history
        ).start()
        started.callback(operations.close)
        pulse = pulse_of(admin, SystemClock()).start()
        started.callback(pulse.stop)
        api = AdminApi(config, operations, pulse)
        api.behind = started.pop_all()
        return api
