"""The ids known to each place: while they are being sealed, and once they are in pages of a bucket."""

from index.named.names import Names, hash_of
from index.pending.progress import Position

ONE, TWO = hash_of(b"one"), hash_of(b"two")
AT = [Position(100 + offset, offset) for offset in range(10)]


def names(**places: list[int]) -> Names:
    made = Names()
    for deliver_id, offsets in places.items():
        for offset in offsets:
            made.add(hash_of(deliver_id.encode()), AT[offset])
    return made


def test_what_is_being_sealed_does_not_change_under_whoever_writes_it_down() -> None:
    made = names(one=[1, 2], two=[3])
    made.freeze()
    before = {each: made.frozen[each] for each in made.frozen}
    made.add(ONE, AT[5])
    made.remove(ONE, [AT[1]])
    made.remove(TWO, [AT[3]])
    assert dict(made.frozen) == before
    assert (made.find(ONE), made.find(TWO)) == ([AT[2], AT[5]], [])


def test_what_was_cancelled_while_it_was_being_sealed_stays_so_when_that_is_given_up() -> None:
    made = names(one=[1, 2], two=[3])
    made.freeze()
    being_written = made.frozen
    made.remove(ONE, [AT[1]])
    made.remove(TWO, [AT[3]])
    made.add(TWO, AT[4])
    made.thaw()
    made.check()
    assert (made.find(ONE), made.find(TWO), len(made)) == ([AT[2]], [AT[4]], 2)
    assert set(being_written) == {ONE, TWO}


def test_what_lies_in_pages_is_not_kept_in_memory() -> None:
    made = names(one=[1])
    made.ask()
    made.freeze()
    made.discard_frozen()
    assert made.find(ONE) == []
    assert not made.knows(ONE, range(5))


def test_what_was_looked_up_is_known_for_the_ids_that_were_looked_for() -> None:
    made = names(one=[7])
    made.look_up([ONE])
    made.lookup.found(range(5), {ONE: [AT[1], AT[6]]})
    assert made.knows(ONE, range(5))
    assert made.knows(ONE, range(2, 4))
    assert not made.knows(ONE, range(6))
    assert not made.knows(TWO, range(5))
    assert made.find(ONE) == [AT[1], AT[7]], "what lies elsewhere is not of the bucket"
    made.remove(ONE, [AT[1]])
    assert made.find(ONE) == [AT[7]]
    made.look_up([TWO])
    assert not made.knows(ONE, range(5))
