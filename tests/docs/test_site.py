"""The site of the documents: every link and every section that a link names is there (``strict`` in mkdocs.yml)."""

import json
import subprocess

import pytest

from tests.docs.documents import documents
from tests.support.paths import ROOT

BUILT = ROOT / "build" / "site" / "html"


@pytest.mark.timeout(300)
def test_every_document_has_a_page_and_is_found_by_its_title() -> None:
    done = subprocess.run(["make", "site"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    searched = {entry["location"] for entry in json.loads((BUILT / "search" / "search_index.json").read_text())["docs"]}
    pages = {document.relative_to(ROOT).with_suffix(".html").as_posix() for document in documents()}
    assert {page.replace("README", "index") for page in pages} <= searched
