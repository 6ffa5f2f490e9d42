"""The admin API as a part of the running router, where it is configured."""

from collections.abc import Callable

from confluent_kafka.admin import AdminClient

from sidecar import clock
from sidecar.clock import SystemClock
from sidecar.config.model import Config
from sidecar.policies.operations import Operations
from sidecar.policies.table import Policies
from sidecar.status.inquiries import GroupInquiries, Statuses
from sidecar.status.report_publisher import instance_name
from sidecar.status.report_reader import ReportReader


class AdminApi:
    """Nothing until it is started, and then only with a token file."""

    def __init__(self) -> None:
        self._stops: list[Callable[[], None]] = []
        self._is_idle: Callable[[], bool] = lambda: True

    def start(self, config: Config, admin: AdminClient, policies: Policies, own: Statuses, kernel: str) -> None:
        """Serve it, where there is a token file; ConfigError when that, certificate or address cannot be had.

        ``own`` are the partitions of this process, which it knows better than any report, as it does its ``kernel``.
        """
        if not config.admin.is_on:
            return
        # A router without it needs neither its memory nor its time.
        from sidecar.api import server  # noqa: PLC0415
        from sidecar.api.backend import Services  # noqa: PLC0415
        from sidecar.controls.operations import ControlOperations  # noqa: PLC0415
        from sidecar.kafka.record_writer import RecordWriter  # noqa: PLC0415
        from sidecar.process.broker_pulse import pulse_of  # noqa: PLC0415
        from sidecar.rejected.operations import RejectedOperations  # noqa: PLC0415

        name = instance_name(config)
        reports = ReportReader(config, admin, clock.now_ms)
        inquiries = GroupInquiries(config, admin, policies, reports, own=own, instance=name, kernel=kernel).start()
        self._stops.append(inquiries.close)
        records = RecordWriter(config)
        self._stops.append(records.close)
        pulse = pulse_of(admin, SystemClock()).start()
        self._stops.append(pulse.stop)
        services = Services(
            Operations(config, admin, policies),
            inquiries,
            RejectedOperations(config, admin),
            records,
            ControlOperations(config, admin),
            pulse,
        )
        serving = server.serve(config, services)
        self._stops.append(serving.stop)
        self._is_idle = lambda: serving.is_idle

    @property
    def is_idle(self) -> bool:
        """Whether no call of it hangs in a client."""
        return self._is_idle()

    def stop(self) -> None:
        """Close the listener, then what answers."""
        while self._stops:
            self._stops.pop()()
