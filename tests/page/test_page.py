"""Tests of the page of a running router in a browser, with one broker, one router, and one browser."""

import hashlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from selenium.webdriver.common.keys import Keys

from sidecar.dev import local_kafka
from sidecar.dev.local_kafka import free_port
from tests.integration.scenario import TIMEOUT_S, Stage
from tests.page.browser import ELSEWHERE, Browser, browser

READ: Final = "reads-only-0123456789abcdef0123456789"
OPERATE: Final = "operates-0123456789abcdef0123456789ab"
SEES: Final = "sees-payload-0123456789abcdef01234567"
PRODUCE: Final = "produces-0123456789abcdef0123456789ab"
MARKUP: Final = "<img src=x onerror=alert(1)><script>alert(2)</script>"
"""A hostile key, id, name or reason."""

EXPECTED: Final = "Failed to load resource: the server responded with a status of"
"""The console reports each answer above 400; the tests that cause such an answer check the page's reaction."""


class World(NamedTuple):
    """A router with a page, and the records sent through it."""

    url: str
    stage: Stage
    policies: str
    delay: str
    out: str
    pending: str
    released: str
    rejected: str

    def is_paused(self) -> bool:
        """Return the API's answer for the delay topic."""
        answer = httpx.get(
            f"{self.url}/api/v1/topics/{self.delay}", headers={"authorization": f"Bearer {READ}"}, trust_env=False
        )
        return bool(answer.json()["paused"])


LEAVE_AT_THE_ANSWER: Final = """
const [asks, reads] = [window.fetch, Response.prototype.json];
let open = 0;
window.fetch = (path, options) => { open += path.endsWith("/brokers") ? 0 : 1; return asks(path, options); };
Response.prototype.json = async function () {
  const told = await reads.call(this);
  if (!this.url.endsWith("/brokers") && --open === 0 && location.hash !== "#policies") location.hash = "#policies";
  return told;
};
"""
"""Changes the address as soon as a view has all answers, so that the page draws before it hears of the new address."""


