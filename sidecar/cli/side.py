"""The two ways in which commands of an operator reach a group of routers: by Kafka itself, or by an admin API."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Final, Protocol

import click

from index.errors import ConfigError, DelayRouterError
from sidecar.cli.api_client import ApiClient, read_token
from sidecar.cli.options import Command, config_option, load
from sidecar.config import model as configuration
from sidecar.config.model import Config
from sidecar.policies.operations import Operations
from sidecar.policies.policy import Scope, plain_of
from sidecar.policies.switches import Switches
from sidecar.policies.table import EffectiveValue
from sidecar.policies.topic import PoliciesOnDemand
from sidecar.status.answers import Inquiries, LookupAnswer, PendingAnswer, StatusAnswer
from sidecar.status.inquiries import GroupInquiries
from sidecar.topics import reach

API_ENV: Final = "DELAY_ROUTER_API"
TOKEN_ENV: Final = "DELAY_ROUTER_TOKEN_FILE"  # noqa: S105 - the name of a variable


class Side(Inquiries, Switches, Protocol):
    """Questions and changes; errors as of ``Inquiries`` and :class:`sidecar.policies.operations.Operations`."""

    def policies(self) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Values of every policy by scope, and those that cannot be understood with the reason."""

    def effective(self, topic: str, target: str = "") -> dict[str, EffectiveValue]:
        """Every key with the value that holds, and where it comes from."""

    def change(self, scope: Scope, values: Mapping[str, object], unset: Iterable[str] = ()) -> object:
        """Set some values of a policy and unset others."""

    def remove(self, scope: Scope) -> object:
        """Remove a policy."""

    def close(self) -> object:
        """Let go of what is open."""


class KafkaSide(Operations):
    """Straight to Kafka, with the configuration of a router."""

    def __init__(self, config: Config) -> None:
        config.require_delay_topics()
        self._all_policies = PoliciesOnDemand(config)
        self._client = reach.connect(config)
        super().__init__(config, self._client, self._all_policies)

    @cached_property
    def _inquiries(self) -> GroupInquiries:
        return GroupInquiries(self._config, self._client, self._all_policies).start()

    def status(self, topic: str = "") -> StatusAnswer:
        """As ``Inquiries.status``."""
        self._all_policies.settle()
        return self._inquiries.status(topic)

    def pending(self, topic: str) -> PendingAnswer:
        """As ``Inquiries.pending``."""
        return self._inquiries.pending(topic)

    def lookup(self, topic: str, partition: int, offset: int) -> LookupAnswer:
        """As ``Inquiries.lookup``."""
        return self._inquiries.lookup(topic, partition, offset)

    def policies(self) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Values of every policy by scope, and those that cannot be understood with the reason."""
        table = self.table()
        return {str(scope): plain_of(policy) for scope, policy in table.policies.items()}, dict(table.unreadable)

    def close(self) -> None:
        """Stop what follows the status topic."""
        if "_inquiries" in self.__dict__:
            self._inquiries.close()


class Chosen:
    """What the options say; a context of the side that is asked."""

    def __init__(self, config_file: Path | None, api: str, token_file: Path | None, ca_file: Path | None) -> None:
        self._config_file = config_file
        self._api = api
        self._token_file = token_file
        self._ca_file = ca_file
        self._side: Side | None = None

    def __enter__(self) -> Side:
        if not self._api:
            if self._ca_file is not None:
                raise click.UsageError("--ca-file belongs to --api")
            straight = self._side = KafkaSide(load(self._config_file))
            return straight
        if self._token_file is None:
            raise click.UsageError(f"--api needs --token-file (or {TOKEN_ENV}): a file with one token of the router's")
        client = ApiClient(self._api, read_token(self._token_file), self._ca_file)
        if client.is_in_the_clear:
            click.echo(f"warning: {self._api}: the token travels unencrypted; use https", err=True)
        self._side = client
        return client

    def __exit__(self, *_: object) -> None:
        if self._side is not None:
            self._side.close()


def side_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--config``, ``--api``, ``--token-file`` and ``--ca-file``, as the argument ``chosen``."""
    path = click.Path(path_type=Path, dir_okay=False)

    @wraps(command)
    def joined(
        config_file: Path | None, api: str, token_file: Path | None, ca_file: Path | None, **others: Any
    ) -> object:
        return command(chosen=Chosen(config_file, api, token_file, ca_file), **others)

    joined = click.option("--ca-file", type=path, help="With --api: certificates to trust.")(joined)
    joined = click.option("--token-file", type=path, envvar=TOKEN_ENV, help="With --api: a file with the token.")(
        joined
    )
    joined = click.option("--api", default="", envvar=API_ENV, metavar="URL", help="Ask a router's admin API instead.")(
        joined
    )
    return config_option(joined)


def complete_topics(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Delay topics of the configuration, for a shell."""
    try:
        config = configuration.load(ctx.params.get("config_file"))
    except (ConfigError, DelayRouterError):
        return []
    return [topic.name for topic in config.delay_topics if topic.name.startswith(incomplete)]


def topic_argument(*, required: bool = True) -> Callable[[Command], Command]:
    """The delay TOPIC, as the argument ``topic``; empty when it may be left out."""
    return click.argument("topic", required=required, default=None if required else "", shell_complete=complete_topics)
