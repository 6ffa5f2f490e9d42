"""Claims of router groups in the state topic."""

import pytest

from index.errors import FormatError
from snapshots.envelope import Kind, wrap
from snapshots.state.claim import claim_key, encode_claim
from snapshots.state.inventory import NOTHING_STORED, InventoryKeeper
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, encode_progress, fold_state, writers_in
from tests.support.stored import golden

CLAIM = claim_key("delay-router"), encode_claim()
OTHER = claim_key("günther"), encode_claim()


def state(group: str = "") -> list[tuple[bytes, bytes | None]]:
    """Return a state whose progress names a group."""
    known = fold_state([(PROGRESS_KEY, golden("progress-v1.bin")), (RULES_KEY, golden("rules-v1.bin"))])
    assert known is not None
    progress = encode_progress(known.progress, known.delay_topic_id, NOTHING_STORED._replace(group=group))
    return [(RULES_KEY, golden("rules-v1.bin")), (PROGRESS_KEY, progress)]


def test_what_version_1_wrote_is_what_is_written() -> None:
    assert (b"group/delay-router", golden("claim-v1.bin")) == CLAIM
    # Field 6 of the inventory, which is absent in the states of earlier versions.
    ((_, named),) = [record for record in state("g") if record[0] == PROGRESS_KEY]
    assert named is not None
    assert b"\x52\x03\x32\x01g" in named


def test_the_groups_of_a_state_are_those_with_a_claim() -> None:
    records = [CLAIM, OTHER, (OTHER[0], None), *state("delay-router"), OTHER]
    found = fold_state(records)
    assert found is not None
    assert found.groups == writers_in(records).groups == {"delay-router", "günther"}
    assert writers_in([CLAIM, (CLAIM[0], None), (None, b"")]).groups == frozenset()


def test_a_state_of_claims_alone_is_empty() -> None:
    assert fold_state([CLAIM, OTHER]) is None


def test_the_last_owner_is_known_though_the_beginning_of_the_state_with_its_claim_was_removed() -> None:
    records = [OTHER, *state("delay-router")]
    found = fold_state(records)
    assert found is not None
    assert found.groups == writers_in(records).groups == {"delay-router", "günther"}
    # A state of a version without claims names no group.
    older = fold_state(state())
    assert older is not None
    assert older.groups == writers_in(state()).groups == frozenset()


@pytest.mark.parametrize(
    "damaged", [(CLAIM[0], b"KDR"), (CLAIM[0], wrap(Kind.ENDING, b"")), (b"group/\xff", encode_claim())]
)
def test_a_damaged_claim_is_refused_by_name_and_still_names_its_group(damaged: tuple[bytes, bytes]) -> None:
    with pytest.raises(FormatError, match=r"^record 'group/"):
        fold_state([damaged, *state()])
    assert len(writers_in([damaged]).groups) == 1


def test_the_group_stays_in_the_inventory() -> None:
    keeper = InventoryKeeper(group="g")
    assert keeper.after([(b"held/7/0", b"value"), CLAIM]).group == "g"
    keeper.committed()
    assert keeper.current == NOTHING_STORED._replace(held_keys=1, group="g")
