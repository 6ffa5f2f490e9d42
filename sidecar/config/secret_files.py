"""Reads secrets of ``[kafka]`` from files: ``"sasl.password_file" = "/run/secrets/password"`` replaces the password.

An environment is inherited, shown by process tools and written into crash dumps; a mounted file avoids all that. So
every key whose value ``delay-router config`` would mask may name a file that holds the value. In the environment the
suffix is ``_FILE``. Files are read together with the configuration, at the start.
"""

from pathlib import Path
from typing import Final

from index.errors import ConfigError
from sidecar.config.librdkafka_keys import HARMLESS

SUFFIX: Final = "_file"

OWN_FILES: Final = frozenset(
    {
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.jwt.template.file",
    }
)
"""Keys that name a file which librdkafka reads itself."""

MAX_BYTES: Final = 65_536
"""Most bytes of a file; a private key with its chain has a tenth of that."""


def kafka_key(spelled: str) -> str:
    """Return the key that a variable means: ``sasl_password`` is ``sasl.password``, and ``…_file`` keeps its suffix."""
    dotted = spelled.replace("_", ".")
    if spelled.endswith(SUFFIX) and dotted not in OWN_FILES:
        return f"{spelled.removesuffix(SUFFIX).replace('_', '.')}{SUFFIX}"
    return dotted


def counterpart(key: str) -> str:
    """Return the alternative key: the key of the file for the key of the value, and vice versa."""
    return key.removesuffix(SUFFIX) if key.endswith(SUFFIX) else key + SUFFIX


def read(key: str, path: object) -> str:
    """Return the content of the file that ``key`` names, without the end of its last line.

    Raise ConfigError, which names key and file and never shows the content.
    """
    base = counterpart(key)
    if base in HARMLESS:
        raise ConfigError(f'kafka."{key}": "{base}" is no secret: give its value itself')
    if not isinstance(path, str) or not path:
        raise ConfigError(f'kafka."{key}": the name of a file is expected')
    try:
        with Path(path).open("rb") as file:
            held = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f'kafka."{key}": {path}: cannot be read: {why}') from None
    if len(held) > MAX_BYTES:
        raise ConfigError(f'kafka."{key}": {path}: more than {MAX_BYTES} bytes is no secret of a client')
    try:
        text = held.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f'kafka."{key}": {path}: not UTF-8') from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text or "\0" in text:
        raise ConfigError(f'kafka."{key}": {path}: {"holds a NUL byte" if text else "is empty"}')
    return text
