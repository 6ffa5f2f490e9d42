"""``python -m sidecar.kernel`` prints the kernel that a router would use here; ``make venv`` shows it."""

import os
import sys

from sidecar.kernel.choice import Kernel

if __name__ == "__main__":
    kernel = Kernel.chosen(os.environ)
    sys.stdout.write(f"kernel: {kernel.name}{f', since {kernel.why_not}' if kernel.why_not else ''}\n")
