"""What pays the debts of a state (:mod:`snapshots.owed`): the records of one transaction, once it is known where."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from index.record import Record
from index.transit import relocated
from sidecar.kafka.admin import Place
from snapshots.owed import Owed
from snapshots.state import PROGRESS_KEY, StoredState, encode_progress
from snapshots.transit import encode_transit


class Payment:
    """Of what one partition owes: what it owes its own state is paid first, and alone.

    ``again`` is to be written to where it was hidden. It follows no other progress than the one it followed then, and
    what follows another was paid before.
    """

    def __init__(self, owed: Collection[Owed], stored: StoredState | None, state: Place, delay: Place) -> None:
        """``state`` and ``delay`` are the places of the partition's state and of itself."""
        self.of_state = [each for each in owed if each.place == state]
        self._stored = stored
        self._number = stored.progress.number if stored else -1
        self._delay = delay
        self._paid = self.of_state or owed
        self.again = [each for each in self._paid if each.after_number in (None, self._number)]

    def first_offsets(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where the first of it lies hidden in each of these."""
        return {place: min(each.offset for each in self.again if each.place == place) for place in places}

    def in_state(self, written: Sequence[Owed], offsets: Sequence[int]) -> Iterator[Record]:
        """What is to be written to the state beside what was ``written`` again, at these offsets."""
        for each in self._paid:
            yield from (Record(key, None, (), 0) for key in each.keys)
        stored = self._stored
        if stored is None:
            return
        # What was in transit lies elsewhere now.
        moved = {each.offset: at for each, at in zip(written, offsets, strict=True) if each.place == self._delay}
        for lot, notes in relocated(stored.transit, moved).items():
            yield Record(*encode_transit(lot, notes), (), 0)
        if not any(each.record.key == PROGRESS_KEY for each in written):
            progress = stored.progress._replace(number=self._number + 1)
            yield Record(PROGRESS_KEY, encode_progress(progress, stored.delay_topic_id, stored.inventory), (), 0)
