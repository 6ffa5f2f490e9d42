"""Shell commands that mend what is wrong on a cluster, as messages show them; nothing here runs one."""

import shlex
from collections.abc import Iterable
from typing import Final

ANY_ROUTER: Final = "User:<router>"
"""Stands for the principal where it was not named."""


def alter_command(bootstrap: str, name: str, settings: dict[str, str]) -> str:
    """The shell command that gives a topic these settings."""
    # kafka-configs.sh takes a value with commas in brackets only.
    pairs = ",".join(f"{key}=[{value}]" if "," in value else f"{key}={value}" for key, value in settings.items())
    return (
        f"kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics --entity-name {name}"
        f" --add-config {pairs}"
    )


def acl_command(bootstrap: str, operations: Iterable[str], resource: str, principal: str = ANY_ROUTER) -> str:
    """The shell command that grants these operations on a resource, given as ``kafka-acls.sh`` takes it."""
    rights = " ".join(f"--operation {operation}" for operation in operations)
    return (
        f"kafka-acls.sh --bootstrap-server {bootstrap} --add --allow-principal {shlex.quote(principal)}"
        f" {rights} {resource}"
    )


def describe_hint(name: str) -> str:
    """What to grant so that settings can be seen."""
    return f"allow DescribeConfigs on topic {name}"
