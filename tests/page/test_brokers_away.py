"""Tests of the page while the broker is away: each view reports it, keeps the last numbers in grey, and recovers."""

import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import httpx
import pytest
from confluent_kafka.admin import NewTopic

from sidecar.dev import local_kafka
from sidecar.dev.local_kafka import free_port
from sidecar.dev.local_kafka.node import Node
from tests.integration.scenario import Stage
from tests.page.browser import Browser, browser

OPERATE: Final = "operates-0123456789abcdef0123456789ab"
TOLD_WITHIN_S: Final = 5.0
"""The page's own promise."""

TRIES: Final = 3
"""On a busy machine one of so many broken connections has to be told within the time."""

EXPECTED: Final = ("the server responded with a status of", "net::ERR_")


class World(NamedTuple):
    """A router with a page, and a broker that may be stopped."""

    node: Node
    url: str
    delay: str
    policies: str

    def ask(self, path: str) -> httpx.Response:
        """Return the answer of the API."""
        headers = {"authorization": f"Bearer {OPERATE}"}
        return httpx.get(f"{self.url}/api/v1{path}", headers=headers, trust_env=False, timeout=30)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        local_kafka.check_available(own_nodes=True)
    except local_kafka.KafkaUnavailable as error:
        pytest.skip(f"needs a broker that it may stop: {error}")
    directory = tmp_path_factory.mktemp("away")
    with local_kafka.cluster(own_nodes=True) as running:
        stage = Stage(running.bootstrap, directory)
        policies, status = f"__{stage.word}.policies", f"__{stage.word}.status"
        stage.create([NewTopic(name, 1, 1, config={"cleanup.policy": "compact"}) for name in (policies, status)])
        delay = stage.delay(partitions=2, default_target=stage.target(), max_delay="2h")
        tokens = directory / "tokens"
        tokens.write_text(f"operate {OPERATE}\n")
        router = stage.router(policies_topic=policies, status_topic=status)
        port = free_port()
        with router.config.open("a") as file:
            file.write(f'\n[admin]\nlisten = "127.0.0.1:{port}"\ntoken_file = "{tokens}"\npage = true\n')
        with router:
            router.start_and_wait()
            stage.send(delay, ("deliver-after", b"PT1H"), ("deliver-id", b"order-7"))
            stage.send(delay, ("deliver-after", b"PT3H"))
            stage.wait_records(f"{delay}.rejected", 1)
            (node,) = running.nodes
            made = World(node, f"http://localhost:{port}", delay, policies)
            made.ask("/policies")
            httpx.patch(
                f"{made.url}/api/v1/policies/topics/{delay}",
                json={"max_delay": "90m"},
                headers={"authorization": f"Bearer {OPERATE}"},
                trust_env=False,
            ).raise_for_status()
            yield made
        stage.print_logs()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture
def window(chromium: Browser, world: World) -> Iterator[Browser]:
    chromium.look(1200, 900)
    chromium.open(world.url)
    chromium.sign_in(OPERATE)
    chromium.wait("#role", "operate")
    yield chromium
    if not world.node.running:
        world.node.start()
    unexpected = [each for each in chromium.complaints() if not any(text in each for text in EXPECTED)]
    assert unexpected == []


def colours(window: Browser, selector: str) -> list[list[int]]:
    """Return red, green and blue of the text of each such element, from the computed style."""
    told: Any = window.script(
        f"return [...document.querySelectorAll('{selector}')]"
        ".map((each) => getComputedStyle(each).color.match(/[0-9]+/g).slice(0, 3).map(Number))"
    )
    assert isinstance(told, list), told
    return told


def told_after_s(window: Browser, world: World) -> float:
    """Kill the broker, and return the time until the page reports it."""
    world.node.kill()
    began_s = time.monotonic()
    window.wait("#trouble", "the brokers do not answer, since ")
    return time.monotonic() - began_s


def come_back(window: Browser, world: World) -> None:
    """Start the broker, and wait until the page shows new numbers."""
    world.node.start()
    window.gone("#trouble")
    window.gone("main.outdated")
    window.gone(".freshness.old")


def is_grey(colour: list[int]) -> bool:
    return max(colour) - min(colour) < 40


