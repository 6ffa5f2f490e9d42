"""Runs a broker with TLS, SASL/SCRAM and Kafka's own authorizer, which denies every access without an ACL.

The broker has two listeners. ``CLIENTS`` (SASL_SSL) is under test. The plain listener belongs to the broker and to the
test, which is a super user there: it creates topics, users and ACLs through it, and the auditor reads through it.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from sidecar.cluster.rights.acls import Acl
from sidecar.dev import local_kafka
from sidecar.dev.local_kafka.settings import HOST, free_addresses

ADMIN: Final = "admin"
ROUTER: Final = "router"
TIMEOUT_S: Final = 30.0

_OPERATIONS: Final = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Delete": AclOperation.DELETE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}
_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_PATTERNS: Final = {"literal": ResourcePatternType.LITERAL, "prefixed": ResourcePatternType.PREFIXED}


@dataclass(frozen=True)
class Secured:
    """The broker, and the means of a client to connect through the secured listener."""

    plain: str
    bootstrap: str
    ca: Path
    admin: AdminClient

    def client(self, user: str) -> dict[str, str]:
        """Return the librdkafka settings of a principal, without the servers."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password(user),
        }

    def add_users(self, *users: str) -> None:
        """Create users without any right."""
        for user in users:
            self.set_password(user, password(user))

    def set_password(self, user: str, word: str) -> None:
        """Set the password of a user."""
        credentials = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upserts: list[UserScramCredentialAlteration] = [UserScramCredentialUpsertion(user, credentials, word.encode())]
        for future in self.admin.alter_user_scram_credentials(upserts).values():
            future.result(TIMEOUT_S)

    def grant(self, user: str, *acls: Acl) -> None:
        """Add ACLs, at least one."""
        for future in self.admin.create_acls([_binding(AclBinding, user, acl) for acl in acls]).values():
            future.result(TIMEOUT_S)

    def revoke(self, user: str, *acls: Acl) -> None:
        """Remove ACLs, each of which must exist."""
        for future in self.admin.delete_acls([_binding(AclBindingFilter, user, acl) for acl in acls]).values():
            assert len(future.result(TIMEOUT_S)) == 1

    def granted(self, user: str) -> set[tuple[str, str, str, str]]:
        """Return (resource type, name, pattern type, operation) of every ACL of a user at the brokers."""
        # A filter takes None for any name and any host, although its annotations do not say so.
        nothing: Any = None
        anything = AclBindingFilter(
            ResourceType.ANY,
            nothing,
            ResourcePatternType.ANY,
            f"User:{user}",
            nothing,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        found = self.admin.describe_acls(anything).result(TIMEOUT_S)
        return {
            (
                _word(_RESOURCES, each.restype),
                each.name,
                _word(_PATTERNS, each.resource_pattern_type),
                _word(_OPERATIONS, each.operation),
            )
            for each in found
        }


def password(user: str) -> str:
    """Return the password of a user: a canary that must not appear in any output."""
    return f"canary-of-{user}"


@contextmanager
def secured(directory: Path) -> Iterator[tuple[Secured, local_kafka.Cluster]]:
    """Start such a broker. Raise KafkaUnavailable if no own broker can be started, or openssl is missing."""
    ca, keystore = _certificate(directory)
    doors: list[str] = []

    def settings(address: local_kafka.Address) -> Mapping[str, str]:
        (other,) = free_addresses(1)
        doors.append(f"{HOST}:{other.port}")
        return _settings(address, doors[-1], keystore)

    with local_kafka.cluster(own_nodes=True, per_node=settings) as running:
        broker = Secured(running.bootstrap, doors[-1], ca, AdminClient({"bootstrap.servers": running.bootstrap}))
        broker.add_users(ADMIN, ROUTER)
        yield broker, running


def secured_or_skip(request: pytest.FixtureRequest, factory: pytest.TempPathFactory, *users: str) -> Iterator[Secured]:
    """Yield one secured broker for a module, with more ``users``; skip if no own broker can be started."""
    try:
        local_kafka.check_available(own_nodes=True)
    except local_kafka.KafkaUnavailable as error:
        pytest.skip(f"needs a broker of its own: {error}")
    failed_before = request.session.testsfailed
    with secured(factory.mktemp("secured")) as (broker, running):
        broker.add_users(*users)
        yield broker
        running.keep_logs = request.session.testsfailed > failed_before


def _settings(address: local_kafka.Address, door: str, keystore: Path) -> dict[str, str]:
    listeners = f"PLAINTEXT://{HOST}:{address.port},CONTROLLER://{HOST}:{address.controller_port},CLIENTS://{door}"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_SSL",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{ADMIN}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        # Clients authenticate themselves again at this interval, so that a password that has become invalid shows.
        "connections.max.reauth.ms": "5000",
        "listener.name.clients.scram-sha-512.sasl.jaas.config": scram,
        "listener.name.clients.ssl.keystore.type": "PEM",
        "listener.name.clients.ssl.keystore.location": str(keystore),
    }


def _certificate(directory: Path) -> tuple[Path, Path]:
    """Create a self-signed certificate for the address. Return it, and a file that also holds its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise local_kafka.KafkaUnavailable("openssl is missing")
    certificate, key, both = (directory / name for name in ("ca.pem", "key.pem", "keystore.pem"))
    call = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}"]
    call += ["-addext", f"subjectAltName=IP:{HOST}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(call, check=True, capture_output=True)
    both.write_text(key.read_text() + certificate.read_text())
    return certificate, both


def _binding(kind: Any, user: str, acl: Acl) -> Any:
    return kind(
        _RESOURCES[acl.resource_type],
        acl.name,
        _PATTERNS[acl.pattern_type],
        f"User:{user}",
        "*",
        _OPERATIONS[acl.operation],
        AclPermissionType.ALLOW,
    )


def _word(words: Mapping[str, Any], value: object) -> str:
    return next(word for word, each in words.items() if each == value)
