"""The note of a transaction that an operator is ending."""

import pytest

from index.errors import FormatError
from snapshots.state.ending import ENDING_KEY, Ending, decode_ending, encode_ending
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, fold_state
from tests.support.stored import golden

STATE = [(PROGRESS_KEY, golden("progress-v1.bin")), (RULES_KEY, golden("rules-v1.bin"))]
GOLDEN = Ending("orders", 3, 4711, 4720, committed=True, producer_id=1_000)


def test_a_note_is_stored_as_it_always_was() -> None:
    assert encode_ending(GOLDEN) == golden("ending-v1.bin")
    assert decode_ending(golden("ending-v1.bin")) == GOLDEN


@pytest.mark.parametrize(
    "wrong", [GOLDEN._replace(topic=""), GOLDEN._replace(partition=-1), GOLDEN._replace(to_offset=4711)]
)
def test_a_note_that_names_no_range_is_refused(wrong: Ending) -> None:
    with pytest.raises(FormatError, match="names no range of a partition"):
        decode_ending(encode_ending(wrong))


def test_the_state_tells_the_note_until_it_is_removed() -> None:
    state = [*STATE, (ENDING_KEY, encode_ending(GOLDEN))]
    found = fold_state(state)
    assert found is not None
    assert found.ending == GOLDEN
    gone = fold_state([*state, (ENDING_KEY, None)])
    assert gone is not None
    assert gone.ending is None