VIEWS: Final = {
    "topics": ("#topics", "tbody tr", "{delay}"),
    "topic": ("#topic/{delay}", "h1", "{delay}"),
    "pending": ("#pending/{delay}", "tbody tr", "order-7"),
    "find": ("#find/{delay}/0/0", ".timeline", ""),
    "rejected": ("#rejected/{delay}/MAX_DELAY_EXCEEDED", "section tbody tr", ""),
    "policies": ("#policies", "tbody tr", "max_delay"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_says_that_the_brokers_do_not_answer_and_keeps_what_it_has(
    view: str, window: Browser, world: World
) -> None:
    address, selector, text = (part.format(delay=world.delay) for part in VIEWS[view])
    window.go(address)
    window.wait(f"main {selector}", text)
    window.gone("#trouble")
    if view in ("topics", "topic"):
        window.wait("main .badge.good", "active")
    told_s = [told_after_s(window, world)]
    while told_s[-1] >= TOLD_WITHIN_S and len(told_s) < TRIES:
        come_back(window, world)
        told_s.append(told_after_s(window, world))
    assert told_s[-1] < TOLD_WITHIN_S, told_s
    assert window.all("main .badge.good") == []
    assert all(map(is_grey, colours(window, "main .badge"))), "no badge has a colour"
    assert all(map(is_grey, colours(window, "main td, main dd, main h1")))
    shown = window.text("main")
    assert text in shown
    window.wait(".freshness.old", " old")
    aged = window.text(".freshness")
    window.script("await new Promise((later) => setTimeout(later, 2500))")
    assert window.text(".freshness") != aged, "its age goes on"
    assert window.text("main") == shown, "and nothing counts down"
    assert window.all("main .badge.good") == []
    come_back(window, world)
    if view in ("topics", "topic"):
        window.wait("main .badge.good", "active")


def test_a_view_that_is_opened_meanwhile_has_its_tab_marked_and_asks_nobody_for_ever(
    window: Browser, world: World
) -> None:
    window.wait("tbody tr", world.delay)
    world.node.kill()
    window.wait("#trouble", "the brokers do not answer, since ")
    for address, tab in (
        ("#pending", "Pending"),
        ("#find", "Find a record"),
        (f"#rejected/{world.delay}", "Rejected"),
        ("#policies", "Policies"),
        ("#topics", "Topics"),
    ):
        window.go(address)
        window.wait("nav a[aria-current=page]", tab)
        window.wait("main p", "There is nothing to show.")
        assert len(window.all("nav a[aria-current=page]")) == 1
        window.wait("#trouble", "the brokers do not answer, since ")
        assert window.text(".freshness") == ""
    world.node.start()
    window.wait("tbody tr", world.delay)
    window.gone("#trouble")
    window.wait("tbody tr", "active")


def test_what_there_is_not_leaves_no_question_open(window: Browser) -> None:
    window.go("#topic/nowhere")
    window.wait("#trouble", "nowhere is not a delay topic of this router")
    window.wait("main p", "There is nothing to show.")
    window.wait("nav a[aria-current=page]", "Topics")
    window.go("#policies")
    window.wait("main h1", "Policies")
    window.gone("#trouble")


def test_the_api_says_it_within_seconds_whatever_is_asked(world: World) -> None:
    assert world.ask("/brokers").json() == {"answering": True, "silent_since_ms": None, "detail": ""}
    before_ms = time.time_ns() // 1_000_000
    try:
        told_s, answer = api_told_after_s(world)
        for _ in range(1, TRIES):
            if told_s < TOLD_WITHIN_S:
                break
            world.node.start()
            wait_until_answering(world)
            told_s, answer = api_told_after_s(world)
        assert told_s < TOLD_WITHIN_S
        assert (answer.status_code, "the brokers do not answer, since " in answer.text) == (503, True), answer.text
        told = world.ask("/brokers").json()
        assert told["answering"] is False
        assert before_ms - 5_000 <= told["silent_since_ms"] <= time.time_ns() // 1_000_000
    finally:
        world.node.start()
    wait_until_answering(world)
    assert world.ask(f"/topics/{world.delay}").status_code == 200


def api_told_after_s(world: World) -> tuple[float, httpx.Response]:
    """Kill the broker, and return the first answer that is no success, with the time until it came."""
    world.node.kill()
    killed_s = time.monotonic()
    while (answer := world.ask(f"/topics/{world.delay}/pending")).status_code == 200:
        assert time.monotonic() - killed_s < 30, "a dead broker seems to answer"
        time.sleep(0.2)
    return time.monotonic() - killed_s, answer


def wait_until_answering(world: World) -> None:
    until_s = time.monotonic() + 60
    while not (answer := world.ask("/brokers").json())["answering"] and time.monotonic() < until_s:
        time.sleep(0.2)
    assert answer["answering"] is True
