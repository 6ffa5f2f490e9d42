"""Health check of the image: asks ``/livez`` where the router listens, by the rules of its configuration.

Standard library only, and not the router's own reading of it: this runs every half minute.
"""

import os
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Final

DEFAULT: Final = "127.0.0.1:8080"
TIMEOUT_S: Final = 5.0


def listens_at(environ: dict[str, str]) -> str:
    """``http.listen``: of the environment, else of the configuration file, else the default."""
    if listen := environ.get("DELAY_ROUTER__HTTP__LISTEN"):
        return listen
    file = Path(environ.get("DELAY_ROUTER_CONFIG") or "delay-router.toml")
    if not file.exists():
        return DEFAULT
    return str(tomllib.loads(file.read_text(encoding="utf-8")).get("http", {}).get("listen", DEFAULT))


def url(listen: str) -> str:
    """Where to ask; an address that means all interfaces is asked on the loopback one."""
    host, _, port = listen.rpartition(":")
    return f"http://{ {'0.0.0.0': '127.0.0.1', '[::]': '[::1]'}.get(host, host) }:{port}/livez"


def main() -> int:
    """0 when it answers 200."""
    try:
        with urllib.request.urlopen(url(listens_at(dict(os.environ))), timeout=TIMEOUT_S):  # noqa: S310 - http, see url
            return 0
    except OSError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
