"""The ids known to each place: while they are being sealed, and once they are in pages of a bucket."""

from index.named.names import FIRST_SWEEP, Names, hash_of
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


def test_a_place_is_found_where_a_record_in_transit_was_read_with_another_due_time() -> None:
    """Its note has the due time by the rules of before; these say less or more about spreading."""
    made, noted = names(one=[1, 2], two=[3]), Position(AT[1].due_ms - 2, 1)
    assert made.read_as(ONE, [noted, AT[3]]) == [AT[1]]
    made.freeze()
    assert made.read_as(ONE, [noted]) == [AT[1]]
    made.remove(ONE, [noted, AT[1]])
    assert made.find(ONE) == [AT[2]]


def test_places_that_have_left_are_swept_out_once_as_many_were_added_as_the_last_sweep_left() -> None:
    made = Names()
    for number in range(FIRST_SWEEP - 1):
        made.add(b"%016d" % number, Position(100, number))
    must_sweep = [made.must_sweep]
    made.add(b"%016d" % 0, Position(101, FIRST_SWEEP))
    assert [*must_sweep, made.must_sweep] == [False, True]
    made.sweep(lambda place: place.offset in {0, 5, FIRST_SWEEP})
    made.check()
    assert (len(made), made.must_sweep) == (3, False)
    assert made.find(b"%016d" % 0) == [Position(100, 0), Position(101, FIRST_SWEEP)]
    assert made.find(b"%016d" % 5) == [Position(100, 5)]
    assert made.find(b"%016d" % 7) == []
    for number in range(FIRST_SWEEP - 4):
        made.add(b"%016d" % number, Position(102, number))
    assert not made.must_sweep, "a sweep for few places is not worthwhile"


def test_the_more_places_a_sweep_leaves_the_later_the_next_one_comes() -> None:
    made = Names()
    for number in range(2 * FIRST_SWEEP):
        made.add(b"%016d" % number, Position(100, number))
    made.sweep(lambda _: True)
    for number in range(2 * FIRST_SWEEP - 1):
        made.add(b"%016d" % number, Position(101, number))
    must_sweep = [made.must_sweep]
    made.add(b"%016d" % 0, Position(102, 0))
    assert [*must_sweep, made.must_sweep] == [False, True]


def test_the_last_due_of_each_place_is_told_first_without_cancelled_ones() -> None:
    made = names(one=[1, 2])
    made.freeze()
    made.add(ONE, AT[4])
    made.add(ONE, AT[3])
    made.look_up([ONE])
    made.lookup.found(range(7, 10), [(ONE, AT[7], 0), (ONE, AT[8], 0)])
    assert [*made.latest(ONE)] == [AT[4], AT[3], AT[2], AT[1], AT[8], AT[7]]
    made.remove(ONE, [AT[1], AT[8], AT[3]])
    assert [*made.latest(ONE)] == [AT[4], AT[2], AT[7]]
    assert [*made.latest(TWO)] == []


def test_a_cancelled_place_stays_cancelled_while_a_bucket_holds_it() -> None:
    made = names(one=[1])
    made.freeze()
    made.remove(ONE, [AT[1]])
    made.discard_frozen()

    def found() -> list[Position]:
        made.look_up([ONE])
        made.lookup.found(range(5), [(ONE, AT[1], 0)])
        return made.find(ONE)

    made.forget([range(5)])
    assert found() == []
    made.forget([range(2, 5)])
    assert found() == [AT[1]], "no bucket is left that could hold it"


def test_places_that_have_left_are_let_go_of_one_by_one() -> None:
    made = names(one=[1, 2, 3], two=[4])
    made.let_go(ONE, [AT[1], AT[3], AT[9]])
    assert (made.find(ONE), len(made)) == ([AT[2]], 2)
    made.let_go(ONE, [AT[2]])
    made.let_go(TWO, [])
    assert (made.find(ONE), len(made)) == ([], 1)
    made.check()


def test_a_time_that_was_asked_for_is_found_behind_the_longest_shift() -> None:
    made = Names()
    for offset, shift_ms in enumerate([0, 5, 9]):
        made.add(ONE, Position(1_000 + shift_ms, offset), shift_ms)
    made.add(ONE, Position(1_009, 7), 8)
    assert [place.offset for place in made.find(ONE, 1_000)] == [0, 1, 2]
    made.sweep(lambda place: place.offset in {1, 7})
    assert [place.offset for place in made.find(ONE, 1_000)] == [1]
    assert [place.offset for place in made.find(ONE, 1_001)] == [7]
    made.look_up([ONE])
    made.lookup.found(range(90, 99), [(ONE, Position(1_900, 95), 900), (ONE, Position(1_900, 96), 899)])
    assert [place.offset for place in made.find(ONE, 1_000)] == [95, 1]


def test_what_lies_in_pages_is_not_kept_in_memory() -> None:
    made = names(one=[1])
    made.freeze()
    made.discard_frozen()
    assert made.find(ONE) == []
    assert not made.knows(ONE, range(5))


def test_what_was_looked_up_is_known_for_the_ids_that_were_looked_for() -> None:
    made = names(one=[7])
    made.look_up([ONE])
    made.lookup.found(range(5), [(ONE, AT[1], 0), (ONE, AT[6], 0)])
    assert made.knows(ONE, range(5))
    assert made.knows(ONE, range(2, 4))
    assert not made.knows(ONE, range(6))
    assert not made.knows(TWO, range(5))
    assert made.find(ONE) == [AT[1], AT[7]], "what lies elsewhere is not of the bucket"
    made.remove(ONE, [AT[1]])
    assert made.find(ONE) == [AT[7]]
    made.lookup.found(range(4, 6), [(ONE, AT[4], 0), (ONE, AT[4], 0), (ONE, AT[1], 0)])
    assert made.find(ONE) == [AT[4], AT[7]], "a place that is found again is one place"
    assert made.knows(ONE, range(6))
    made.look_up([TWO])
    assert not made.knows(ONE, range(5))
