"""Reports a broken guarantee in a run."""


class Violation(AssertionError):
    """A broken guarantee."""


def require(holds: bool, otherwise: str) -> None:
    """Raise Violation if the condition does not hold."""
    if not holds:
        raise Violation(otherwise)
