"""TLS of the admin listener; reads certificates again when they change, without a restart."""

import hashlib
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from index.errors import ConfigError
from sidecar.config.listeners import AdminConfig

LOOK_EVERY_S: Final = 1.0


class Certificates:
    """The TLS context of the listener; each handshake begins with it and continues with the newest certificate.

    The constructor raises ConfigError when the files cannot be used. A change of any of the three files counts: the
    certificate, its key, and the authorities of clients.
    """

    def __init__(self, admin: AdminConfig, now_s: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._now_s = now_s
        self._seen = self._files()
        self.context = self._newest = self._loaded()
        self.context.sni_callback = self._on_handshake
        self._looked_s = now_s()
        self._problem = ""
        self._log = structlog.get_logger()

    def _on_handshake(self, connection: ssl.SSLObject | ssl.SSLSocket, _: object, __: object) -> None:
        # OpenSSL asks at each handshake, also when the client names no server.
        self._look_again()
        connection.context = self._newest

    def _look_again(self) -> None:
        if self._now_s() - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = self._now_s()
        try:
            files = self._files()
            if files == self._seen:
                self._problem = ""
                return
            self._newest = self._loaded()
        except ConfigError as error:
            # Certificate and key may not match while they are being replaced.
            if self._problem != str(error):
                self._problem = str(error)
                self._log.error("admin_certificate_unusable", why=self._problem)
            return
        self._seen = files
        self._problem = ""
        self._log.info("admin_certificate_changed")

    def _files(self) -> bytes:
        digest = hashlib.sha256()
        for key in ("tls_cert_file", "tls_key_file", "tls_client_ca_file"):
            if not getattr(self._admin, key):
                continue
            try:
                digest.update(hashlib.sha256(Path(getattr(self._admin, key)).read_bytes()).digest())
            except OSError as error:
                raise _unusable(key, self._admin, error.strerror or str(error)) from None
        return digest.digest()

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # Without a password function OpenSSL would ask for one on the terminal.
            context.load_cert_chain(self._admin.tls_cert_file, self._admin.tls_key_file, password=lambda: "")
        except (OSError, ValueError) as error:
            raise _unusable("tls_cert_file", self._admin, _reason(error)) from None
        if self._admin.tls_client_ca_file:
            try:
                context.load_verify_locations(self._admin.tls_client_ca_file)
            except (OSError, ValueError) as error:
                raise _unusable("tls_client_ca_file", self._admin, _reason(error)) from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _unusable(key: str, admin: AdminConfig, why: str) -> ConfigError:
    return ConfigError(f"admin.{key}: {getattr(admin, key)} cannot be used: {why}")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{error.reason or 'not PEM'}; it must be PEM, and the key must fit the certificate and have no password"
    return str(error)