@pytest.fixture(scope="module")
def world(kafka: local_kafka.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("page")
    stage = Stage(kafka.bootstrap, directory)
    policies, status = f"__{stage.word}.policies", f"__{stage.word}.status"
    stage.create([NewTopic(name, 1, 1, config={"cleanup.policy": "compact"}) for name in (policies, status)])
    out = stage.target()
    delay = stage.delay(partitions=2, default_target=out, max_delay="1h")
    tokens = directory / "tokens"
    tokens.write_text(f"read {READ}\noperate {OPERATE}\nread+payload {SEES}\nproduce {PRODUCE}\n")
    router = stage.router(policies_topic=policies, status_topic=status)
    port = free_port()
    with router.config.open("a") as file:
        file.write(f'\n[admin]\nlisten = "127.0.0.1:{port}"\ntoken_file = "{tokens}"\npage = true\n')
    with router:
        router.start_and_wait()
        released = stage.send(delay, ("deliver-after", b"1"))
        pending = stage.send(delay, ("deliver-after", b"PT30M"), partition=1)
        rejected = stage.send(delay, ("deliver-after", b"PT2H"), ("deliver-id", b"<b>id</b>"))
        stage.wait_records(out, 1)
        stage.wait_records(f"{delay}.rejected", 1)
        yield World(f"http://localhost:{port}", stage, policies, delay, out, pending, released, rejected)
    stage.print_logs()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture
def window(chromium: Browser, world: World) -> Iterator[Browser]:
    """Yield the page, not signed in; afterwards the console must have no messages."""
    chromium.look(1200, 900)
    chromium.open(world.url)
    chromium.complaints()
    yield chromium
    assert [each for each in chromium.complaints() if EXPECTED not in each] == []


def test_a_token_that_is_not_known_shows_nothing(window: Browser) -> None:
    window.sign_in("x" * 40)
    window.wait("#refused", "does not know this token")
    assert window.all("main, nav, #session") == []
    window.sign_in(READ)
    window.wait("#role", "read")
    assert window.driver.execute_script("return sessionStorage.length") == 1
    window.wait("#session button", "Sign out").click()
    window.wait("#token")
    assert window.all("main, nav, #session") == []
    assert window.driver.execute_script("return sessionStorage.length") == 0


def test_topics_and_one_of_them(window: Browser, world: World) -> None:
    window.sign_in(OPERATE)
    row = window.wait("tbody tr", world.delay)
    window.wait("tbody tr", "active")
    window.wait("tbody tr time", "in 2")
    assert "one (2)" in row.text
    window.wait("tbody td[data-label=Rejected] a", "1")
    window.wait("tbody td[data-label^=Late]", "ms")
    before = window.text("tbody tr time")
    window.gone(".freshness.old")
    window.wait(".freshness", "live")
    window.wait("tbody a", world.delay).click()
    window.wait("h1", world.delay)
    # The routers count every few seconds only.
    window.wait(".bars li", f"{world.out}\n1")
    window.wait(".bars li", "10 m to 1 h\n1")
    window.wait("figcaption", "1 in all, most in ")
    window.wait(".tile", "Late, p50 and p99")
    (hour, week) = window.all(".steps-drawn svg")
    assert "Due in the next hour, by minute: 1 in all" in str(hour.get_attribute("aria-label"))
    assert "Due in the next week, by hour: 1 in all, most in 0 h to 1 h: 1" in str(week.get_attribute("aria-label"))
    window.wait("td", "max_delay")
    assert "when_disabled" not in window.text("main")
    window.wait("input[name=all]").click()
    window.wait("td", "when_disabled")
    assert window.script("return location.hash").endswith("?all=yes")
    assert before != window.text(".tiles time"), "the countdown stands still"


def test_an_answer_is_drawn_by_the_view_that_asked(window: Browser, world: World) -> None:
    window.sign_in(READ)
    window.wait("tbody a", world.delay).click()
    window.wait("h1", world.delay)
    window.script(LEAVE_AT_THE_ANSWER)
    window.wait("#view-policies")
    assert [each for each in window.complaints() if EXPECTED not in each] == []


def test_where_is_my_record(window: Browser, world: World) -> None:
    window.sign_in(READ)
    window.wait("nav a", "Find a record").click()
    place = window.wait("#place")
    place.send_keys("no place\n")
    window.wait("#place-problem", "topic/partition/offset")
    for where, steps in (
        (world.pending, ["Sent", "Indexed", "Due", "To be released"]),
        (world.released, ["Sent", "Indexed", "Due", "Released"]),
        (world.rejected, ["Sent", "Indexed", "Rejected"]),
    ):
        place = window.wait("#place")
        place.clear()
        place.send_keys(f"{where}\n")
        window.wait("h2", where)
        assert [each.text for each in window.all(".timeline b")] == steps
    window.wait(".timeline li", "MAX_DELAY_EXCEEDED")
    window.go(f"#find/{world.released}")
    window.wait(".timeline li", f"as {world.out}/0/0")
    window.go(f"#find/{world.delay}/7/0")
    window.wait("#place-problem", "2 partitions")
    window.go("#find/nothing/0/0")
    window.wait("#place-problem", "is not a delay topic")


def test_rejected_records_by_code_and_driving_them_again(window: Browser, world: World) -> None:
    window.sign_in(READ)
    window.wait("nav a", "Rejected").click()
    window.wait("tbody a", "MAX_DELAY_EXCEEDED").click()
    row = window.wait("section tbody tr", world.rejected)
    assert "<b>id</b>" in row.text, "an id is text"
    assert window.all("main button") == []
    window.wait("#session button", "Sign out").click()
    window.sign_in(OPERATE)
    window.wait("tbody button", "Drive again").click()
    window.wait("#sure-question", world.delay)
    window.wait("#sure-yes", "Drive again").click()
    window.wait("#done", "MAX_DELAY_EXCEEDED: 1 of 1 driven again.")
    window.wait("section tbody .badge.good", "yes")
    # The record was rejected again; the mark of the first redrive lies between the two.
    world.stage.wait_records(f"{world.delay}.rejected", 3)
    window.driver.refresh()
    window.wait("section tbody tr", "(1 before)")


def test_what_is_pending_one_by_one_moving_and_cancelling_it(window: Browser, world: World) -> None:
    window.sign_in(READ)
    window.wait("nav a", "Pending").click()
    window.wait("tbody tr", world.pending.removeprefix(f"{world.delay}/"))
    named = world.stage.send(world.delay, ("deliver-after", b"PT40M"), ("deliver-id", b"a/<b>7</b>"))
    window.wait("#deliver-id").send_keys("nothing\n")
    window.wait("main p", "Nothing is pending that is asked for")
    place = window.wait("#deliver-id")
    place.clear()
    place.send_keys("a/<b>7</b>\n")
    row = window.wait("tbody tr", named.removeprefix(f"{world.delay}/"))
    assert "a/<b>7</b>" in row.text, "an id is text"
    assert window.all("main table button") == []
    window.wait("#session button", "Sign out").click()
    window.sign_in(OPERATE)
    window.wait("tbody button", "Move it").click()
    window.wait("#sure-question", "Move a/<b>7</b>")
    window.script(
        "const own = new Date(Date.now() + 1_800_000 - new Date().getTimezoneOffset() * 60_000);"
        "document.getElementById('when').value = own.toISOString().slice(0, 19)"
    )
    window.wait("#sure-yes", "Move it").click()
    window.wait("#done", "a/<b>7</b> is due at ")
    window.wait("tbody tr", "in 29 m")
    window.wait("tbody button", "Cancel it").click()
    window.wait("#sure-question", "Cancel a/<b>7</b>")
    assert not window.wait("#sure-meaning").find_element("xpath", "following-sibling::p").is_displayed()
    window.wait("#sure-yes", "Cancel it").click()
    window.wait("#done", "a/<b>7</b> is cancelled")
    window.wait("main p", "Nothing is pending that is asked for")


def test_a_bar_leads_to_the_records_that_are_due_then(window: Browser, world: World) -> None:
    window.sign_in(READ)
    window.go(f"#topic/{world.delay}")
    window.wait(".bars li", "10 m to 1 h\n1")
    (hour, _) = window.all(".steps-drawn svg")
    window.driver.execute_script("arguments[0].querySelector('.step[tabindex=\"0\"]').focus()", hour)
    at_first = window.script("return document.activeElement.getAttribute('aria-label')")
    window.press(Keys.ARROW_LEFT, Keys.ARROW_RIGHT)
    assert window.script("return document.activeElement.getAttribute('aria-label')") == at_first
    assert at_first.endswith(": 1")
    window.press(Keys.ENTER)
    window.wait("h1", f"Pending in {world.delay}")
    window.wait("tbody tr", world.pending.removeprefix(f"{world.delay}/"))
    assert window.wait("#due-from").get_attribute("value")
    window.driver.back()
    # No record is overdue.
    window.wait(".bars a", "overdue").click()
    window.wait("main p", "Nothing is pending that is asked for")
    window.driver.back()
    window.wait(".bars a", world.out).click()
    window.wait("tbody tr", world.pending.removeprefix(f"{world.delay}/"))
    assert window.wait("#target").get_attribute("value") == world.out


def test_a_record_by_its_id_or_key(window: Browser, world: World) -> None:
    placed = world.stage.send(
        world.delay, ("deliver-after", b"PT50M"), ("deliver-id", b"by-name"), key=MARKUP.encode(), value=MARKUP.encode()
    )
    window.sign_in(READ)
    window.wait("nav a", "Find a record").click()
    window.wait("#named-id").send_keys("by-name\n")
    window.wait("tbody tr", placed)
    # The page shows the only schedule at once.
    window.wait("h2", placed)
    assert window.all("#named-key") == []
    # As if the page had offered it.
    window.go(f"#pending/{world.delay}?key={quote(MARKUP)}")
    window.wait("#trouble", "keys are for +payload")
    window.go(f"#pending/{world.delay}")
    window.wait("tbody tr", "by-name")
    assert MARKUP not in window.text("main")
    window.wait("#session button", "Sign out").click()
    window.sign_in(SEES)
    window.wait("#role", "read, sees payload")
    window.wait("tbody tr", MARKUP)
    window.go("#find")
    window.wait("#named-key").send_keys(f"{MARKUP}\n")
    window.wait("h2", placed)
    window.wait("#named-key").clear()
    window.wait("#named-key").send_keys("no such key\n")
    window.wait("main p", "Nothing with the key no such key is pending.")
    assert window.all("main img, main script") == []


def test_a_query_by_header_is_for_who_sees_payload(window: Browser, world: World) -> None:
    window.sign_in(OPERATE)
    # As if the page had offered it.
    window.go(f"#cancel/{world.delay}?target={world.out}&header=customer&value=7")
    window.wait(".refused", "counts by header are for +payload")
    assert window.all("h2, #cancel-header, #cancel-value, #trouble") == []
    window.wait("#cancel-target").submit()
    window.wait("h2", "pending match")


def test_who_changed_which_policy(window: Browser, world: World) -> None:
    producer = Producer({"bootstrap.servers": world.stage.bootstrap})
    policy = json.dumps({"version": 1, "paused": True, "paused_reason": MARKUP}).encode()
    told: Any = [("changed-by", MARKUP.encode()), ("changed-from", b"ops-1"), ("changed-through", b"command")]
    producer.produce(world.policies, policy, f"target/{world.out}", headers=told)
    assert producer.flush(TIMEOUT_S) == 0
    window.sign_in(OPERATE)
    window.go("#policies")
    window.wait("section tbody tr", f"{MARKUP} by command from ops-1")
    window.wait("tbody tr", f"paused_reason {MARKUP}")
    window.wait("tbody button", "Resume").click()
    window.wait("#sure-yes", "Resume").click()
    name = hashlib.sha256(OPERATE.encode()).hexdigest()[:8]
    row = window.wait("section tbody tr", f"token {name} (operate) by admin API from 127.0.0.1")
    assert "paused unset" in row.text or "removed" in row.text
    assert window.all("main img, main script") == []
    httpx.delete(
        f"{world.url}/api/v1/policies/targets/{world.out}",
        headers={"authorization": f"Bearer {OPERATE}"},
        trust_env=False,
    ).raise_for_status()


def test_who_may_only_produce_schedules_a_record_and_sees_nothing(window: Browser, world: World) -> None:
    window.sign_in(PRODUCE)
    window.wait("h1", "Schedule a record")
    assert [each.text for each in window.all("nav a")] == ["Schedule a record"]
    # As if the page had offered it.
    window.go("#topics")
    window.wait("h1", "Schedule a record")
    assert window.all("main table") == []
    window.wait("#schedule-topic").send_keys(world.delay)
    window.wait("#schedule-after").send_keys("2h")
    window.wait("#schedule-id").send_keys(MARKUP)
    window.wait("#schedule-value").send_keys("remind")
    window.wait("main button", "Schedule it").click()
    window.wait("#sure-question", f"Write a record to {world.delay}?")
    window.wait("#sure-yes").click()
    window.wait("#trouble", "MAX_DELAY_EXCEEDED")
    after = window.wait("#schedule-after")
    after.clear()
    after.send_keys("45m", Keys.ENTER)
    window.wait("#sure-yes").click()
    window.wait("#done", f"Written as {world.delay}/")
    assert f"to {world.out}." in window.text("#done")
    assert window.wait("#schedule-after").get_attribute("value") == "", "it is not there to be written again"
    window.wait("#session button", "Sign out").click()
    window.sign_in(READ)
    window.go(f"#find?topic={world.delay}&id={quote(MARKUP)}")
    window.wait(".timeline b", "To be released")


def test_what_somebody_else_wrote_is_text(window: Browser, world: World) -> None:
    window.sign_in(READ)
    markup = "<img src=x onerror=alert(1)>"
    window.go(f"#find/{quote(markup)}/0/0")
    window.wait("#place-problem")
    assert window.wait("#place").get_attribute("value") == f"{markup}/0/0"
    assert window.all("main img") == []
    refused = window.script(
        "try { document.querySelector('main').innerHTML = '<b>x</b>'; return 'taken'; } catch (e) { return e.name; }"
    )
    assert refused == "TypeError"
    (told,) = [each for each in window.complaints() if EXPECTED not in each]
    assert "TrustedHTML" in told


def test_who_may_only_read_is_offered_no_change_and_is_refused_one(window: Browser, world: World) -> None:
    window.sign_in(READ)
    window.wait("tbody tr", world.delay)
    assert window.all("main button") == []
    window.go(f"#topic/{world.delay}")
    window.wait(".bars li", world.out)
    assert window.all("main button") == []
    # As if the page had offered it.
    window.driver.execute_script(
        "const b = document.createElement('button'); b.textContent = 'x'; Object.assign(b.dataset, arguments[0]);"
        "document.querySelector('header').append(b); b.click()",
        {"do": "change", "verb": "pause", "scope": "topics", "name": world.delay},
    )
    window.wait("#sure-yes").click()
    window.wait("#trouble", "this token may only read")
    assert not world.is_paused()


def test_a_pause_with_the_keyboard_alone(window: Browser, world: World) -> None:
    window.press(OPERATE, Keys.ENTER)
    window.wait("tbody button", "Pause")
    for _ in range(20):
        window.press(Keys.TAB)
        if window.driver.switch_to.active_element.text == "Pause":
            break
    # Numbers change under it, and it keeps the focus.
    window.script("await new Promise((later) => setTimeout(later, 2500))")
    assert window.driver.switch_to.active_element.text == "Pause"
    window.press(Keys.ENTER)
    window.wait("#sure-question", world.delay)
    window.press(Keys.ESCAPE)
    window.gone("#sure")
    assert not world.is_paused()
    window.press(Keys.ENTER)
    # A pause can be undone, so the button that was asked for has the focus.
    window.wait("#sure-yes")
    assert window.driver.switch_to.active_element.text == "Pause"
    window.press(Keys.ENTER)
    window.wait("#done", f"Paused {world.delay}")
    window.wait("tbody .badge.bad", "paused")
    assert world.is_paused()
    window.go("#policies")
    window.wait("tbody tr", f"topic/{world.delay}")
    window.wait("tbody .badge.bad", "paused")
    window.wait("tbody button", "Resume").click()
    window.wait("#sure-yes", "Resume").click()
    window.wait("main p", "No policy is set")
    assert not world.is_paused()


def test_a_pause_with_an_end_and_a_reason(window: Browser, world: World) -> None:
    window.sign_in(OPERATE)
    window.go(f"#topic/{world.delay}")
    window.wait(".heading button", "Pause").click()
    window.wait("#reason").send_keys("billing moves")
    window.script("document.getElementById('until').value = '2001-01-31T08:00:00'")
    window.wait("#sure-yes", "Pause").click()
    window.wait("#trouble", "is over; name a later time")
    assert not world.is_paused()
    window.wait(".heading button", "Pause").click()
    assert window.wait("#reason").get_attribute("value") == ""
    window.wait("#reason").send_keys("billing moves")
    window.script("document.getElementById('until').value = '2035-01-31T08:00:00'")
    window.wait("#sure-yes", "Pause").click()
    window.wait("main .banner.trouble", "Paused until Jan 31, 2035")
    window.wait("main .banner.trouble", "Reason: billing moves")
    window.wait(".heading button", "Resume").click()
    window.wait("#sure-yes", "Resume").click()
    window.wait(".heading button", "Pause")
    window.go("#policies")
    window.wait("main p", "No policy is set")


def test_a_narrow_window_has_room_for_all_of_it(window: Browser, world: World) -> None:
    window.look(400, 800)
    widths = {"sign-in": window.script("return document.documentElement.scrollWidth")}
    window.sign_in(OPERATE)
    for address, shown in (
        ("#topics", "tbody tr"),
        (f"#topic/{world.delay}", ".bars"),
        (f"#find/{world.pending}", ".timeline"),
        (f"#pending/{world.delay}", "tbody"),
        (f"#rejected/{world.delay}/MAX_DELAY_EXCEEDED", "section tbody"),
        ("#policies", "h1"),
    ):
        window.go(address)
        window.wait(f"main {shown}")
        widths[address] = window.script("return document.documentElement.scrollWidth")
    assert set(widths.values()) == {400}, widths


def test_a_router_that_does_not_answer_is_told_and_its_last_answer_kept(window: Browser, world: World) -> None:
    window.sign_in(READ)
    window.wait("tbody tr", world.delay)
    window.driver.execute_cdp_cmd("Network.enable", {})
    window.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*/api/*"]})
    try:
        window.wait("#trouble", "does not answer")
        assert world.delay in window.text("tbody")
    finally:
        window.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
    window.gone("#trouble")
    assert all("net::ERR_BLOCKED" in each for each in window.complaints())


def test_no_other_site_can_show_or_use_it(chromium: Browser, world: World, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(f"<!doctype html><iframe src='{world.url}/'></iframe>")
    serve = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        try:
            chromium.driver.get(f"http://{ELSEWHERE}:{site.server_port}/")
            told = chromium.complaints()
            assert any("frame-ancestors" in each for each in told), told
            path = f"{world.url}/api/v1/topics/{world.delay}/pause"
            for headers in ("{}", f"{{ authorization: 'Bearer {OPERATE}', 'content-type': 'application/json' }}"):
                options = f"{{ method: 'POST', body: '{{}}', headers: {headers} }}"
                asked = f"return (await fetch('{path}', {options})).status"
                assert chromium.script(asked) == "TypeError: Failed to fetch"
            # Requests that need no permission: a form, and a request whose answer the page cannot read.
            simple = "{ method: 'POST', mode: 'no-cors', credentials: 'include', body: '{}' }"
            assert chromium.script(f"return (await fetch('{path}', {simple})).type") == "opaque"
            chromium.script(
                "const form = document.createElement('form');"
                f"Object.assign(form, {{ action: '{path}', method: 'POST', enctype: 'text/plain' }});"
                "document.body.append(form); form.submit()"
            )
            chromium.wait("body", "no token that is known")
        finally:
            site.shutdown()
    assert not world.is_paused()
    # A foreign name that leads here (DNS rebinding).
    chromium.driver.get(world.url.replace("localhost", ELSEWHERE))
    assert "Host is not one of this API" in chromium.text("body")
    for method, path, body in (("GET", "topics", None), ("POST", f"topics/{world.delay}/pause", {})):
        # The token alone does not help an attacker who has led a browser here.
        named = {"authorization": f"Bearer {OPERATE}", "host": f"{ELSEWHERE}:{world.url.rpartition(':')[2]}"}
        answer = httpx.request(method, f"{world.url}/api/v1/{path}", json=body, headers=named, trust_env=False)
        assert answer.status_code == 421
    assert not world.is_paused()
    assert chromium.all("#sign-in") == []
    chromium.complaints()


def test_the_content_of_a_record_by_role(window: Browser, world: World) -> None:
    headers = (("x-markup", MARKUP.encode()), ("X-Token", b"canary-secret"), ("bytes", b"\x00\xff"))
    value = b'{"number": 12345678901234567890, "text": "' + MARKUP.encode() + b'"}'
    when = ("deliver-after", b"PT35M")
    place = world.stage.send(world.delay, when, *headers, value=value, key=b"customer-7")
    rejected = world.stage.send(world.delay, ("deliver-after", b"PT3H"), *headers, value=b"x" * 5_000)
    for token, sees in ((READ, False), (SEES, True)):
        window.sign_in(token)
        window.go(f"#pending/{world.delay}")
        window.wait("tbody a", place.removeprefix(f"{world.delay}/")).click()
        window.wait("main tbody tr", "x-markup")
        main = window.text("main")
        assert "canary" not in main
        assert ("customer-7" in main, MARKUP in main, "00 ff" in main) == (sees, sees, sees)
        assert "12345678901234567890" not in main, "nobody has asked for the value"
        if sees:
            window.wait("main button", "Show the value").click()
            window.wait("pre", '"number": 12345678901234567890,\n')
        else:
            assert window.all("main section button") == []
        window.go(f"#rejected/{world.delay}/MAX_DELAY_EXCEEDED")
        row = window.wait("section tbody tr", rejected)
        row.find_element("css selector", "[data-label=Record] a").click()
        window.wait("h1", f"Rejected of {world.delay}")
        window.wait("main tbody tr", "delay-error")
        assert "canary" not in window.text("main")
        if sees:
            window.wait("main button", "Show the value").click()
            window.wait("main p", "the beginning of 4.9 KiB")
        assert window.all("main img") == []
        window.wait("#session button", "Sign out").click()
    window.go("#topics")
