"""Every program that reads stored bytes asks first whether its libraries can be trusted with them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = """
[kafka]
"bootstrap.servers" = "127.0.0.1:1"
[http]
listen = "127.0.0.1:0"
[[delay_topics]]
name = "orders.delay"
default_target = "orders"
"""


@pytest.mark.parametrize(
    "command",
    [
        ("sidecar", "run"),
        ("spark_backfill", "index", "--topic", "orders.delay"),
        ("spark_backfill", "audit", "--topic", "orders.delay"),
    ],
)
def test_protobuf_in_python_is_refused_before_anything_is_read(tmp_path: Path, command: tuple[str, ...]) -> None:
    config = tmp_path / "delay-router.toml"
    config.write_text(CONFIG)
    environment = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    call = [sys.executable, "-m", *command, "--config", str(config)]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "protobuf runs on its 'python' implementation" in done.stderr
    assert "Traceback" not in done.stderr
