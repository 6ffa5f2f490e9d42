"""``retry`` of a delay topic: the waits and the number of attempts of records that come back."""

from collections.abc import Callable
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from index.rules.retrying import MAX_ATTEMPTS, MAX_FACTOR, ONE, Retry
from sidecar.config.section import Section
from sidecar.config.units import Count, DurationMs, Thousandths, format_duration, format_thousandths
from sidecar.config.value_types import OptionalTopicName


def _from_to(least: int, most: int) -> Callable[[int], int]:
    """Return a check of the limits of a number of thousandths, which speaks of whole numbers."""

    def within(number: int) -> int:
        if not least <= number <= most:
            raise ValueError(f"expected a number from {least // ONE} to {most // ONE}")
        return number

    return within


class RetryConfig(Section):
    """``retry``: the attempts of a delay topic that replaces a ladder of retry topics."""

    first_ms: DurationMs = Field(1_000, alias="first", ge=1, description="Wait of the first attempt.")
    factor: Annotated[Thousandths, AfterValidator(_from_to(ONE, MAX_FACTOR))] = Field(
        2 * ONE,
        description="Each attempt waits this many times as long as the last one: 1 to 100, rounded to three decimals.",
    )
    max_ms: DurationMs = Field(3_600_000, alias="max", ge=1, description="Longest wait.")
    jitter: Annotated[Thousandths, AfterValidator(_from_to(0, ONE))] = Field(
        0,
        description="Largest part by which a wait is shortened, so that records that failed together do not come back"
        " together: 0 to 1, rounded to three decimals.",
    )
    attempts: Count = Field(
        ge=0,
        le=MAX_ATTEMPTS,
        description="Attempts of a record, unless its deliver-attempts-max says otherwise; 0: they are not counted.",
    )
    dead_letter: OptionalTopicName = Field(
        "", description="Target topic of records without an attempt left; required where attempts is not 0."
    )

    @model_validator(mode="after")
    def _has_an_end(self) -> Self:
        if self.attempts and not self.dead_letter:
            raise ValueError(
                "dead_letter: required, since records without an attempt left need a topic; name one, as in"
                ' dead_letter = "orders.dlq"'
            )
        return self

    @property
    def rule(self) -> Retry | None:
        """The retry in the terms of ``index``; None where attempts are not counted."""
        told = self.first_ms, self.factor, self.max_ms, self.jitter, self.attempts, self.dead_letter
        return Retry(*told) if self.attempts else None

    def spelled(self) -> dict[str, object]:
        """Return every key as the file spells it."""
        return {
            "first": format_duration(self.first_ms),
            "factor": format_thousandths(self.factor),
            "max": format_duration(self.max_ms),
            "jitter": format_thousandths(self.jitter),
            "attempts": self.attempts,
            "dead_letter": self.dead_letter,
        }


NO_RETRY = RetryConfig(attempts=0)
