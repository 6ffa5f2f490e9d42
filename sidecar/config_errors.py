"""A ValidationError as lines for people: file or variable, key, what is wrong, and the key likely meant."""

import difflib
import typing
from collections.abc import Iterator

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sidecar.config_sources import Place, Sources

SHOWN_CHARACTERS = 80


class Problems(ValueError):
    """What is wrong between keys; a validator of the whole model raises it so that each problem keeps its place."""

    def __init__(self, found: list[tuple[Place, str]]) -> None:
        super().__init__("; ".join(message for _, message in found))
        self.found = found


def lines_of(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line per problem, key first, for values that come from no file."""
    lines: list[str] = []
    for details in error.errors(include_url=False):
        place = _known_part(details["loc"])
        lines.append(f"{key_path(place)}: {_problem(details, place, model)}")
    return lines


def describe(error: ValidationError, sources: Sources, model: type[BaseModel]) -> str:
    """One line per problem, in the order found."""
    lines: list[str] = []
    for details in error.errors(include_url=False):
        place = _known_part(details["loc"])
        cause = details.get("ctx", {}).get("error")
        found = cause.found if isinstance(cause, Problems) else [(place, _problem(details, place, model))]
        lines += [f"{sources.of(where)}: {key_path(where)}: {message}" for where, message in found]
    return "\n".join(lines)


def key_path(place: Place) -> str:
    """``router.tick``, ``delay_topics[0].name``, ``kafka."bootstrap.servers"``."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        elif "." in part:
            text += f'."{part}"'
        else:
            text += f".{part}"
    return text.removeprefix(".")


def _problem(details: ErrorDetails, place: Place, model: type[BaseModel]) -> str:
    kind = details["type"]
    if kind == "extra_forbidden":
        return f"unknown key{_did_you_mean(str(place[-1]), model_at(model, place[:-1]))}"
    if kind == "missing":
        return "required"
    message = details["msg"].removeprefix("Value error, ")
    given = repr(details["input"])
    # Values under [kafka] may be secrets.
    shown = len(given) <= SHOWN_CHARACTERS and isinstance(details["input"], str | int | float) and place[0] != "kafka"
    return f"{message}, not {given}" if shown and kind != "value_error" else message


def _known_part(place: tuple[int | str, ...]) -> Place:
    """Location without the marks pydantic adds for validators and unions."""
    return tuple(part for part in place if isinstance(part, int) or not part.startswith("function-"))


def _did_you_mean(key: str, model: type[BaseModel] | None) -> str:
    close = difflib.get_close_matches(key, list(keys_of(model)) if model else [], n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def keys_of(model: type[BaseModel]) -> Iterator[str]:
    """The keys of a model as the file spells them."""
    for name, field in model.model_fields.items():
        yield field.alias or name


def model_at(model: type[BaseModel], place: Place) -> type[BaseModel] | None:
    """The model that describes the table at `place`, or None where there is none."""
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
