"""Random requests to the admin API, within the OpenAPI document and outside: each answer keeps the document's promises.

Checked of each answer: no 5xx; the status, type and body that the document names; 405 with the allowed methods; valid
requests accepted and invalid ones refused; and nothing answered without the token.
"""

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.python.asgi import HOST
from schemathesis.schemas import BaseSchema
from structlog.testing import capture_logs

from sidecar.http import guard, pace
from sidecar.http.api.application import PREFIX
from sidecar.http.guard import DOCUMENT
from tests.support.admin_api import OPERATE, PRODUCE, Api, bearer, operations

EXAMPLES = 6
"""Requests for each operation and kind: enough to reach every key and limit of the document in a few runs."""

TOO_LONG = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.REQUEST_URI_TOO_LONG)
"""Refused before the contents are looked at, as for many long ids: the document does not limit a whole request."""

# Schemathesis leaves out the document's own path.
OPERATIONS = [(path, method) for method, path, _ in operations() if path != DOCUMENT]
_HEADERS = {"Authorization": f"Bearer {OPERATE}"}


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BaseSchema]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("KNOWN", "UNKNOWN"):
            patch.setattr(guard, name, pace.Rate(1e9, 1e9))
        api = Api(tmp_path_factory.mktemp("api"), allowed_hosts=[HOST])
        yield schemathesis.openapi.from_asgi(DOCUMENT, api.app, headers=_HEADERS)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_promise_is_kept(schema: BaseSchema, path: str, method: str, mode: GenerationMode) -> None:
    operation = schema[path][method]
    is_valid = mode is GenerationMode.POSITIVE
    headers = bearer(PRODUCE if operation.definition.raw["x-role"] == "produce" else OPERATE)

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode), is_known=st.booleans())
    def keeps_its_promise(case: Any, is_known: bool) -> None:
        if is_valid and is_known and "topic" in case.path_parameters:
            # Random names are never those of a delay topic.
            case.path_parameters["topic"] = "d"
        if case.path_parameters.get("target") in ("d", "e"):
            # A delay topic is no target; this follows from the configuration, which the document cannot know.
            case.path_parameters["target"] = "f"
        response = case.call(headers=headers)
        if response.status_code not in TOO_LONG:
            case.validate_response(response, headers=headers)

    keeps_its_promise()


def test_a_broken_promise_is_seen(tmp_path: Path) -> None:
    api = Api(tmp_path, allowed_hosts=[HOST])
    made = schemathesis.openapi.from_asgi(DOCUMENT, api.app, headers=_HEADERS)
    api.operations.fail(RuntimeError())
    case = made[f"{PREFIX}/policies"]["GET"].Case()
    with capture_logs(), pytest.raises(FailureGroup) as caught:
        case.call_and_validate(headers=_HEADERS)
    assert "Server error" in repr(caught.value.exceptions)
