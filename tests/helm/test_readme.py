"""Tests that the commands in the README of the chart work one after the other."""

import re
import subprocess

from tests.helm.chart import CHART

_PROGRAMS = """
openssl() { echo a-new-token; }
kubectl() { echo "kubectl $* < $(cat)"; }
curl() { echo "curl $*"; }
"""


def test_a_client_of_the_admin_api_has_the_token_of_the_secret() -> None:
    readme = (CHART / "README.md").read_text()
    (commands,) = re.findall(r"^```sh\n([^`]*openssl rand.*?)^```", readme, re.MULTILINE | re.DOTALL)
    done = subprocess.run(["bash", "-euc", _PROGRAMS + commands], capture_output=True, text=True, check=True)
    secret, request = done.stdout.splitlines()
    assert secret.startswith("kubectl create secret generic delays-tokens --namespace delays ")
    assert secret.endswith("< operate a-new-token")
    assert "Authorization: Bearer a-new-token " in request
