"""Tests of the view of a topic that counts attempts, with doubles behind the page."""

from collections.abc import Iterator

import pytest

from tests.page.browser import Browser
from tests.page.pictures import ORDERS, RETRIES, SPENT, shown


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with shown() as made:
        yield made
        assert made.complaints() == []


def test_how_many_records_are_in_which_attempt(window: Browser) -> None:
    window.go(f"#topic/{RETRIES}")
    window.wait("main a", "Attempts, and what is exhausted").click()
    window.wait("h1", f"Retries of {RETRIES}")
    window.wait(".tile.bad", "Exhausted a minute\n1")
    rows = [" ".join(each.text.split()) for each in window.all("section:first-of-type tbody tr")]
    assert rows == [
        "1 900 ms to 1 s 3,480 112 48,211",
        "2 1.8 s to 2 s 1,020 20 9,240",
        "3 3.6 s to 4 s 340 7 3,105",
        "4-7 7.2 s to 1 m 4 s 141 9 4,077",
        "8+ 1 m 55 s to 2 m 8 s 19 2 806",
        "none left at once, to payments.dlq 0 1 391",
    ]
    window.wait("main p", "Waiting: of the first 5,000 that are stored. More are pending")
    window.wait("main p", "no router reports it: partition 1")
    (current,) = window.all("nav a[aria-current]")
    assert current.text == "Topics"


def test_an_exhausted_record_and_one_that_waits_tell_their_attempt(window: Browser) -> None:
    window.go(f"#retries/{RETRIES}")
    window.wait("tbody a", f"{RETRIES}/0/{SPENT}").click()
    window.wait(".timeline li", "Exhausted\nafter 8 attempts: it goes to payments.dlq")
    window.go(f"#find/{RETRIES}/0/7")
    window.wait(".timeline li", "3 of 8; if it fails, the record waits 8 s, 16 s, 32 s, 1 m 4 s, 2 m 8 s")
    window.go(f"#find/{ORDERS}/0/7")
    window.wait("h2", f"{ORDERS}/0/7")
    assert "Attempt" not in window.text(".timeline")


def test_it_leads_to_where_a_record_may_be(window: Browser) -> None:
    window.go(f"#retries/{RETRIES}")
    window.wait("main li a", "what is pending").click()
    window.wait("th", "Attempt")
    window.go(f"#pending/{ORDERS}")
    window.wait("h1", f"Pending in {ORDERS}")
    window.wait("tbody tr")
    assert "Attempt" not in window.text("thead")
    window.go(f"#retries/{RETRIES}")
    window.wait("main p a", "Find a record").click()
    assert window.wait("#named-topic").get_attribute("value") == RETRIES


def test_an_id_finds_what_has_left(window: Browser) -> None:
    window.go(f"#find?topic={RETRIES}&id=payment-7")
    assert "released" in window.wait("tbody tr", f"out/0/7: {RETRIES}/0/3").text
    # The only one is looked up at once.
    window.wait("h2", f"{RETRIES}/0/3")
    window.wait(".timeline li", "3 of 8")


def test_a_topic_that_counts_none_says_so(window: Browser) -> None:
    window.go(f"#retries/{ORDERS}")
    window.wait("main p", "Its attempts are not counted")
    window.go(f"#topic/{ORDERS}")
    window.wait("h1", ORDERS)
    assert "exhausted" not in window.text("main")


def test_it_has_room_in_a_narrow_window(window: Browser) -> None:
    window.look(390, 844)
    window.go(f"#retries/{RETRIES}")
    window.wait("main tbody tr", "none left")
    assert window.script("return document.documentElement.scrollWidth") == 390
