"""Errors of the jobs; what a user can mend by other arguments is a ConfigError, as everywhere."""

import re
from typing import Final, NamedTuple

from index.errors import DelayRouterError


class JobError(DelayRouterError):
    """A job that cannot be done as asked, or did not get through; the message names the thing and the remedy."""


class NeedsOwnerError(JobError):
    """Records that are to be indexed cancel, replace or move others, which only the router can do that owns them."""


class GoneError(JobError):
    """Something that a job was to read was removed meanwhile; by what is stored now, it may not need it any more."""


_OWN: Final = re.compile(r"^(?:spark_backfill|index)\.errors\.(\w+): (.+)$", re.MULTILINE)
_DATA_LOSS: Final = "Some data may have been lost because they are not available in Kafka any more"


class Said(NamedTuple):
    """An error of ours within one of Spark: the name of its class, and its message."""

    name: str
    message: str


def said_by_task(text: str) -> Said | None:
    """What a task or a commit refuses, which arrives as the traceback of its Python process; None for other errors."""
    found = _OWN.search(text)
    return None if found is None else Said(*found.groups())


def is_data_loss(text: str) -> bool:
    """Whether an error of Spark says that records were removed while it read them."""
    return _DATA_LOSS in text
