"""The keys of librdkafka that ``[kafka]`` may hold: keys on which guarantees or the host's safety depend are refused.

``REFUSED``: keys that run code, or that the router sets itself because another value would break exactly-once, order or
never-early; each with the reason, or with the router's own key. ``LIMITED``: keys with a list of allowed values, as
other values run code or show secrets. ``HARMLESS``: keys whose values ``delay-router config`` may print; the values of
all other keys are masked, so a new secret is masked before anybody has heard of it. librdkafka itself decides whether
any other key exists.

This module also judges how credentials travel: unencrypted only if ``router.allow_sasl_plaintext`` permits it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

MASK: Final = "****"

_RUNS_CODE: Final = "it makes the process load or run code named in a configuration file"
_GUARANTEE: Final = "the router sets it itself; another value would break exactly-once delivery"
_POSITION: Final = "the router keeps its position in the state topic"

REFUSED: Final[dict[str, str]] = {
    "plugin.library.paths": _RUNS_CODE,
    "sasl.kerberos.kinit.cmd": f"{_RUNS_CODE}; renew the ticket outside, as with k5start",
    "ssl.engine.location": f"{_RUNS_CODE}; give the key by ssl.key.location or ssl.keystore.location",
    "ssl.engine.id": _RUNS_CODE,
    "group.id": "use router.group_id",
    "group.instance.id": "use router.instance_id",
    "session.timeout.ms": "use router.session_timeout",
    "heartbeat.interval.ms": "it follows router.session_timeout",
    "transactional.id": "it is <router.group_id>.<delay topic>.<partition>; use router.group_id",
    "transaction.timeout.ms": "use router.transaction_timeout",
    "log_level": "use router.log_level",
    "enable.idempotence": _GUARANTEE,
    "enable.gapless.guarantee": _GUARANTEE,
    "isolation.level": _GUARANTEE,
    "acks": _GUARANTEE,
    "request.required.acks": _GUARANTEE,
    "max.in.flight": _GUARANTEE,
    "max.in.flight.requests.per.connection": _GUARANTEE,
    "retries": _GUARANTEE,
    "message.send.max.retries": _GUARANTEE,
    "message.timeout.ms": f"{_GUARANTEE}; use router.transaction_timeout",
    "delivery.timeout.ms": f"{_GUARANTEE}; use router.transaction_timeout",
    "delivery.report.only.error": _GUARANTEE,
    "queuing.strategy": "the router needs the first-in-first-out queue",
    "partitioner": "released records are placed by murmur2_random, as Java producers do",
    "enable.auto.commit": _POSITION,
    "auto.commit.enable": _POSITION,
    "auto.commit.interval.ms": _POSITION,
    "enable.auto.offset.store": _POSITION,
    "auto.offset.reset": f"{_POSITION}; an offset out of range is an alarm, never a reset",
    "enable.partition.eof": "the router needs the end of a partition to restore its state",
    "group.protocol": "assignment uses the classic protocol, whose session timeout can be set",
    "group.remote.assignor": "assignment uses the classic protocol with cooperative-sticky",
    "partition.assignment.strategy": "assignment uses cooperative-sticky",
    "allow.auto.create.topics": "the router never creates topics by writing to them; use 'delay-router init'",
    "check.crcs": "checksums are always verified",
    "test.mock.num.brokers": "a mock cluster has neither read_committed nor fencing",
    "test.mock.broker.rtt": "a mock cluster has neither read_committed nor fencing",
}

DEBUG_CONTEXTS: Final = frozenset(
    {
        *(
            "generic",
            "broker",
            "topic",
            "metadata",
            "feature",
            "queue",
            "msg",
            "cgrp",
            "fetch",
            "interceptor",
        ),
        *("admin", "eos", "consumer", "assignor", "telemetry"),
    }
)
"""Values of ``debug`` that show neither credentials nor payload; ``security``, ``protocol``, ``all`` may."""

PROVIDERS: Final = frozenset({"default", "base", "fips", "legacy", "null"})
"""Providers of OpenSSL itself. Any other name, or an absolute path, is a shared library that is loaded and run."""

LIMITED: Final[dict[str, str]] = {
    "debug": f"contexts {', '.join(sorted(DEBUG_CONTEXTS))}; others could show credentials or payload",
    "ssl.providers": f"{', '.join(sorted(PROVIDERS))}; any other name is a library that would be loaded and run",
    "sasl.kerberos.principal": "letters, digits and . _ - / @ :; librdkafka puts it into a shell command",
    "sasl.kerberos.keytab": "letters, digits and . _ - / @ :; librdkafka puts it into a shell command",
    "sasl.kerberos.service.name": "letters, digits and . _ - / @ :; librdkafka puts it into a shell command",
}
"""Keys with a description of their allowed values."""

_SHELL_SAFE: Final = re.compile(r"[A-Za-z0-9._/@:-]*")

_OAUTH_METHOD: Final = "sasl.oauthbearer.method"
_OAUTH_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_VERIFICATION: Final = "enable.ssl.certificate.verification"
_HOST_NAMES: Final = "ssl.endpoint.identification.algorithm"

HARMLESS: Final = frozenset(
    {
        "bootstrap.servers",
        "metadata.broker.list",
        "client.id",
        "client.rack",
        "client.dns.lookup",
        "broker.address.family",
        "broker.address.ttl",
        "broker.version.fallback",
        "api.version.request",
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.grant.type",
        "sasl.kerberos.service.name",
        "sasl.kerberos.min.time.before.relogin",
        "ssl.ca.location",
        "ssl.ca.certificate.stores",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.keystore.location",
        "ssl.crl.location",
        "ssl.cipher.suites",
        "ssl.curves.list",
        "ssl.sigalgs.list",
        "ssl.providers",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
        "https.ca.location",
        "debug",
        "statistics.interval.ms",
        "socket.timeout.ms",
        "socket.keepalive.enable",
        "socket.nagle.disable",
        "socket.max.fails",
        "socket.send.buffer.bytes",
        "socket.receive.buffer.bytes",
        "socket.connection.setup.timeout.ms",
        "connections.max.idle.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "metadata.max.age.ms",
        "topic.metadata.refresh.interval.ms",
        "topic.metadata.propagation.max.ms",
        "max.poll.interval.ms",
        "message.max.bytes",
        "message.copy.max.bytes",
        "receive.message.max.bytes",
        "fetch.message.max.bytes",
        "max.partition.fetch.bytes",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "fetch.wait.max.ms",
        "fetch.error.backoff.ms",
        "fetch.queue.backoff.ms",
        "queued.min.messages",
        "queued.max.messages.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.ms",
        "linger.ms",
        "batch.size",
        "batch.num.messages",
        "compression.codec",
        "compression.type",
        "compression.level",
        "sticky.partitioning.linger.ms",
        "enable.metrics.push",
    }
)

_NOT_SHOWN: Final = frozenset(
    {
        "sasl.username",
        "sasl.password",
        "ssl.key.password",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.extensions",
        _OAUTH_ENDPOINT,
    }
)
KNOWN: Final = HARMLESS | REFUSED.keys() | _NOT_SHOWN
"""Names to compare a mistyped key with; the list of allowed keys is longer."""

MOST_UNPACKED: Final = "receive.message.max.bytes"
MOST_UNPACKED_BYTES: Final = 100_000_000
"""Default of the client."""


def most_unpacked_bytes(kafka: Mapping[str, object]) -> int:
    """Return the most bytes that a batch of zstd may have unpacked, and that a record of any codec may have."""
    return int(str(kafka.get(MOST_UNPACKED, MOST_UNPACKED_BYTES)))


def refusal(key: str, value: str) -> str | None:
    """Return the reason why ``[kafka]`` must not hold this key and value, or None.

    librdkafka decides whether the key exists.
    """
    if key in REFUSED:
        return f"not allowed: {REFUSED[key]}"
    if key.endswith("_cb") or key.startswith("on_") or key == "logger":
        return "not allowed: callbacks cannot come from a configuration"
    if key == "debug":
        refused = _others(value, DEBUG_CONTEXTS)
        if refused:
            allowed = ", ".join(sorted(DEBUG_CONTEXTS))
            return f"debug={','.join(refused)} could show credentials or payload; allowed are {allowed}"
    if key == "ssl.providers" and (refused := _others(value, PROVIDERS)):
        return f"{','.join(refused)} would be loaded as a library and run; allowed are {', '.join(sorted(PROVIDERS))}"
    if key.startswith("sasl.kerberos.") and not _SHELL_SAFE.fullmatch(value):
        return f"librdkafka puts it into a shell command; allowed are {LIMITED['sasl.kerberos.service.name']}"
    return None


def in_the_clear(kafka: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the keys by which credentials would travel unencrypted, each with the fault and the remedy."""
    if _protocol(kafka) == "SASL_PLAINTEXT":
        yield "security.protocol", 'SASL_PLAINTEXT sends credentials and records unencrypted; use "SASL_SSL"'
    if kafka.get(_OAUTH_ENDPOINT, "").strip().lower().startswith("http:"):
        yield _OAUTH_ENDPOINT, "http: sends the client's secret unencrypted; use https:"


