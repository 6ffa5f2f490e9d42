"""The command ``policy``: shows and changes the settings that may change while routers run."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from sidecar.cli.options import examples, json_option
from sidecar.cli.output import print_entries, print_json, print_sentence, print_table, shown_time
from sidecar.cli.side import SideOptions, complete_topics, side_options, topic_argument
from sidecar.policies.policy import DEFAULT, KEYS, Scope, ScopeKind

# No completion of a shell waits for this module.
if TYPE_CHECKING:
    from sidecar.policies.table import EffectiveValue

_LISTS: Final = frozenset({"allowed_targets"})
_WORDS: Final = {"true": True, "false": False}
_SWITCHES: Final = frozenset({"enabled", "paused", "drained"})
_TABLES: Final = frozenset({"retry"})
_NUMBERS: Final = frozenset({"records_per_second"})


@click.group("policy")
def policy_group() -> None:
    """Show and change policies, which routers follow within a second."""


def _complete_scopes(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    topics = [f"{ScopeKind.TOPIC}/{name}" for name in complete_topics(ctx, parameter, "")]
    return [each for each in (str(DEFAULT), *topics, f"{ScopeKind.TARGET}/") if each.startswith(incomplete)]


def _complete_keys(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [key for key in KEYS if key.startswith(incomplete)]


def _complete_settings(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [f"{key}=" for key in KEYS if f"{key}=".startswith(incomplete)]


def _scope(_: click.Context, __: click.Parameter, given: str) -> Scope:
    return Scope.parse(given)


def scope_argument(command: Any) -> Any:
    """Add the argument SCOPE: default, topic/NAME or target/NAME."""
    return click.argument("scope", callback=_scope, shell_complete=_complete_scopes)(command)


@policy_group.command("get", short_help="Show the settings in force with their origin, or all policies.")
@topic_argument(required=False)
@click.option("--target", default="", metavar="TOPIC", help="Only the settings for records to this target topic.")
@click.option("--all", "everything", is_flag=True, help="Show the settings that have their default, too.")
@json_option
@side_options
def get_command(topic: str, target: str, *, everything: bool, as_json: bool, chosen: SideOptions) -> None:
    """Show the settings in force for a delay TOPIC with their origin, or all policies.

    Settings that have their default are left out. --json shows every setting.
    """
    if target and not topic:
        raise click.UsageError("--target: name the delay topic, too; the settings for a target depend on it")
    if everything and not topic:
        raise click.UsageError("--all: name the delay topic, too")
    with chosen as operations:
        if topic:
            found = operations.effective(topic, target)
            if as_json:
                values = {
                    key: {"value": each.value, "origin": each.origin, "is_default": each.is_default}
                    for key, each in found.items()
                }
                print_json({"topic": topic, "target": target, "values": values})
            else:
                _print_effective(found, everything=everything)
            return
        policies, unreadable = operations.policies()
    if as_json:
        print_json({"policies": policies, "unreadable": unreadable})
        return
    if not policies and not unreadable:
        click.echo("No policy is set: the configuration decides.")
        return
    print_table(("scope", "key", "value"), _rows(policies), folding=("scope", "value"))
    for scope, why in unreadable.items():
        click.echo(f"warning: policy {scope} cannot be understood: {why}", err=True)


def _print_effective(found: "Mapping[str, EffectiveValue]", *, everything: bool) -> None:
    chosen = {key: each for key, each in found.items() if everything or not each.is_default}
    if chosen:
        rows = [(key, shown_value(each.value), each.origin) for key, each in chosen.items()]
        print_table(("key", "value", "from"), rows, folding=("value", "from"))
    if left := len(found) - len(chosen):
        print_sentence(f"Left out, because they have their default: {left} of {len(found)} settings (--all shows them)")


@policy_group.command("history", short_help="Show the changes of policies with their authors, the newest first.")
@json_option
@side_options
def history_command(*, as_json: bool, chosen: SideOptions) -> None:
    """Show the changes of policies with their authors, the newest first, as far back as the policies topic goes."""
    with chosen as operations:
        changes = operations.policy_changes()
    if as_json:
        print_json({"changes": changes})
        return
    if not changes:
        click.echo("The policies topic tells of no change.")
        return
    print_entries(map(_change_entry, changes))


def _change_entry(change: dict[str, Any]) -> tuple[str, str]:
    """Return the time, scope and author of a change, and all settings of the scope after it."""
    values = change["values"]
    said = ", ".join(f"{key} = {shown_value(value)}" for key, value in (values or {}).items())
    words = {"by": "by", "through": "through", "from": "address"}
    who = [f"{word} {change[key]}" for word, key in words.items() if change[key]]
    head = f"{shown_time(change['at_ms'])}  {change['scope']}  {' '.join(who) or 'author not known'}"
    return head, "(removed)" if values is None else said


def _rows(policies: dict[str, dict[str, Any]]) -> Iterable[tuple[str, str, str]]:
    for scope, values in sorted(policies.items()):
        for key, value in values.items():
            yield scope, key, shown_value(value)


@policy_group.command(
    "set",
    epilog=examples(
        "policy set topic/orders.delay max_delay=2d",
        "policy set target/billing records_per_second=100",
    ),
)
@scope_argument
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...", shell_complete=_complete_settings)
@side_options
def set_command(scope: Scope, settings: tuple[str, ...], *, chosen: SideOptions) -> None:
    """Set keys in a SCOPE: default, topic/NAME or target/NAME."""
    values = dict(parsed(text) for text in settings)
    with chosen as operations:
        operations.change_policy(scope, values)
    click.echo(f"{scope}: {', '.join(f'{key} = {shown_value(value)}' for key, value in values.items())}")


@policy_group.command("unset")
@scope_argument
@click.argument("keys", nargs=-1, metavar="[KEY]...", shell_complete=_complete_keys)
@click.option("--all", "everything", is_flag=True, help="Remove the whole policy of the scope.")
@side_options
def unset_command(scope: Scope, keys: tuple[str, ...], *, everything: bool, chosen: SideOptions) -> None:
    """Unset keys in a SCOPE, so that the less specific one decides."""
    if bool(keys) == everything:
        raise click.UsageError("name keys, or --all")
    with chosen as operations:
        if everything:
            operations.remove_policy(scope)
        else:
            operations.change_policy(scope, {}, keys)
    click.echo(f"{scope}: unset {'all' if everything else ', '.join(keys)}")


def parsed(text: str) -> tuple[str, object]:
    """Return key and value of KEY=VALUE, as JSON spells them; the policy reports an invalid value."""
    key, equals, raw = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{text!r}: write KEY=VALUE")
    if key in _LISTS:
        return key, [each.strip() for each in raw.split(",") if each.strip()]
    if key in _SWITCHES:
        return key, _WORDS.get(raw.lower(), raw)
    if key in _TABLES:
        return key, _json_table(key, raw)
    return key, int(raw) if key in _NUMBERS and raw.isascii() and raw.isdigit() else raw


def _json_table(key: str, raw: str) -> object:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise click.BadParameter(f"""{key}: a table as JSON is needed, as in '{{"attempts": 0}}'""") from None


def shown_value(value: object) -> str:
    """Return a value in the form in which the command line takes it."""
    if isinstance(value, list):
        return ",".join(str(each) for each in value) or "(none)"
    return value if isinstance(value, str) and value else json.dumps(value)
