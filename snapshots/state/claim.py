"""The claims of router groups on the state of a delay partition.

The members of a group fence each other by the partition's transactional id, which begins with the name of the group.
Two groups do not know each other's ids, so each writes its name into the state before its first take-over is done
(:mod:`sidecar.engine.ownership.lanes`). A claim stands until another group has fenced the id, and its first transaction
removes the claim.

::

    key      group/<group_id>
    value    an envelope with an empty body: the key says all

The inventory within the progress names the group of the last owner, which counts as a claim: the beginning of the state
may have been removed with the claim itself. A router that knows no claims refuses the partition because of the unknown
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
    return claimed_in(key for key, _ in stored)


def claimed_in(keys: Iterable[bytes]) -> frozenset[str]:
    """Return the groups that the keys of a state name, whether the claims can be trusted or not."""
    return frozenset(_group_of(key) for key in keys if key.startswith(CLAIM_PREFIX))


def _group_of(key: bytes) -> str:
    return key[len(CLAIM_PREFIX) :].decode(errors="replace")
