"""Tests of the page with 300 delay topics, in a browser; the numbers come from a double."""

import time
from collections.abc import Iterator
from typing import Final

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from sidecar.http.api.server import AdminApi
from sidecar.operations.finding.wanted import ScheduleFilter
from tests.page.browser import Browser, browser
from tests.page.many import TOPICS, Many, many_topics
from tests.support.admin_api import OPERATE

ALL: Final = f"tbody tr:nth-child({TOPICS})"
"""The last row: the driver takes long to look at each."""

LINKS: Final = {
    "topic_link": "https://c.example/topics/{topic}",
    "record_link": "https://c.example/topics/{topic}?p={partition}&o={offset}",
}

FIRST_VIEW_S: Final = 10.0
"""Far more than the aim of 1 s, which `tests.bench.page` measures: this machine may be busy."""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, Many]]:
    directory = tmp_path_factory.mktemp("lists")
    tokens = directory / "tokens"
    tokens.write_text(f"operate {OPERATE}\n")
    config = many_topics(tokens, **LINKS)
    group = Many(config)
    serving = AdminApi(config, group)
    try:
        with browser(directory / "profile") as window:
            window.look(1200, 900)
            window.open(f"http://localhost:{serving.port}")
            window.sign_in(OPERATE)
            window.wait(ALL)
            yield window, group
    finally:
        serving.stop()


@pytest.fixture
def window(chromium: tuple[Browser, Many]) -> Iterator[Browser]:
    window, _ = chromium
    window.go("#topics")
    window.wait(ALL)
    window.complaints()
    yield window
    assert window.complaints() == []


def rows(window: Browser) -> list[str]:
    found = window.script("return [...document.querySelectorAll('tbody tr a')].map((each) => each.textContent)")
    return [each for each in found if "topic-" in each]


def test_the_first_view_of_all_topics_is_there_soon(window: Browser) -> None:
    began_s = time.monotonic()
    window.driver.refresh()
    window.wait(ALL)
    assert time.monotonic() - began_s < FIRST_VIEW_S
    assert len(rows(window)) == TOPICS


def test_words_of_a_name_and_only_problems(window: Browser) -> None:
    window.wait("#words").send_keys("TOPIC-00 eu")
    window.wait(".wishes", "5 of 300")
    assert rows(window) == [f"eu.topic-00{number}" for number in (1, 3, 5, 7, 9)]
    assert window.script("return document.activeElement.id") == "words", "while the list changes under it"
    window.wait(".check", "Only problems (2)").click()
    window.wait(".wishes", "2 of 300")
    assert rows(window) == ["eu.topic-007", "eu.topic-009"]
    # The address has it all, so a reload shows the same.
    window.driver.refresh()
    window.wait(".wishes", "2 of 300")
    assert window.wait("#words").get_attribute("value") == "TOPIC-00 eu"
    window.wait("#words").send_keys("x", Keys.ENTER)
    window.wait("main p", "None has such a name.")


def test_a_column_sorts_with_the_keyboard_and_says_so(window: Browser) -> None:
    heading = window.wait("th button", "Pending")
    heading.send_keys(Keys.ENTER)
    window.wait("th[aria-sort=descending]", "Pending")
    assert rows(window)[0] == window.script(_LARGEST)
    window.press(Keys.ENTER)
    window.wait("th[aria-sort=ascending]", "Pending")
    window.wait("th button", "State").click()
    window.wait("th[aria-sort=ascending]", "State")
    assert rows(window)[:2] == ["eu.topic-007", "eu.topic-009"], "the worst first"
    window.wait("tbody tr:nth-child(2) .badge.fair", "15 held")


_LARGEST: Final = """
const numberOf = (row) => Number(row.querySelector('td[data-label=Pending]').textContent.replace(/[^0-9]/g, ''));
const all = [...document.querySelectorAll('tbody tr')];
return all.reduce((most, row) => (numberOf(row) > numberOf(most) ? row : most)).querySelector('a').textContent;
"""


def test_no_row_moves_under_the_pointer(window: Browser, chromium: tuple[Browser, Many]) -> None:
    _, group = chromium
    window.wait("th button", "Pending").click()
    window.wait("th[aria-sort=descending]", "Pending")
    before = rows(window)
    ActionChains(window.driver).move_to_element(window.wait("tbody tr:nth-child(3)")).perform()
    group.turn += 150
    window.script("await new Promise((later) => setTimeout(later, 3000))")
    assert rows(window) == before
    ActionChains(window.driver).move_to_element(window.wait(".tiles")).perform()
    window.script("await new Promise((later) => setTimeout(later, 3000))")
    assert rows(window) != before


def test_routers_with_what_they_serve_and_how_they_fare(window: Browser) -> None:
    window.wait(".tile a", "1").click()
    row = window.wait("tbody tr", "host-1").text.replace("\u2013", "-")
    for told in ("0.2.0", "native", "ago", "25 %", "300 MiB", "us.topic-000 0-1"):
        assert told in row
    window.wait("tbody tr", "nothing: it stands by")
    window.wait(".banner.trouble", "several versions")
    window.wait("th button", "Memory").click()
    window.wait("th[aria-sort=descending]", "Memory")
    window.wait("nav a[aria-current]", "Routers")


def test_the_last_hour_of_all_topics_and_of_one(window: Browser) -> None:
    window.wait(".past figcaption", "7 in all, most 7 at ")
    window.wait(".past figcaption", "now 9 ms, most 9 ms at ")
    window.go("#topic/us.topic-000")
    window.wait(".past figcaption", "now 3, most 3 at ")
    (released, *_) = window.all(".past svg")
    assert "Released in the last hour, by minute: 7 in all" in str(released.get_attribute("aria-label"))
    # The arrows go from minute to minute, and a minute leads nowhere.
    window.driver.execute_script("arguments[0].querySelector('.step[tabindex=\"0\"]').focus()", released)
    window.press(Keys.ARROW_LEFT)
    assert window.script("return document.activeElement.getAttribute('aria-label')").endswith(": not known")


def test_a_recurring_schedule_shows_its_rule_and_its_next_five_times(
    window: Browser, chromium: tuple[Browser, Many]
) -> None:
    window.go("#pending/us.topic-000")
    row = window.wait("tbody tr", "30 9 * * 1-5 in Europe/Berlin").text
    assert "number 8 of the series us.topic-000/0/3" in row
    times = [each.text for each in window.all(".next-times li")]
    assert len(times) == 5
    # Friday to Monday: the weekend is left out. The browser of the tests is in UTC.
    assert ["Jan 4" in times[3], "Jan 7" in times[4]] == [True, True]
    assert all("8:30:00 AM UTC" in each for each in times)
    window.wait("#recurring").click()
    window.press(Keys.ENTER)
    window.wait("#recurring:checked")
    _, group = chromium
    assert group.wanted == ScheduleFilter("us.topic-000", recurring=True)


def test_topics_and_records_lead_to_another_console(window: Browser) -> None:
    window.go("#topic/us.topic-000")
    link = window.wait("h1 + .outside")
    assert link.get_attribute("href") == "https://c.example/topics/us.topic-000"
    assert link.get_attribute("rel") == "noopener noreferrer"
    assert link.accessible_name == "us.topic-000 in the other console"
    window.wait(".bars .outside")
    window.go("#find/us.topic-000/1/9")
    assert window.wait("h2 + .outside").get_attribute("href") == "https://c.example/topics/us.topic-000?p=1&o=9"
