"""Settings with which clients connect: the section ``[kafka]``, and signed tokens for Amazon MSK with IAM.

librdkafka asks for a token when a client is made, and again before the token ends, from a thread of its own. All
clients of a process share one token. It is signed with the credentials that the AWS SDK finds: a role of the pod, an
instance profile, environment variables. Signing needs no request of its own; only finding the credentials may need one.
"""

import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from index.errors import ConfigError
from sidecar.config.model import Config
from sidecar.extras import install_hint

LIFE_S: Final = 900.0
"""Time that a signed token is valid. If more is left, the clock was set back since: AWS refuses a token that was signed
in the future."""

FRESH_S: Final = 450.0
"""Least time that a reused token must have left; clients ask again at 80 % of its life."""

Sign = Callable[[], tuple[str, int]]
"""Returns a token and its end in epoch milliseconds."""


def connection(config: Config) -> dict[str, Any]:
    """Return the settings that every client is made with.

    Raise ConfigError when the extra ``msk`` is not installed, and KafkaException, which may pass, when no token can be
    signed.
    """
    if not (region := config.router.msk_region):
        return {**config.kafka}
    tokens = _tokens(region)
    # Sign one now: the client would wait 10 s for a callback that fails, and then report that without the reason.
    tokens("")
    return {**config.kafka, "oauth_cb": tokens}


class Tokens:
    """Token callback of librdkafka; any thread may call it. ``sign`` may raise any error."""

    def __init__(self, sign: Sign, now_s: Callable[[], float] = time.time) -> None:
        self._sign = sign
        self._now_s = now_s
        self._signing = threading.Lock()
        self._token, self._ends_s = "", 0.0

    def __call__(self, _: str) -> tuple[str, float]:
        """Return a token and its end in epoch seconds; raise KafkaException when none can be signed."""
        with self._signing:
            if not FRESH_S <= self._ends_s - self._now_s() <= LIFE_S:
                try:
                    self._token, ends_ms = self._sign()
                except Exception as error:
                    why = f"router.msk_region: no token can be signed: {error}"
                    raise KafkaException(KafkaError(KafkaError._AUTHENTICATION, why)) from error
                self._ends_s = ends_ms / 1_000
            return self._token, self._ends_s


@cache
def _tokens(region: str) -> Tokens:
    try:
        from sidecar.kafka.client.msk import Signer  # noqa: PLC0415 - it is an extra, and slow to import
    except ModuleNotFoundError:
        raise ConfigError(f"router.msk_region needs a signer: {install_hint('msk', 'image EXTRAS=1')}") from None
    return Tokens(Signer(region))
