"""What a run says of a guarantee that was broken."""


class Violation(AssertionError):
    """A guarantee that was broken."""


def require(holds: bool, otherwise: str) -> None:
    """Violation unless it holds."""
    if not holds:
        raise Violation(otherwise)
