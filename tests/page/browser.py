"""Runs a headless Chromium with its own profile, driven by selenium, with the operations that the tests need."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

TIMEOUT_S: Final = 30.0
"""Far more than any expected wait takes, also on a busy machine."""

ELSEWHERE: Final = "elsewhere.example"
"""A foreign name that leads to this machine."""

_SWITCHES: Final = (
    "--headless=new",
    # A container has neither the rights for a sandbox nor a display.
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-dev-shm-usage",
    # The browser must send requests to the router only.
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1",
)


class Browser:
    """One window."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Open an address, in a tab without stored data."""
        self.driver.get("about:blank")
        self.driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": url, "storageTypes": "all"})
        self.driver.get(url)
        self.driver.execute_script("sessionStorage.clear()")
        self.driver.get(url)

    def sign_in(self, token: str) -> None:
        """Type a token and press Enter."""
        self.wait("#token").send_keys(f"{token}\n")

    def go(self, address: str) -> None:
        """Show another view."""
        self.driver.execute_script("location.hash = arguments[0]", address)

    def wait(self, selector: str, text: str = "") -> WebElement:
        """Return the first visible element of that selector with this text. Raise AssertionError if none appears."""
        found: list[WebElement] = []

        def shown(driver: webdriver.Chrome) -> bool:
            found[:] = [each for each in driver.find_elements(By.CSS_SELECTOR, selector) if _shows(each, text)]
            return bool(found)

        waiting = WebDriverWait(self.driver, TIMEOUT_S, poll_frequency=0.1, ignored_exceptions=[Exception])
        waiting.until(shown, f"no {selector} with {text!r} in:\n{self.text('body')}")
        return found[0]

    def gone(self, selector: str) -> None:
        """Wait until no element of that selector is visible."""
        waiting = WebDriverWait(self.driver, TIMEOUT_S, poll_frequency=0.1, ignored_exceptions=[Exception])
        waiting.until(lambda _: not self.all(selector), f"{selector} is still there")

    def all(self, selector: str) -> list[WebElement]:
        """Return all visible elements of that selector."""
        return [each for each in self.driver.find_elements(By.CSS_SELECTOR, selector) if each.is_displayed()]

    def text(self, selector: str) -> str:
        """Return the visible text of an element."""
        return str(self.driver.find_element(By.CSS_SELECTOR, selector).text)

    def press(self, *keys: str) -> None:
        """Send keys to the element with the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def script(self, text: str) -> Any:
        """Run a script in the page, and return its result."""
        # The last argument tells the driver that the script is done.
        asked = f"(async () => {{ {text} }})().then(arguments[0], (error) => arguments[0](String(error)))"
        return self.driver.execute_async_script(asked)

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the window, and the user's choice of light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def complaints(self) -> list[str]:
        """Return the console's messages since the last call: errors of scripts, and refusals by the policy."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]


def _shows(element: WebElement, text: str) -> bool:
    return element.is_displayed() and text in element.text


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start a browser; without Chromium skip the test with a message, or fail in CI."""
    options = webdriver.ChromeOptions()
    options.binary_location = _program("chromium")
    for switch in (*_SWITCHES, f"--user-data-dir={profile}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(_program("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


def _program(name: str) -> str:
    found = shutil.which(name)
    if found:
        return found
    message = f"{name} is not installed; on Debian: apt-get install chromium chromium-driver"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
