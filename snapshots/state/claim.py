"""The claims of router groups on the state of a delay partition.

The members of a group fence each other by the partition's transactional id, which begins with the name of the group.
Two groups do not know each other's ids, so each writes its name into the state before its first take-over is done
(:mod:`sidecar.engine.ownership.lanes`). A claim stands until another group has fenced the id, and its first transaction
removes the claim.

::

    key      group/<group_id>
    value    an envelope with an empty body: the key says all

The inventory within the progress names the group of the last owner. So a state that has lost the claim of that group is
refused (:mod:`snapshots.state.inventory`). A router that knows no claims refuses the partition because of the unknown
key, and fences nobody who may be of another group.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from index.errors import FormatError
from snapshots.envelope import Kind, key_text, unwrap, wrap

CLAIM_PREFIX: Final = b"group/"


def claim_key(group: str) -> bytes:
    """Return the key of the claim of a group."""
    return CLAIM_PREFIX + group.encode()


def encode_claim() -> bytes:
    """Return the value of a claim."""
    return wrap(Kind.CLAIM, b"")


def decode_claims(stored: Sequence[tuple[bytes, bytes]]) -> frozenset[str]:
    """Return the groups of these claims; FormatError names a record that cannot be trusted."""
    for key, value in stored:
        try:
            unwrap(Kind.CLAIM, value)
            key.decode()
        except (FormatError, UnicodeDecodeError) as error:
            raise FormatError(f"record {key_text(key)} of the state topic: {error}") from error
    return frozenset(_group_of(key) for key, _ in stored)


def groups_in(records: Iterable[tuple[bytes | None, bytes | None]]) -> frozenset[str]:
    """Return the groups that the records of a state partition name, whether the state can be trusted or not."""
    latest = {key: value for key, value in records if key is not None and key.startswith(CLAIM_PREFIX)}
    return frozenset(_group_of(key) for key, value in latest.items() if value is not None)


def _group_of(key: bytes) -> str:
    return key[len(CLAIM_PREFIX) :].decode(errors="replace")
