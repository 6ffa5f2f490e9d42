"""Finds a name for a router without a configured one, so that its group recognizes it after a crash.

A member without a name is a new member each time it starts, and the group waits for the session of the old member to
expire before it assigns the old partitions. Routers that are killed while they wait add up: the group has admitted each
of them, and waits for each session (measured with sessions of 10 s: after four kills, 3 s apart, the partition had no
owner for 32 s). A member with a name replaces its dead predecessor at once.

The name stands for a place on this machine that only one process can have: a lock on a file, which the system releases
however the process ends. The name is derived from properties that no copy of the file shares, so that a cloned
container or machine has other names. A router that finds no free place works without a name.
"""

import fcntl
import os
import re
import socket
import stat
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final

PLACES: Final = 64
"""Most routers of one group on one machine that get a name."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class HeldName:
    """A name that the process holds until it ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.name = _name_of(os.fstat(descriptor))

    def leave(self) -> None:
        """Release the name for the next process."""
        os.close(self._descriptor)


def take_name(group_id: str, directory: Path | None = None) -> HeldName | None:
    """Take the first free name of the group; return None if none is free, or if no lock file can be made."""
    if directory is None:
        directory = Path(tempfile.gettempdir()) / f"kafka-delay-router-{os.getuid()}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            # Other users may write to the parent directory, and must not choose our names.
            return None
        group = sha256(group_id.encode()).hexdigest()[:16]
        for number in range(PLACES):
            descriptor = os.open(directory / f"{group}-{number}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
            else:
                return HeldName(descriptor)
    except OSError:
        # For instance a read-only file system, as in a container without a directory for temporary files.
        return None
    return None


def _name_of(file: os.stat_result) -> str:
    boot = _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else ""
    # A group accepts the same characters in a name as Kafka does in the name of a topic.
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64]
    # No process writes to the file, so the time of its last change is that of its creation, which no copy shares.
    facts = "\n".join([host, boot, str(file.st_dev), str(file.st_ino), str(file.st_ctime_ns)])
    return f"{host}-{sha256(facts.encode()).hexdigest()[:12]}"
