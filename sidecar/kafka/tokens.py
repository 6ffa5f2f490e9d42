"""What clients connect with: the section ``[kafka]``, and who signs tokens for Amazon MSK with IAM.

librdkafka asks for a token when a client is made, and again before it ends, from a thread of its own. All clients of a
process share one, which is signed with the credentials that the AWS SDK finds: a role of the pod, an instance profile,
environment variables. Nothing is sent for that but what finding the credentials takes.
"""

import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from index.errors import ConfigError
from sidecar.config.model import Config

FRESH_S: Final = 450.0
"""A token with less time left is not handed out again. Signed ones hold for 900 s, and clients ask at 80 % of that."""

Sign = Callable[[], tuple[str, int]]
"""Gives a token and when it ends, in epoch milliseconds."""


def connection(config: Config) -> dict[str, Any]:
    """What every client is made with.

    ConfigError where the extra ``msk`` is missing; KafkaException, which may pass, where no token can be signed.
    """
    if not (region := config.router.msk_region):
        return {**config.kafka}
    tokens = _tokens(region)
    # A callback that fails would be waited for, for 10 s, and then be told without its reason.
    tokens("")
    return {**config.kafka, "oauth_cb": tokens}


class Tokens:
    """librdkafka's callback; safe from any thread. ``sign`` may raise anything."""

    def __init__(self, sign: Sign, now_s: Callable[[], float] = time.time) -> None:
        self._sign = sign
        self._now_s = now_s
        self._signing = threading.Lock()
        self._token, self._ends_s = "", 0.0

    def __call__(self, _: str) -> tuple[str, float]:
        """Token and when it ends, in epoch seconds; KafkaException where none can be signed."""
        with self._signing:
            if self._ends_s - self._now_s() < FRESH_S:
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
        from sidecar.kafka.msk import Signer  # noqa: PLC0415 - it is an extra, and takes its time
    except ModuleNotFoundError:
        raise ConfigError("router.msk_region needs the extra 'msk': pip install 'kafka-delay-router[msk]'") from None
    return Tokens(Signer(region))
