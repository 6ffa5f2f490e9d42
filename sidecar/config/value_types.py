"""Types of configuration values: they check the form of a name, a pattern or an address when it is read."""

import re
from collections.abc import Callable
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from index.rules.targets import INTERNAL_PREFIX, illegal_pattern, illegal_topic
from sidecar.config.problems import SHOWN_CHARACTERS

MAX_PORT: Final = 65_535
MAX_REASON_CHARACTERS: Final = 200
_LISTEN: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+):([0-9]{1,5})")

_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]{2,45}")

_ADDRESS: Final = re.compile(r"https?://[!-~]+")
_HEADER_PATTERN: Final = re.compile(r"[^][\s]{1,249}")
_BRACES: Final = re.compile(r"\{[^{}]*\}?|\}")


def topic_name(name: str) -> str:
    """Return the name, or raise ValueError if it cannot be a topic of ours."""
    if problem := illegal_topic(name):
        raise ValueError(f"{_shown(name)} is not a legal topic name: {problem}")
    if name.startswith(INTERNAL_PREFIX):
        raise ValueError(f"{name!r}: names starting with {INTERNAL_PREFIX!r} belong to Kafka")
    return name


def _shown(name: str) -> str:
    return repr(name) if len(name) <= SHOWN_CHARACTERS else f"{name[:SHOWN_CHARACTERS]!r}... ({len(name)} characters)"


def _optional_topic_name(name: str) -> str:
    return topic_name(name) if name else name


def _policies_topic_name(name: str) -> str:
    if name and (problem := illegal_topic(name)):
        raise ValueError(f"{_shown(name)} is not a legal topic name: {problem}")
    return name


def _target_pattern(pattern: str) -> str:
    if problem := illegal_pattern(pattern):
        raise ValueError(f"{_shown(pattern)}: {problem}")
    if pattern.startswith(INTERNAL_PREFIX):
        raise ValueError(f"{pattern!r}: names starting with {INTERNAL_PREFIX!r} are never a target")
    return pattern


def _printable(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError(f"{text!r} has spaces at an end or characters that cannot be printed")
    return text


def _readable(text: str) -> str:
    """Replace each unprintable character by a blank, because a terminal might obey it."""
    return "".join(each if each.isprintable() else " " for each in text).strip()


def _listen_address(listen: str) -> str:
    match = _LISTEN.fullmatch(listen)
    if match is None or int(match[2]) > MAX_PORT:
        raise ValueError(f"an address is written HOST:PORT, as in 127.0.0.1:8080 or [::1]:8080, not {listen!r}")
    return listen


def _host_name(name: str) -> str:
    if not _HOST.fullmatch(name):
        raise ValueError(f"{_shown(name)} is not the name or address of a host; write it without a port")
    return name.lower()


def _header_pattern(pattern: str) -> str:
    if not _HEADER_PATTERN.fullmatch(pattern):
        raise ValueError(f"{_shown(pattern)} is no name of a header; * stands for any text, ? for one character")
    return pattern.lower()


def _link_template(places: frozenset[str]) -> Callable[[str], str]:
    """Return a check of an address with the names of these places in braces, each of which may be left out."""

    def check(template: str) -> str:
        unknown = set(_BRACES.findall(template)) - places
        if template and (not _ADDRESS.fullmatch(template) or unknown or "{topic}" not in template):
            names = ", ".join(sorted(places))
            raise ValueError(f"{_shown(template)} is no address of http or https with {{topic}}; in braces: {names}")
        return template

    return check


def _kafka_text(value: object) -> object:
    """Spell whole numbers and booleans as librdkafka does; pydantic accepts or refuses all other values."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


TopicName = Annotated[str, AfterValidator(topic_name)]
OptionalTopicName = Annotated[str, AfterValidator(_optional_topic_name)]
PoliciesTopicName = Annotated[str, AfterValidator(_policies_topic_name)]
TargetPattern = Annotated[str, AfterValidator(_target_pattern)]
KafkaValue = Annotated[str, BeforeValidator(_kafka_text)]
Printable = Annotated[str, AfterValidator(_printable)]
Reason = Annotated[str, Field(max_length=MAX_REASON_CHARACTERS), AfterValidator(_readable)]
ListenAddress = Annotated[str, AfterValidator(_listen_address)]
HeaderPattern = Annotated[str, AfterValidator(_header_pattern)]
HostName = Annotated[str, AfterValidator(_host_name)]
TopicLink = Annotated[str, AfterValidator(_link_template(frozenset({"{topic}"})))]
RecordLink = Annotated[str, AfterValidator(_link_template(frozenset({"{topic}", "{partition}", "{offset}"})))]
