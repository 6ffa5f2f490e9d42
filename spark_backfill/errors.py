"""Errors of the jobs; what a user can mend by other arguments is a ConfigError, as everywhere."""

from index.errors import DelayRouterError


class JobError(DelayRouterError):
    """A job that cannot be done as asked, or did not get through; the message names the thing and the remedy."""


class NeedsOwnerError(JobError):
    """Records that are to be indexed cancel, replace or move others, which only the router can do that owns them."""
