"""Finds metrics, labels, and matched values in a PromQL expression, by tokens and not by a grammar."""

import re
from typing import Final, NamedTuple

_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_TOKEN: Final = re.compile(
    rf"(?P<string>{_STRING})|(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)|(?P<range>\[[^\]]*\])|(?P<other>[(){{}}]|\S)"
)
_MATCHER: Final = re.compile(rf"([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*({_STRING})")
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR: Final = re.compile(rf"([A-Za-z_:][A-Za-z0-9_:]*)\s*\{{((?:{_STRING}|[^}}\"])*)\}}")
_PREFIX: Final = ("delay_router_", "process_")
_MADE: Final = re.compile(rf"label_replace\(.*?,\s*\"([A-Za-z_]+)\",\s*{_STRING}", re.DOTALL)


class Match(NamedTuple):
    """``metric{label="value"}``, with any operator."""

    metric: str
    label: str
    operator: str
    value: str


def metrics(expression: str) -> set[str]:
    """Return the names of the router's metrics in an expression."""
    names = (token["name"] for token in _TOKEN.finditer(expression) if token["name"])
    return {name for name in names if name.startswith(_PREFIX)}


def matches(expression: str) -> list[Match]:
    """Return every matcher, with its metric."""
    return [
        Match(selector[1], matcher[1], matcher[2], matcher[3][1:-1])
        for selector in _SELECTOR.finditer(expression)
        for matcher in _MATCHER.finditer(selector[2])
    ]


def grouped(expression: str) -> set[str]:
    """Return the labels of aggregations and joins, without the labels that ``label_replace`` makes."""
    named = {label.strip() for group in _GROUPING.finditer(expression) for label in group[1].split(",")}
    return named - {made[1] for made in _MADE.finditer(expression)} - {""}
