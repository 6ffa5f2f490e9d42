"""A name for a router that was given none, so that its group knows it again after a crash.

A member without a name is a new one each time it starts, and the group waits until the session of the old one has run
out before it gives out its partitions. Routers that are killed while they wait add up: each was admitted meanwhile, and
has a session of its own to run out (measured with sessions of 10 s: four kills, 3 s apart, and nobody had the partition
for 32 s). A member with a name takes the place of its dead self at once.

The name stands for a place on this machine that only one process can have: a lock on a file, which the system gives
back however the process ends. It is made of what no copy of that file has, so that a container or a machine that was
cloned has other names. Who finds no place has no name, and everything is as it was.
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
"""Routers of one group on one machine."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class HeldName:
    """A name, for as long as the process lives."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.name = _name_of(os.fstat(descriptor))

    def leave(self) -> None:
        """Give it to the next process."""
        os.close(self._descriptor)


def take_name(group_id: str, directory: Path | None = None) -> HeldName | None:
    """The first free place of this group's; None where there is none, or nowhere to note it."""
    if directory is None:
        directory = Path(tempfile.gettempdir()) / f"kafka-delay-router-{os.getuid()}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            # Others may write to the directory it is in, and must not choose our names.
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
        # A file system that is read-only, as in a container without a place for temporary files.
        return None
    return None


def _name_of(file: os.stat_result) -> str:
    boot = _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else ""
    # What a group takes for a name is what it takes for one of a topic.
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64]
    # Nobody writes to the file, so that the time of its last change is when it was made, and cannot be copied.
    facts = "\n".join([host, boot, str(file.st_dev), str(file.st_ino), str(file.st_ctime_ns)])
    return f"{host}-{sha256(facts.encode()).hexdigest()[:12]}"
