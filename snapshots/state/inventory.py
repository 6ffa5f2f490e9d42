"""The inventory of a state: each progress record names the other keys of the state, so that a loss is noticed.

The state topic is compacted: the last record of each key stays, however old. When its beginning is removed
(DeleteRecords by hand, or retention after ``cleanup.policy`` was changed), the remainder may look like a whole state,
since progress is written in every transaction and rules now and then. Buckets and held records would be forgotten
unnoticed. So each progress record lists the keys of the state after its transaction: the ids of the buckets, and the
numbers of keys of held records, of the mask, of notes in transit and of queries. It also names the group of the owner
(:mod:`snapshots.state.claim`). Rules are required anyway.

That finds every loss of a beginning. Let all below offset x be gone, and the last progress lie at p:

* x > p: progress is missing, and a state without it is refused. (Nothing left at all: see ``read_origin``.)
* x ≤ p: the progress that is read is the last one. No key was written behind its transaction, so its inventory is that
  of the whole topic. A key whose last record lies at or behind x is found unchanged. A key whose last record lies
  before x is found missing. A removed key cannot come back: its tombstone is behind its last value.

A router that still runs goes on from its memory, which is right. Nothing is missing any more once that router has
written, merged or removed every lost key.

The inventory is compared exactly, although 'at least these keys' would find a lost beginning. A bucket or a held record
beyond the inventory belongs to a transaction whose progress is missing, and would be released a second time.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import sub
from typing import Final, NamedTuple

from index.buckets.bucket import Manifest
from index.errors import FormatError, StateLostError
from index.named.mask import CONTAINER_BITS
from index.named.queries import Query
from index.named.transit import Lot
from snapshots.proto import state_pb2
from snapshots.segments.manifest import MANIFEST_PREFIX, manifest_key
from snapshots.state.held import HELD_PREFIX, HeldEntry, held_key
from snapshots.state.mask import MASK_PREFIX, mask_key
from snapshots.state.queries import QUERY_PREFIX, query_key
from snapshots.state.transit import TRANSIT_PREFIX, transit_key

_NAMED: Final = 5
_COUNTED: Final = (
    "records that were held for their targets",
    "parts of the mask of cancelled offsets",
    "lots of records in transit",
    "queries in force",
)
_PREFIXES: Final = (HELD_PREFIX, MASK_PREFIX, TRANSIT_PREFIX, QUERY_PREFIX)
"""The prefixes of the keys that are counted, in the order of the counts."""


class Inventory(NamedTuple):
    """The ids of all buckets, ascending, and how many keys held records, mask, notes in transit and queries have.

    ``group`` is the router group of the owner; empty in states of versions that name none.
    """

    bucket_ids: tuple[int, ...] = ()
    held_keys: int = 0
    mask_keys: int = 0
    transit_keys: int = 0
    query_keys: int = 0
    group: str = ""


NOTHING_STORED = Inventory()
"""The inventory of a state that has progress and rules alone."""


def inventory_message(inventory: Inventory) -> state_pb2.Inventory:
    """Encode an inventory as the message within the progress; one byte a bucket where ids are dense."""
    ids, held_keys, mask_keys, transit_keys, query_keys, group = inventory
    return state_pb2.Inventory(
        bucket_id_deltas=map(sub, ids, (0, *ids)),
        held_keys=held_keys,
        mask_keys=mask_keys,
        transit_keys=transit_keys,
        query_keys=query_keys,
        group=group,
    )


def inventory_of(message: state_pb2.Inventory) -> Inventory:
    """Decode an inventory; FormatError when it contradicts itself."""
    ids = tuple(accumulate(message.bucket_id_deltas))
    if any(one == two for one, two in pairwise(ids)):
        raise FormatError(f"progress says that there are buckets {_named(ids)}, one of them twice")
    counts = message.held_keys, message.mask_keys, message.transit_keys, message.query_keys
    return Inventory(ids, *counts, message.group)


def refuse_other(said: Inventory, found: Inventory) -> None:
    """Compare two inventories; StateLostError when a key is missing, FormatError when there is one too many."""
    missing_ids = sorted({*said.bucket_ids} - {*found.bucket_ids})
    missing = [f"buckets {_named(missing_ids)}"] if missing_ids else []
    counts = [*zip(_COUNTED, said[1:-1], found[1:-1], strict=True)]
    missing += [f"{wanted - there} of {wanted} {what}" for what, wanted, there in counts if there < wanted]
    if missing:
        raise StateLostError(f"the state topic lacks {' and '.join(missing)}: part of the state was lost")
    if more := sorted({*found.bucket_ids} - {*said.bucket_ids}):
        raise FormatError(f"there are buckets {_named(more)}, of which the progress does not know")
    for what, wanted, there in counts:
        if there > wanted:
            raise FormatError(f"there are {there} {what}, and by the progress {wanted}")


def _named(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids[:_NAMED])) + (f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else "")


class InventoryKeeper:
    """The inventory of one partition, kept up to date with the records that its only writer writes.

    Between ``begin`` and ``committed`` each record of the state goes through ``note``; a transaction that is not
    committed is forgotten by the next ``begin``.
    """

    def __init__(
        self,
        buckets: Iterable[Manifest] = (),
        held: Iterable[HeldEntry] = (),
        mask: Iterable[int] = (),
        transit: Iterable[Lot] = (),
        queries: Iterable[Query] = (),
        group: str = "",
    ) -> None:
        self._keys = {manifest_key(manifest.bucket_id) for manifest in buckets}
        # A loop over an empty bitmap leaks memory (pyroaring 1.2.0).
        self._keys.update(mask_key(offset >> CONTAINER_BITS) for offset in mask or ())
        self._keys.update(map(transit_key, transit))
        self._keys.update(query_key(query.offset) for query in queries)
        self._keys.update(held_key(entry.offset, part) for entry in held for part in range(entry.parts))
        self._noted: dict[bytes, bool] = {}
        self._committed = _of_keys(self._keys)._replace(group=group)

    def begin(self) -> None:
        """Forget the records of a transaction that was not committed."""
        self._noted.clear()

    def note(self, key: bytes, value: bytes | None) -> None:
        """Note a record of the state that the transaction writes; records of other keys are passed over."""
        if key.startswith((MANIFEST_PREFIX, *_PREFIXES)):
            self._noted[key] = value is not None

    def after(self, records: Iterable[tuple[bytes, bytes | None]]) -> Inventory:
        """Begin a transaction that writes these records, and return the inventory after it."""
        self.begin()
        for key, value in records:
            self.note(key, value)
        return self.current

    @property
    def current(self) -> Inventory:
        """The inventory once the transaction is committed; costs nothing where no key comes or goes."""
        changed = [key for key, is_there in self._noted.items() if is_there != (key in self._keys)]
        if not changed:
            return self._committed
        added = _of_keys(key for key in changed if self._noted[key])
        removed = _of_keys(key for key in changed if not self._noted[key])
        ids = self._committed.bucket_ids
        if added.bucket_ids or removed.bucket_ids:
            ids = tuple(sorted({*ids, *added.bucket_ids} - {*removed.bucket_ids}))
        counts = zip(self._committed[1:-1], added[1:-1], removed[1:-1], strict=True)
        held, mask, transit, queries = (before + more - fewer for before, more, fewer in counts)
        return Inventory(ids, held, mask, transit, queries, self._committed.group)

    def committed(self) -> None:
        """Take over the noted records of the committed transaction."""
        if not self._noted:
            return
        self._committed = self.current
        for key, is_there in self._noted.items():
            (self._keys.add if is_there else self._keys.discard)(key)
        self._noted.clear()


def _of_keys(keys: Iterable[bytes]) -> Inventory:
    ids, counts = list[int](), dict.fromkeys(_PREFIXES, 0)
    for key in keys:
        if key.startswith(MANIFEST_PREFIX):
            ids.append(int(key[len(MANIFEST_PREFIX) :]))
        else:
            counts[key[: key.index(b"/") + 1]] += 1
    held, mask, transit, queries = counts.values()
    return Inventory(tuple(sorted(ids)), held, mask, transit, queries)
