"""actionlint takes the workflows: their syntax, their expressions, and the types of the inputs of actions."""

from tests.helm import tools
from tests.support.paths import ROOT


def test_actionlint_takes_the_workflows() -> None:
    # shellcheck and pyflakes are not everywhere, and the result shall not depend on them.
    done = tools.run("actionlint", "-shellcheck=", "-pyflakes=", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
