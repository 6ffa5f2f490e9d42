"""Tests of the question before a change: Enter presses the button that looks like the answer; with doubles."""

from collections.abc import Iterator
from typing import Final

import pytest
from selenium.webdriver.common.keys import Keys

from tests.page.browser import Browser
from tests.page.pictures import ORDERS, shown

LOOKS_LIKE_IT: Final = "return getComputedStyle(arguments[0]).backgroundColor"


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with shown() as made:
        yield made
        assert made.complaints() == []


def colour(window: Browser, selector: str) -> str:
    return str(window.driver.execute_script(LOOKS_LIKE_IT, window.wait(selector)))


def test_what_can_be_undone_is_done_by_enter(window: Browser) -> None:
    window.go("#topics")
    window.wait(f"button[aria-label='pause {ORDERS}']").click()
    window.wait("#sure-question", f"Pause {ORDERS}?")
    assert window.driver.switch_to.active_element.get_attribute("id") == "sure-yes"
    accent = colour(window, "#sure-yes")
    assert colour(window, "#sure-no") != accent
    window.wait("#sure-no").click()
    window.gone("#sure")
    assert window.all("#done") == [], "nothing was done"
    window.wait(f"button[aria-label='pause {ORDERS}']").click()
    # The answer of a field is the same as that of the button.
    window.wait("#reason").send_keys("billing moves", Keys.ENTER)
    window.wait("#done", f"Paused {ORDERS}")


def test_what_is_final_is_not_done_by_enter(window: Browser) -> None:
    window.go("#topics")
    window.wait(f"button[aria-label='pause {ORDERS}']").click()
    accent = colour(window, "#sure-yes")
    window.press(Keys.ESCAPE)
    window.gone("#sure")
    for address, button, question in (
        (f"#pending/{ORDERS}", "Cancel it", "Cancel order-4711"),
        (f"#rejected/{ORDERS}", "Drive again", "Drive EXPIRED of"),
    ):
        window.go(address)
        window.wait("tbody button", button).click()
        window.wait("#sure-question", question)
        assert window.driver.switch_to.active_element.text == "Do nothing"
        assert colour(window, "#sure-no") == accent
        assert colour(window, "#sure-yes") != accent
        window.press(Keys.ENTER)
        window.gone("#sure")
        assert window.all("#done, #trouble") == []


def test_enter_that_is_held_down_answers_nothing(window: Browser) -> None:
    window.go("#topics")
    window.wait(f"button[aria-label='pause {ORDERS}']").click()
    window.wait("#sure-yes")
    for repeat in (True, False):
        stopped = window.script(
            "const held = new KeyboardEvent('keydown', "
            f"{{ key: 'Enter', repeat: {str(repeat).lower()}, bubbles: true, cancelable: true }});"
            "document.getElementById('sure-yes').dispatchEvent(held); return held.defaultPrevented"
        )
        assert stopped is repeat
    window.press(Keys.ESCAPE)
    window.gone("#sure")
