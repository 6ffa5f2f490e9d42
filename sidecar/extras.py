"""The remedy for a missing extra. The program is on no package index, so its name alone installs nothing."""


def install_hint(extra: str, image: str) -> str:
    """Return how to install the program with an extra; ``image`` is the make target that builds it as an image."""
    return (
        f"install the program again with its extra {extra}. In a clone: uv tool install --force '.[{extra}]'."
        f' From a wheel: uv tool install --force "$(ls dist/kafka_delay_router-*.whl)[{extra}]".'
        f" Or pip install, with the same name, in its environment. As an image: make {image}"
    )
