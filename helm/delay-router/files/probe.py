"""`helm test`: every router is ready and exports its metrics; HOSTS and PORT come from the chart."""

import json
import os
import sys
import urllib.error
import urllib.request


def get(url: str) -> tuple[int, str]:
    """Status and body; (0, cause) when nothing answers."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - http, made below
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError as error:
        return 0, str(error)


def problems(host: str, port: str) -> list[str]:
    """Describe the problem of one router."""
    found = []
    status, body = get(f"http://{host}:{port}/readyz")
    if status != 200:  # noqa: PLR2004 - the HTTP code
        found.append(f"{host} is not ready ({status}): {body}")
    elif left_out := json.loads(body).get("left_out"):
        found.append(f"{host} leaves out {left_out}")
    status, body = get(f"http://{host}:{port}/metrics")
    if "delay_router_build_info" not in body:
        found.append(f"{host} does not export its metrics ({status})")
    return found


def main() -> int:
    """Exit code of the test."""
    hosts = os.environ["HOSTS"].split(",")
    found = [problem for host in hosts for problem in problems(host, os.environ["PORT"])]
    print("\n".join(found) or f"{len(hosts)} routers are ready")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
