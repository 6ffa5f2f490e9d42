"""Tests of the view that cancels by query: a count first, then the question, then the result; with doubles."""

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.keys import Keys

from tests.page.browser import Browser
from tests.page.pictures import ORDERS, shown

EXPECTED = "the server responded with a status of 422"
"""The console reports the refusal that a test causes."""


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with shown() as made:
        yield made
        assert [each for each in made.complaints() if EXPECTED not in each] == []


def test_it_counts_then_asks_then_tells_the_result(window: Browser) -> None:
    window.go(f"#pending/{ORDERS}")
    window.wait("main a", "Cancel all that match a query").click()
    window.wait("h1", f"Cancel by query in {ORDERS}")
    assert "Cancel all that match" not in window.text("main"), "nothing is counted yet"
    window.wait("#cancel-target").send_keys("billing")
    window.wait("#cancel-prefix").send_keys("order-", Keys.ENTER)
    # The double counts them in two calls.
    window.wait("h2", "1,207 pending match")
    assert "order-7" in window.wait("tbody tr").text
    window.wait("main button", "Cancel all that match").click()
    window.wait("#sure-question", f"Cancel 1,207 pending in {ORDERS}?")
    assert "to billing, and with an id that begins with order-" in window.text("#sure-meaning")
    assert window.driver.switch_to.active_element.text == "Do nothing"
    window.press(Keys.ENTER)
    window.gone("#sure")
    assert window.all("#done, #trouble") == [], "nothing was done"
    window.wait("main button", "Cancel all that match").click()
    window.wait("#sure-yes", "Cancel them all").click()
    window.wait("#done", f"1,207 pending in {ORDERS} are cancelled")


def test_an_estimate_is_told_as_one(window: Browser) -> None:
    window.go(f"#cancel/{ORDERS}?target=out")
    window.wait("main button", "Cancel all that match").click()
    window.wait("#sure-yes", "Cancel them all").click()
    window.wait("#done", f"About 90,000 pending in {ORDERS} are cancelled")


def test_a_query_that_cannot_be_followed_is_told_beside_the_form(window: Browser) -> None:
    window.go(f"#cancel/{ORDERS}")
    window.wait("#cancel-value").send_keys("7", Keys.ENTER)
    window.wait(".refused", "header.name")
    assert window.all("h2") == []
    assert window.wait("#cancel-value").get_attribute("value") == "7"


def test_it_has_room_in_a_narrow_window(window: Browser) -> None:
    window.look(390, 844)
    window.go(f"#cancel/{ORDERS}?target=billing&due_to_ms=1900000000000&header=customer&value=7")
    window.wait("h2", "pending match")
    assert window.script("return document.documentElement.scrollWidth") == 390
