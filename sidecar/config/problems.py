"""Renders a ValidationError as lines for people: file or variable, key, fault, and the key likely meant."""

import difflib
import typing
from collections.abc import Iterable, Iterator

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sidecar.config.sources import KeyPath, Sources

SHOWN_CHARACTERS = 80
SHOWN_BITS = 256


class Problems(ValueError):
    """Problems between several keys; a validator of the whole model raises it so that each problem keeps its place."""

    def __init__(self, found: list[tuple[KeyPath, str]]) -> None:
        super().__init__("; ".join(message for _, message in found))
        self.found = found


def lines_of(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Return one line per problem, key first, for values that come from no file."""
    lines: list[str] = []
    for details in error.errors(include_url=False):
        place = _place_of(details)
        lines.append(f"{key_path(place)}: {_problem(details, place, model)}")
    return lines


def describe(error: ValidationError, sources: Sources, model: type[BaseModel]) -> str:
    """Return one line per problem, in the order found."""
    lines: list[str] = []
    for details in error.errors(include_url=False):
        place = _place_of(details)
        cause = details.get("ctx", {}).get("error")
        found = cause.found if isinstance(cause, Problems) else [(place, _problem(details, place, model))]
        lines += [f"{sources.of(where)}: {key_path(where)}: {message}" for where, message in found]
    # JSON can contain half of a surrogate pair, which no terminal accepts.
    return "\n".join(lines).encode(errors="backslashreplace").decode()


def key_path(place: KeyPath) -> str:
    """Return a key as messages show it: ``router.tick``, ``delay_topics[0].name``, ``kafka."bootstrap.servers"``."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        elif "." in part:
            text += f'."{part}"'
        else:
            text += f".{part}"
    return text.removeprefix(".")


def _problem(details: ErrorDetails, place: KeyPath, model: type[BaseModel]) -> str:
    kind = details["type"]
    if kind == "extra_forbidden":
        section = model_at(model, place[:-1])
        return f"unknown key{did_you_mean(str(place[-1]), keys_of(section) if section else ())}"
    if kind == "missing":
        return "required"
    message = details["msg"].removeprefix("Value error, ")
    given = _shown(details["input"])
    # Values under [kafka] may be secrets.
    shown = given and place[:1] != ("kafka",) and kind != "value_error"
    return f"{message}, not {given}" if shown else message


def _shown(value: object) -> str:
    """Return the value as it is written, or an empty text if it is too long or no plain value."""
    # The size of an integer comes first: Python refuses to format one of thousands of digits.
    if not isinstance(value, str | int | float) or (isinstance(value, int) and value.bit_length() > SHOWN_BITS):
        return ""
    given = repr(value)
    return given if len(given) <= SHOWN_CHARACTERS else ""


def _place_of(details: ErrorDetails) -> KeyPath:
    """Return the location of an error without the marks of pydantic for validators; a user's key may look like one."""
    place = details["loc"]
    users = len(place) - 1 if details["type"] == "extra_forbidden" else len(place)
    return tuple(
        part
        for number, part in enumerate(place)
        if isinstance(part, int) or number == users or not part.startswith("function-")
    )


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: a suggestion if a known name is similar, else nothing."""
    close = difflib.get_close_matches(given, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def keys_of(model: type[BaseModel]) -> Iterator[str]:
    """Yield the keys of a model as the file spells them."""
    for name, field in model.model_fields.items():
        yield field.alias or name


def model_at(model: type[BaseModel], place: KeyPath) -> type[BaseModel] | None:
    """Return the model that describes the table at `place`, or None if there is none."""
    current: type[BaseModel] | None = model
    for part in place:
        if isinstance(part, int):
            continue
        fields = {field.alias or name: field for name, field in current.model_fields.items()} if current else {}
        current = _model_in(fields[part].annotation) if part in fields else None
    return current


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, BaseModel) else None
    return next((found for part in typing.get_args(annotation) if (found := _model_in(part))), None)
