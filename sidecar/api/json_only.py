"""What changes something must say that it is JSON: no form of a web page can send that by itself."""

from http import HTTPStatus
from typing import Final

from fastapi import Depends, Request

from sidecar.admission.problems import Refusal
from sidecar.api.bodies import JSON


def _refuse_other_types(request: Request) -> None:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send Content-Type: {JSON}")


JSON_ONLY: Final = [Depends(_refuse_other_types)]
"""For the ``dependencies`` of every path that takes a body."""
