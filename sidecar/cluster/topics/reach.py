"""Connects a command to a cluster that answers, or reports the reason, which the timeout of a request would hide.

The same holds for rights: without them requests fail in many ways, of which few name the right or the topic.
"""

import re
import time
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AclOperation, AdminClient

from index.errors import DelayRouterError
from sidecar.cluster.topics.findings import Finding, error
from sidecar.config.model import Config
from sidecar.kafka.client import admin
from sidecar.kafka.client.commands import ANY_ROUTER, acl_command, principal_of
from sidecar.kafka.client.errors import error_of

SURE_AFTER_S: Final = 2.0
"""Connections that have failed for so long will not succeed; if none has failed yet, a broker is only slow. Together
with the start of the command a person waits for 3 s."""

# Name of the connection, duration and number of repetitions: repeated failures differ only in these.
_NOISE: Final = re.compile(r"^\S+: |\s*\(after \d+ms.*")
_ALL_DOWN: Final = re.compile(r"\d+/\d+ brokers are down")

POLL_S = 0.05

Needs = Mapping[str, Sequence[str]]
"""The operations that a command performs on each topic: Read, Write, Describe."""

_OPERATIONS: Final = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Describe": AclOperation.DESCRIBE,
}


class UnreachableError(DelayRouterError):
    """No broker answers; ``finding`` holds the reasons."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.message}; {finding.remedy}")
        self.finding = finding


def connect(config: Config) -> AdminClient:
    """Return an admin client of a cluster that answers.

    Raise UnreachableError, with the reasons, when it does not answer, and ConfigError for wrong settings.
    """
    failures: list[str] = []
    client = admin.connect(config, lambda failure: failures.append(failure.str()))
    require_answer(config, client, failures)
    return client


def require_answer(config: Config, client: AdminClient, failures: MutableSequence[str]) -> None:
    """Raise UnreachableError, with the reasons, when the cluster of a client does not answer.

    ``failures`` gets the errors of connections while the client is polled.
    """
    failures.clear()
    began_s = time.monotonic()
    answer = client.describe_cluster(request_timeout=admin.REQUEST_TIMEOUT_S)
    while not answer.done():
        client.poll(POLL_S)
        if failures and time.monotonic() - began_s > SURE_AFTER_S:
            raise UnreachableError(unreachable(config, failures))
    try:
        answer.result()
    except KafkaException as exception:
        client.poll(0)
        raise UnreachableError(unreachable(config, failures or [error_of(exception).str()])) from None


def unreachable(config: Config, why: Iterable[str]) -> Finding:
    """Return the finding that no broker answers; `why` are errors of connections, and each reason appears once."""
    reasons = dict.fromkeys(_NOISE.sub("", each) for each in why)
    # "All brokers are down" only summarizes the other errors, if there are any.
    told = [each for each in reasons if not _ALL_DOWN.fullmatch(each)] or [*reasons]
    return error(
        "brokers",
        f"{config.bootstrap} does not answer: {'; '.join(told)}",
        'check that Kafka runs, and "bootstrap.servers" and the security keys under [kafka]',
    )


def require_rights(config: Config, client: AdminClient, needs: Needs, otherwise: str = "") -> None:
    """Raise DelayRouterError for missing rights, with a line for each topic and the command that grants them.

    ``otherwise`` names another way to the same answer. A topic that does not exist lacks no right.
    """
    principal = principal_of(config.kafka)
    who = "this user" if principal == ANY_ROUTER else principal
    lines: list[str] = []
    for name, answer in admin.topic_facts(client, needs).items():
        if missing := _missing(needs[name], answer):
            grant = acl_command(config.bootstrap, missing, f"--topic {name}", principal)
            lines.append(f"{who} may not {' and '.join(missing)} topic {name}; to grant it: {grant}{otherwise}")
    if lines:
        raise DelayRouterError("\n".join(lines))


def _missing(operations: Sequence[str], answer: admin.Described) -> list[str]:
    if isinstance(answer, admin.Denied):
        return [*operations]
    # Without an authorizer brokers answer with every operation. Very old brokers answer with none, which says nothing.
    if answer is None or not answer.operations or AclOperation.ALL in answer.operations:
        return []
    return [each for each in operations if _OPERATIONS[each] not in answer.operations]
