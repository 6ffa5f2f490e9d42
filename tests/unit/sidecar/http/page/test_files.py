"""The files of the page: its listener gives out these without a token, and nothing else."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest
from structlog.testing import capture_logs

from sidecar.http.api.application import PREFIX
from sidecar.http.pace import KNOWN
from sidecar.http.page.files import BELOW, STATIC, page_files
from tests.support.admin_api import OPERATE, READ, Api

FILES: Final = page_files()
SCRIPTS: Final = sorted(STATIC.glob("*.js"))
# Each of these names turns a string into markup or code.
SINKS: Final = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|Function\(|srcdoc")


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return Api(tmp_path, page=True)


class Markup(HTMLParser):
    """The files that a browser would load because of the first file, and the code that would run inline."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: set[str] = set()
        self.inline: list[str] = []
        self._within = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._within = tag
        for name, value in attrs:
            if name == "src" or (tag == "link" and name == "href"):
                self.loads.add(value or "")
            if name == "style" or name.startswith("on"):
                self.inline.append(f"{tag} {name}")

    def handle_data(self, data: str) -> None:
        if self._within in ("script", "style") and data.strip():
            self.inline.append(data)


def test_every_file_is_served_and_whatever_a_file_needs_is_one_of_them() -> None:
    assert set(FILES) == {"/" if path.name == "index.html" else BELOW + path.name for path in STATIC.iterdir()}
    markup = Markup()
    markup.feed(FILES["/"].body.decode())
    assert markup.inline == []
    assert {"page/main.js", "page/page.css"} <= markup.loads
    needed = {f"/{path}" for path in markup.loads}
    for script in SCRIPTS:
        imported = re.findall(r'from "\./([a-z-]+\.js)"', script.read_text(encoding="utf-8"))
        needed |= {BELOW + name for name in imported}
    assert needed <= set(FILES)
    assert {BELOW + path.name for path in SCRIPTS} <= needed, "a script that nothing loads"


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
def test_nothing_comes_from_elsewhere_and_no_string_becomes_markup(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert "//" not in re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    assert SINKS.search(text) is None


def test_files_need_no_token_and_a_browser_may_run_them_alone(api: Api) -> None:
    for path, file in FILES.items():
        answer = api.client().get(path)
        assert (answer.status_code, answer.content) == (200, file.body)
        policy = answer.headers["content-security-policy"]
        for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "trusted-types 'none'"):
            assert part in policy.split("; ")
        assert "unsafe" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        head = api.client().head(path)
        assert (head.status_code, head.content) == (200, b"")


def test_all_else_needs_a_token_as_before(api: Api) -> None:
    for path in (
        "/index.html",
        "/page/",
        "/page/%2e%2e/files.py",
        "/page/__init__.py",
        "/page/nothing",
        f"{PREFIX}/topics",
    ):
        assert api.client().get(path).status_code == 401, path
        assert path.startswith(PREFIX) or api.client(READ).get(path).status_code == 404, path
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert api.client().request(method, "/").status_code == 401
        assert api.client(OPERATE).request(method, "/").status_code == 404


def test_no_name_of_somebody_else_leads_to_it(api: Api) -> None:
    assert api.client().get("/", headers={"host": "elsewhere.example"}).status_code == 421


def test_it_is_off_unless_it_is_switched_on(tmp_path: Path) -> None:
    api = Api(tmp_path)
    for path in FILES:
        assert api.client().get(path).status_code == 401
        assert api.client(READ).get(path).status_code == 404


def test_files_have_a_pace_of_their_own_and_are_no_news(api: Api) -> None:
    with capture_logs() as told:
        asked = [api.client().get("/page/icon.svg").status_code for _ in range(int(KNOWN.burst) + 1)]
    assert asked == [200] * int(KNOWN.burst) + [429]
    assert {event["log_level"] for event in told if event["event"] == "admin_request"} == {"debug"}
    assert api.client(READ).get(f"{PREFIX}/topics").status_code == 200
