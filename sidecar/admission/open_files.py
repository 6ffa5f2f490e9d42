"""Files that need no token: they hold nothing of the cluster, and a browser cannot send a token for its first request.

Size, Host and pace are checked for them, too.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class OpenFile(NamedTuple):
    """A small file and its headers."""

    body: bytes
    headers: Mapping[str, str]


NO_FILES: Final[Mapping[str, OpenFile]] = {}
"""By path, for a listener without any."""
