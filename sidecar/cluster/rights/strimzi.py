"""Renders the rights of a principal as a KafkaUser of Strimzi; ``check --acls --format strimzi`` prints it.

The user operator of Strimzi makes the user, its secret and its ACLs from it; ``kafka.strimzi.io/v1`` exists since
Strimzi 0.49. Values are written as JSON, which is valid YAML.
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from index.errors import ConfigError
from sidecar.cluster.rights.acls import PREFIXED, TRANSACTIONAL_ID, Acl, NeededRights

API_VERSION: Final = "kafka.strimzi.io/v1"
UNKNOWN_CLUSTER: Final = "<cluster>"
"""Placeholder that is no valid label, so that the API server refuses a KafkaUser in which it was not replaced."""

_USER: Final = re.compile(r"User:(CN=)?([a-z0-9]([-a-z0-9.]*[a-z0-9])?)")
_BOOTSTRAP: Final = re.compile(r"([a-z0-9]([-a-z0-9]*[a-z0-9])?)-kafka-bootstrap(\.[-a-z0-9.]+)?(:\d+)?")


def kafka_user(needed: NeededRights, bootstrap: str, principal: str) -> Iterator[str]:
    """Yield the lines of the KafkaUser, with the reasons as comments.

    Raise ConfigError when no KafkaUser can have the principal.
    """
    authentication, name = _identity(principal)
    cluster = _cluster(bootstrap)
    if cluster == UNKNOWN_CLUSTER:
        yield f"# NOTE: {bootstrap} does not tell the name of the Kafka resource: put it in place of {UNKNOWN_CLUSTER}"
    for note in needed.notes:
        yield f"# NOTE: {note}"
    yield from (f"apiVersion: {API_VERSION}", "kind: KafkaUser", "metadata:", f"  name: {json.dumps(name)}")
    yield from ("  labels:", f"    strimzi.io/cluster: {json.dumps(cluster)}")
    yield from ("spec:", "  authentication:", f"    type: {authentication}")
    yield from ("  authorization:", "    type: simple", "    acls:")
    for _, acls in groupby(needed.acls, lambda acl: acl.resource):
        yield from _rule([*acls])


def _identity(principal: str) -> tuple[str, str]:
    """Return the authentication type and the name: a certificate gives ``User:CN=name``, SCRAM gives ``User:name``."""
    found = _USER.fullmatch(principal)
    if not found:
        raise ConfigError(
            f"--principal {principal}: no KafkaUser has such a name; write User:NAME for SCRAM-SHA-512,"
            " User:CN=NAME for certificates, with a NAME of small letters, digits, '-' and '.'"
        )
    return "tls" if found[1] else "scram-sha-512", found[2]


def _cluster(bootstrap: str) -> str:
    """Return the name of the Kafka resource, from the name that Strimzi gives to the Service of its brokers."""
    found = _BOOTSTRAP.fullmatch(bootstrap.partition(",")[0].strip())
    return found[1] if found else UNKNOWN_CLUSTER


def _rule(acls: Sequence[Acl]) -> Iterator[str]:
    """Yield the lines of one rule of the KafkaUser, for one resource."""
    resource_type, name, pattern_type = acls[0].resource
    resource = {
        "type": "transactionalId" if resource_type == TRANSACTIONAL_ID else resource_type,
        "name": name,
        "patternType": "prefix" if pattern_type == PREFIXED else pattern_type,
    }
    for acl in acls:
        yield f"      # {acl.operation}: {acl.why}"
    yield f"      - resource: {json.dumps(resource)}"
    yield f"        operations: {json.dumps([acl.operation for acl in acls])}"
