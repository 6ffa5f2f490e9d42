"""Known pages: a page is not read again while there is room, and only requested pages are returned."""

from index.id_pages import rows_in_order
from index.names import hash_of
from index.progress import Position
from sidecar.finding.known_pages import KnownPages
from snapshots.id_pages import EncodedPage, encode_pages


def encoded(name: bytes) -> EncodedPage:
    (page,) = encode_pages(rows_in_order({hash_of(name): Position(1, 1)}), 1)
    return page


def test_a_page_is_read_once_and_the_one_that_was_not_asked_for_longest_goes_first() -> None:
    pages = [encoded(b"%d" % number) for number in range(3)]
    known, asked = KnownPages(most_bytes=2 * 40), list[int]()

    def ask(number: int) -> None:
        def read() -> bytes:
            asked.append(number)
            return pages[number].value

        assert known.page(("d.delay-snapshots", 0), pages[number].ref, read)

    for number in (0, 1, 0, 2, 0, 1):
        ask(number)
    assert asked == [0, 1, 2, 1]


def test_another_page_or_none_is_not_taken_for_it() -> None:
    known, page, other = KnownPages(), encoded(b"a"), encoded(b"b")
    assert known.page("place", page.ref, lambda: None) is None
    assert known.page("place", page.ref, lambda: other.value) is None
    assert known.page("place", page.ref, lambda: page.value)
    assert known.page("another place", page.ref, lambda: None) is None
    assert known.page("place", page.ref, lambda: None), "it is known now"
