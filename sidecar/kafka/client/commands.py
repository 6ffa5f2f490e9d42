"""Builds the shell commands that messages show to repair a cluster; this module runs none of them."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Final

ANY_ROUTER: Final = "User:<router>"
"""Placeholder for the principal where the user has not named it."""


def principal_of(kafka: Mapping[str, str]) -> str:
    """Return the principal that brokers make of the settings under ``[kafka]``; ANY_ROUTER where these do not tell.

    Brokers may map names to others; by default they do not.
    """
    name = kafka.get("sasl.username", "")
    mechanism = (kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms") or "").upper()
    uses_name = "SASL" in kafka.get("security.protocol", "").upper() and mechanism.startswith(("PLAIN", "SCRAM-"))
    return f"User:{name}" if name and uses_name else ANY_ROUTER


def alter_command(bootstrap: str, name: str, settings: dict[str, str]) -> str:
    """Return the shell command that gives a topic these settings."""
    # kafka-configs.sh accepts a value with commas only in brackets.
    pairs = ",".join(f"{key}=[{value}]" if "," in value else f"{key}={value}" for key, value in settings.items())
    return (
        f"kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics --entity-name {name}"
        f" --add-config {pairs}"
    )


def acl_command(bootstrap: str, operations: Iterable[str], resource: str, principal: str = ANY_ROUTER) -> str:
    """Return the shell command that grants these operations on a resource, named as ``kafka-acls.sh`` expects it."""
    rights = " ".join(f"--operation {operation}" for operation in operations)
    return (
        f"kafka-acls.sh --bootstrap-server {bootstrap} --add --allow-principal {shlex.quote(principal)}"
        f" {rights} {resource}"
    )


def describe_hint(name: str) -> str:
    """Return the advice that lets the router read the settings of a topic."""
    return f"allow DescribeConfigs on topic {name}"
