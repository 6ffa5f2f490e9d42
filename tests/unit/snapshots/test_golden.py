"""Every golden file of a readable version: it is read whole, and refused with any one bit flipped."""

from collections.abc import Callable

import pytest

from index.errors import FormatError
from index.pending.progress import Position, Progress
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from snapshots.segments.id_pages import parse_page
from snapshots.segments.manifest import decode_manifest, manifest_key
from snapshots.segments.segment import decode_segment
from snapshots.state.claim import claim_key, decode_claims
from snapshots.state.ending import decode_ending
from snapshots.state.held import decode_held, held_key
from snapshots.state.inventory import Inventory
from snapshots.state.mask import decode_mask, mask_key
from snapshots.state.queries import decode_queries, query_key
from snapshots.state.staged import decode_intent, decode_staged, fold_staged, intent_key, staged_key
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, encode_history, encode_progress, fold_state
from snapshots.state.transit import decode_transit, transit_key
from tests.support.paths import GOLDEN
from tests.support.stored import flipped, golden

DECODERS: dict[str, Callable[[bytes], object]] = {
    "held-v1.bin": lambda value: decode_held([(held_key(4711, 0), value)]),
    "held-offset-v1.bin": lambda value: decode_held([(held_key(4711, 0), value)]),
    "intent-v1.bin": lambda value: decode_intent(intent_key("nightly-7"), value),
    "ids-v1.bin": parse_page,
    "ids-shifted-v1.bin": parse_page,
    "manifest-dues-v1.bin": lambda value: decode_manifest(manifest_key(42), value),
    "manifest-ids-v1.bin": lambda value: decode_manifest(manifest_key(42), value),
    "manifest-v1.bin": lambda value: decode_manifest(manifest_key(42), value),
    "mask-v1.bin": lambda value: decode_mask([(mask_key(0), value)]),
    "ending-v1.bin": decode_ending,
    "claim-v1.bin": lambda value: decode_claims([(claim_key("delay-router"), value)]),
    "progress-inventory-v1.bin": lambda value: fold_state(
        [
            (PROGRESS_KEY, value),
            (RULES_KEY, golden("rules-v1.bin")),
            (manifest_key(42), golden("manifest-v1.bin")),
            (held_key(4711, 0), golden("held-v1.bin")),
        ]
    ),
    "progress-v1.bin": lambda value: fold_state([(PROGRESS_KEY, value), (RULES_KEY, golden("rules-v1.bin"))]),
    "query-v1.bin": lambda value: decode_queries([(query_key(4711), value)]),
    "rules-v1.bin": lambda value: fold_state([(PROGRESS_KEY, golden("progress-v1.bin")), (RULES_KEY, value)]),
    "segment-inline-v1.bin": decode_segment,
    "segment-pointer-v1.bin": decode_segment,
    "staged-v1.bin": lambda value: decode_staged(staged_key("nightly-7", 4000), value),
    "transit-v1.bin": lambda value: decode_transit([(transit_key((907, 0)), value)]),
}

PROGRESS = Progress(20_000, Position(7, 3), 20_000, 2, next_bucket=43)
STATE = {
    PROGRESS_KEY: encode_progress(PROGRESS, "id", Inventory((42,), 1, 1, 1, 1)),
    RULES_KEY: encode_history(RuleHistory.beginning(0, Rules("d"))),
    manifest_key(42): golden("manifest-ids-v1.bin"),
    held_key(4711, 0): golden("held-offset-v1.bin"),
    mask_key(0): golden("mask-v1.bin"),
    transit_key((907, 0)): golden("transit-v1.bin"),
    query_key(4711): golden("query-v1.bin"),
}
STAGED = {staged_key("nightly-7", 4000): golden("staged-v1.bin"), intent_key("nightly-7"): golden("intent-v1.bin")}


def test_no_golden_file_is_left_out() -> None:
    assert {file.name for file in GOLDEN.glob("*-v1.bin")} == DECODERS.keys()


@pytest.mark.parametrize("name", DECODERS)
def test_every_flipped_bit_is_refused(name: str) -> None:
    value, decode = golden(name), DECODERS[name]
    assert decode(value)
    for bit in range(len(value) * 8):
        with pytest.raises(FormatError):
            decode(flipped(value, bit))


@pytest.mark.parametrize("name", DECODERS)
def test_every_truncation_is_refused(name: str) -> None:
    value, decode = golden(name), DECODERS[name]
    for length in range(len(value)):
        with pytest.raises(FormatError):
            decode(value[:length])


@pytest.mark.parametrize("key", STATE)
def test_every_flipped_bit_of_a_key_of_the_state_is_refused(key: bytes) -> None:
    """No checksum covers keys, so a value under a wrong key must be noticed otherwise."""
    assert fold_state(STATE.items())
    for bit in range(len(key) * 8):
        with pytest.raises(FormatError):
            fold_state((flipped(each, bit) if each == key else each, value) for each, value in STATE.items())


@pytest.mark.parametrize("key", STAGED)
def test_every_flipped_bit_of_a_key_of_the_backfill_topic_is_refused(key: bytes) -> None:
    assert fold_staged(STAGED.items())
    for bit in range(len(key) * 8):
        with pytest.raises(FormatError):
            fold_staged((flipped(each, bit) if each == key else each, value) for each, value in STAGED.items())
