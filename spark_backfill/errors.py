"""Errors of the jobs; an error that other arguments mend is a ConfigError, as everywhere."""

import re
from typing import Final, NamedTuple

from index.errors import DelayRouterError


class JobError(DelayRouterError):
    """A job that is impossible as requested, or failed; the message names the thing and the remedy."""


class NeedsOwnerError(JobError):
    """A record to index cancels, replaces or moves others, which only the router that owns the partition can do."""


class GoneError(JobError):
    """An input of a job was removed meanwhile; by the state as stored now, the job may not need it any more."""


_OWN: Final = re.compile(r"^(?:spark_backfill|index)\.errors\.(\w+): (.+)$", re.MULTILINE)
_DATA_LOSS: Final = "Some data may have been lost because they are not available in Kafka any more"


class SparkError(NamedTuple):
    """An error of ours inside one of Spark: the name of its class, and its message."""

    name: str
    message: str


def said_by_task(text: str) -> SparkError | None:
    """Find the error of a task or a commit in the traceback of its Python process; None for other errors."""
    found = _OWN.search(text)
    return None if found is None else SparkError(*found.groups())


def is_data_loss(text: str) -> bool:
    """Return whether an error of Spark says that records were removed while it read them."""
    return _DATA_LOSS in text
