"""Options that choose the way to a group of routers: through Kafka itself, or through an admin API."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from index.errors import ConfigError, DelayRouterError
from sidecar.cli.options import Command, config_option, load

# The modules that reach the group are loaded on demand: neither a list of commands nor a completion needs them.
if TYPE_CHECKING:
    from sidecar.config.model import Config
    from sidecar.operations.asking.api_client import ApiClient
    from sidecar.operations.desk import Operations

Desk: TypeAlias = "Operations | ApiClient"
"""The questions and changes of both ways; commands use the methods that both have."""

_READ: Final = ("Read",)
_WRITE: Final = ("Write",)
_LOOK: Final = ("Describe",)
_CHANGE: Final = ("Read", "Write")

_NEEDS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "status": {"policies": _READ, "status": _READ, "name": _LOOK},
    "pending": {"status": _READ, "name": _LOOK},
    "schedules": {"name": _READ, "state": _READ, "snapshots": _READ},
    "lookup": {"name": _READ, "state": _READ},
    "find": {"name": _READ, "state": _READ, "snapshots": _READ},
    "cancel": {"name": _WRITE, "receipts": _READ},
    "move": {"name": _WRITE, "receipts": _READ},
    "pause": {"policies": _CHANGE},
    "resume": {"policies": _CHANGE},
    "drain": {"policies": _CHANGE},
    "undrain": {"policies": _CHANGE},
    "set": {"policies": _CHANGE},
    "unset": {"policies": _CHANGE},
    "get": {"policies": _READ},
    "history": {"policies": _READ},
    "list": {"rejected": _READ},
    "redrive": {"rejected": _CHANGE, "name": _WRITE},
}
"""The operations of each command on the topics that a router keeps; ``name`` is the delay topic itself."""

_QUESTIONS: Final = frozenset({"status", "pending", "schedules", "lookup", "find"})
"""Commands that change nothing: without a configured delay topic they ask about those of the cluster."""

_OTHERWISE: Final = "; or ask a router: --api URL"

API_ENV: Final = "DELAY_ROUTER_API"
TOKEN_ENV: Final = "DELAY_ROUTER_TOKEN_FILE"  # noqa: S105 - the name of a variable


class SideOptions:
    """The chosen options; a context manager that opens the desk of the chosen side and closes it at the end."""

    def __init__(
        self,
        config_file: Path | None,
        brokers: str,
        api: str,
        token_file: Path | None,
        ca_file: Path | None,
        topic: str,
        command: str,
    ) -> None:
        self._config_file = config_file
        self._brokers = brokers
        self._api = api
        self._token_file = token_file
        self._ca_file = ca_file
        self._topic = topic
        self._command = command
        self._desk: Desk | None = None

    @property
    def is_api(self) -> bool:
        """Says that a router is asked."""
        return bool(self._api)

    def load(self) -> "Config":
        """Load the configuration of a command that asks Kafka."""
        return load(self._config_file, self._brokers)

    def __enter__(self) -> Desk:
        if not self._api:
            if self._ca_file is not None:
                raise click.UsageError("--ca-file belongs to --api")
            self._desk = self._straight()
            return self._desk
        if self._brokers:
            raise click.UsageError("--brokers is for a command that asks Kafka itself; leave out --api")
        if self._token_file is None:
            raise click.UsageError(f"--api needs --token-file (or {TOKEN_ENV}): a file with one token of the router's")
        self._desk = self._by_api(self._token_file)
        return self._desk

    def _straight(self) -> Desk:
        from sidecar.operations.desk import Operations  # noqa: PLC0415 - see above
        from sidecar.policies.origin import origin_of_command  # noqa: PLC0415 - see above

        config = self.load()
        if not config.delay_topics and self._command in _QUESTIONS:
            from sidecar.operations.asking.existing_topics import with_existing_topics  # noqa: PLC0415 - see above

            config = with_existing_topics(config)
        if self._topic:
            # Report an unknown delay topic before any broker is asked.
            config.require_delay_topic(self._topic)
        needs = needs_of(self._command, config, self._topic)
        return Operations.for_command(config, origin_of_command(), needs, _OTHERWISE)

    def _by_api(self, token_file: Path) -> Desk:
        from sidecar.operations.asking.api_client import ApiClient, read_token  # noqa: PLC0415 - see above

        client = ApiClient(self._api, read_token(token_file), self._ca_file)
        if client.is_in_the_clear:
            click.echo(f"warning: {self._api}: the token travels unencrypted; use https", err=True)
        return client

    def __exit__(self, *_: object) -> None:
        if self._desk is not None:
            self._desk.close()


def needs_of(command: str, config: "Config", topic: str) -> dict[str, Sequence[str]]:
    """Return the operations of a command on each topic, for one delay topic or for all."""
    return dict(_needs(command, config, topic))


def _needs(command: str, config: "Config", topic: str) -> Iterator[tuple[str, Sequence[str]]]:
    shared = {"policies": config.router.policies_topic, "status": config.router.status_topic}
    asked = [config.require_delay_topic(topic)] if topic else config.delay_topics
    for role, operations in _NEEDS.get(command, {}).items():
        names = [shared[role]] if role in shared else [getattr(each, role) for each in asked]
        yield from ((name, operations) for name in names if name)


def side_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--config``, ``--brokers``, ``--api``, ``--token-file`` and ``--ca-file``, as the argument ``chosen``."""
    path = click.Path(path_type=Path, dir_okay=False)

    @wraps(command)
    def joined(
        config_file: Path | None,
        brokers: str,
        api: str,
        token_file: Path | None,
        ca_file: Path | None,
        **others: Any,
    ) -> object:
        topic = others.get("topic") or (others["place"][0] if "place" in others else "")
        name = click.get_current_context().info_name or ""
        return command(chosen=SideOptions(config_file, brokers, api, token_file, ca_file, topic, name), **others)

    joined = click.option("--ca-file", type=path, help="With --api: certificates to trust.")(joined)
    joined = click.option("--token-file", type=path, envvar=TOKEN_ENV, help="With --api: a file with the token.")(
        joined
    )
    joined = click.option("--api", default="", envvar=API_ENV, metavar="URL", help="Ask a router's admin API instead.")(
        joined
    )
    joined = click.option("--brokers", default="", metavar="SERVERS", help="Brokers in place of the configured ones.")(
        joined
    )
    return config_option(joined)


def complete_topics(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the delay topics of the configuration that begin with ``incomplete``, for the completion of a shell."""
    from sidecar.config import model as configuration  # noqa: PLC0415 - see above

    try:
        config = configuration.load(ctx.params.get("config_file"))
    except (ConfigError, DelayRouterError):
        return []
    return [topic.name for topic in config.delay_topics if topic.name.startswith(incomplete)]


def topic_argument(*, required: bool = True) -> Callable[[Command], Command]:
    """Add the delay TOPIC, as the argument ``topic``; it is empty when it may be left out."""
    # An explicit default of None would count as a value, so that nobody missed a required argument.
    optional: dict[str, Any] = {} if required else {"required": False, "default": ""}
    return click.argument("topic", **optional, shell_complete=complete_topics)