def against_signed_tokens(kafka: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the keys that prevent the use of tokens signed by the router (``router.msk_region``), with the remedy."""
    if _protocol(kafka) != "SASL_SSL":
        yield "security.protocol", 'router.msk_region needs "SASL_SSL"'
    if not _wants_token(kafka):
        yield "sasl.mechanism", 'router.msk_region needs "OAUTHBEARER"'
    if _fetches_token(kafka):
        yield _OAUTH_METHOD, "router.msk_region signs tokens itself; remove this key"


def doubts(kafka: Mapping[str, str], *, signs_tokens: bool = False) -> Iterator[tuple[str, str]]:
    """Yield settings that are allowed but most likely unintended, each with the remedy.

    ``signs_tokens`` says that the router signs tokens itself.
    """
    protocol = _protocol(kafka)
    sasl = sorted(key for key in kafka if key.startswith("sasl."))
    if sasl and not protocol.startswith("SASL_"):
        message = f"{', '.join(sasl)}: not used, because security.protocol is {protocol}"
        yield message, 'set "security.protocol" = "SASL_SSL"'
    if protocol.startswith("SASL_") and _wants_token(kafka) and not (signs_tokens or _fetches_token(kafka)):
        message = f"OAUTHBEARER without {_OAUTH_METHOD}=oidc: nothing fetches a token, so no connection is ever made"
        yield message, f'set "{_OAUTH_METHOD}" = "oidc" and "{_OAUTH_ENDPOINT}", or router.msk_region for Amazon MSK'
    if protocol.endswith("SSL"):
        if kafka.get(_VERIFICATION, "true").strip().lower() in {"false", "f", "0"}:
            yield f"{_VERIFICATION}=false: anybody can pose as the brokers", f'remove "{_VERIFICATION}"'
        elif kafka.get(_HOST_NAMES, "https").strip().lower() == "none":
            yield f"{_HOST_NAMES}=none: any host with a certificate can pose as the brokers", f'remove "{_HOST_NAMES}"'


def _wants_token(kafka: Mapping[str, str]) -> bool:
    return "OAUTHBEARER" in {kafka.get(key, "").strip().upper() for key in ("sasl.mechanism", "sasl.mechanisms")}


def _fetches_token(kafka: Mapping[str, str]) -> bool:
    """Say whether librdkafka gets tokens by itself; otherwise it asks a callback."""
    unsecured = kafka.get("enable.sasl.oauthbearer.unsecure.jwt", "false").strip().lower() in {"true", "t", "1"}
    return unsecured or kafka.get(_OAUTH_METHOD, "default").strip().lower() == "oidc"


def _protocol(kafka: Mapping[str, str]) -> str:
    return kafka.get("security.protocol", "plaintext").strip().upper()


def _others(value: str, allowed: frozenset[str]) -> list[str]:
    return sorted({each.strip() for each in value.split(",")} - allowed)


def masked(kafka: dict[str, str]) -> dict[str, str]:
    """Return the same keys with ``****`` in place of each value, except for harmless keys."""
    return {key: value if key in HARMLESS else MASK for key, value in kafka.items()}
