"""The attempts of a record in a delay topic that counts them, as Spark expressions on its headers.

A copy must tell the attempt: the headers of retries are compared behind all other headers of the user, since a router
drops the ones that come and writes its own at the end. ``delay-target`` differs from copy to copy and is left out. No
code is shared with the router.
"""

import re
from collections.abc import Iterable
from fractions import Fraction
from math import ceil
from typing import Final, Protocol

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_backfill.audit.protocol import AT_ONCE, UNREADABLE, plain, whole_number
from spark_backfill.audit.protocol import Protocol as DelayProtocol

_ATTEMPT: Final = "delay-attempt"
_TARGET: Final = "delay-target"
_EXHAUSTED: Final = "delay-attempts-exhausted"
_MAX: Final = "deliver-attempts-max"
_MOST: Final = 1_000
_THOUSAND: Final = 1_000
_LONG: Final = "bigint"
_HEADERS: Final = "array<struct<key:string,value:binary>>"


class RetryTerms(Protocol):
    """The retry of a delay topic; factor and jitter are in thousandths."""

    @property
    def first_ms(self) -> int:
        """Wait of the first attempt."""

    @property
    def factor(self) -> int:
        """Growth of the wait from one attempt to the next."""

    @property
    def max_ms(self) -> int:
        """Longest wait."""

    @property
    def jitter(self) -> int:
        """Largest part by which a wait is shortened."""

    @property
    def attempts(self) -> int:
        """Attempts of a record that asks for no other number."""

    @property
    def dead_letter(self) -> str:
        """Target of records without an attempt left."""


class Attempts:
    """Expressions for the records of one delay topic; ``allowed`` are the names and patterns of its targets."""

    def __init__(self, retry: RetryTerms, default_target: str, allowed: Iterable[str]) -> None:
        self._retry = retry
        self._default = default_target
        patterns = [".*".join(map(re.escape, each.split("*"))) for each in (*allowed, default_target) if each]
        self._allowed = rf"\A(?:{'|'.join(patterns)})\z" if patterns else r"\A\z"
        self._waits_ms = [_wait_ms(retry, made) for made in range(_MOST)]
        # All further attempts have the last wait.
        while len(self._waits_ms) > 1 and self._waits_ms[-2] == self._waits_ms[-1]:
            self._waits_ms.pop()

    def due_ms(self, protocol: DelayProtocol, headers: Column, control: Column, timestamp_ms: Column) -> Column:
        """Compute the latest due time in epoch ms, AT_ONCE or UNREADABLE."""
        return (
            f.when(self._made(headers).isNull() | self._most(headers).isNull(), f.lit(UNREADABLE).cast(_LONG))
            .when(self._is_exhausted(headers), f.lit(AT_ONCE).cast(_LONG))
            .when(protocol.names_time(control), protocol.due_ms(control, timestamp_ms))
            .otherwise(f.coalesce(f.try_add(timestamp_ms, self._wait_ms(headers)), f.lit(UNREADABLE).cast(_LONG)))
        )

    def sooner_ms(self, protocol: DelayProtocol, headers: Column, control: Column) -> Column:
        """Compute how much sooner than at the latest the record may be due."""
        waits = ~protocol.names_time(control) & ~f.coalesce(self._is_exhausted(headers), f.lit(True))
        shortened = f.floor(self._wait_ms(headers) * f.lit(self._retry.jitter) / f.lit(_THOUSAND)).cast(_LONG)
        return f.when(waits, shortened).otherwise(f.lit(0).cast(_LONG))

    def targets(self, asked: Column, headers: Column) -> Column:
        """Return the targets of a record that asks for the targets ``asked``."""
        before = f.get(_named(headers, _TARGET), f.lit(0))["value"].cast("string")
        default = f.array(f.lit(self._default)) if self._default else f.expr("cast(array() as array<string>)")
        return (
            f.when(self._is_exhausted(headers), f.array(f.lit(self._retry.dead_letter)))
            .when(f.size(asked) > 0, asked)
            .when(before.rlike(self._allowed), f.array(before))
            .otherwise(default)
        )

    def to_be_told(self, user: Column, headers: Column) -> Column:
        """Return the headers that a copy of a record must have, ``user`` among them."""
        made = self._made(headers)
        number = _header(_ATTEMPT, made + 1)
        spent = f.concat(_named(headers, _ATTEMPT), _header(_EXHAUSTED, made))
        return f.concat(_others(user), f.when(self._is_exhausted(headers), spent).otherwise(number))

    @staticmethod
    def told(user: Column, headers: Column) -> Column:
        """Return the headers of a copy in the same order."""
        return f.concat(_others(user), _named(headers, _ATTEMPT), _named(headers, _EXHAUSTED))

    def _made(self, headers: Column) -> Column:
        return _count(headers, _ATTEMPT, 0, 0)

    def _most(self, headers: Column) -> Column:
        return _count(headers, _MAX, 1, self._retry.attempts)

    def _is_exhausted(self, headers: Column) -> Column:
        return self._made(headers) >= self._most(headers)

    def _wait_ms(self, headers: Column) -> Column:
        waits = f.array(*(f.lit(each).cast(_LONG) for each in self._waits_ms))
        return f.get(waits, f.least(self._made(headers), f.lit(len(self._waits_ms) - 1)).cast("int"))


def _wait_ms(retry: RetryTerms, made: int) -> int:
    return min(ceil(retry.first_ms * Fraction(retry.factor, _THOUSAND) ** made), retry.max_ms)


def _named(headers: Column, name: str) -> Column:
    return f.filter(headers, lambda each: plain(each["key"]) == name)


def _others(user: Column) -> Column:
    return f.filter(user, lambda each: ~plain(each["key"]).isin(_ATTEMPT, _TARGET, _EXHAUSTED))


def _header(name: str, number: Column) -> Column:
    value = f.coalesce(number.cast("string"), f.lit("")).cast("binary")
    return f.array(f.struct(f.lit(name).alias("key"), value.alias("value"))).cast(_HEADERS)


def _count(headers: Column, name: str, least: int, absent: int) -> Column:
    """Read the number in the one header of a name; null if the router should reject the record."""
    found = _named(headers, name)
    number = whole_number(f.get(found, f.lit(0))["value"].cast("string"))
    fits = (f.size(found) == 1) & number.between(least, _MOST)
    return f.when(f.size(found) == 0, f.lit(absent).cast(_LONG)).when(fits, number)
