"""``python -m sidecar`` is ``delay-router``."""

from sidecar.cli import main

if __name__ == "__main__":
    main()
