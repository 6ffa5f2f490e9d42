"""Compiles the kernel (``sidecar/kernel``) while the project is installed or packed, and packs the commit.

Or the kernel by itself, in place or into a folder and with more flags: ``python hatch_build.py [FOLDER [FLAG...]]``.

Where it cannot be compiled the project is pure Python and does the same, and ``python -m sidecar.kernel`` says why not.
"""

import contextlib
import os
import runpy
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT: Final = Path(__file__).resolve().parent
ROOM: Final = Path("sidecar/kernel")
MODULES: Final = ("_columns", "_deciding", "_fetching", "_release", "_rows", "_runs", "_segments")
SWITCH: Final = "DELAY_ROUTER_KERNEL"
COMMIT: Final = "DELAY_ROUTER_COMMIT"
"""Variable that names the commit where no clone is, as while the image is built."""

CANNOT_COMPILE: Final = (
    "the kernel is not compiled: {why}. The router does the same without it, slower; for it, "
    "install a C compiler and the headers of Python (gcc python3-dev), and build again"
)


class KernelHook(BuildHookInterface[Any]):
    """Adds the compiled modules to a wheel, which is then one for this Python and machine; and the commit to any."""

    folder: "TemporaryDirectory[str] | None" = None
    """The modules of a wheel: those in place stay as they are, since another process may load them meanwhile."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Prepare the files to pack; ``version`` is ``editable`` if the wheel holds only a path."""
        if version != "editable":
            build_data["force_include"].update(commit_file())
        # A source distribution is for every Python and machine.
        if os.environ.get(SWITCH, "").lower() == "off" or self.target_name != "wheel":
            return
        if version != "editable":
            self.folder = TemporaryDirectory(prefix="delay-router-wheel-")
        try:
            built = build(Path(self.folder.name) if self.folder else ROOT / ROOM)
        except Exception as error:  # noqa: BLE001 -- after any error pure Python does the same
            self.app.display_warning(CANNOT_COMPILE.format(why=error))
            return
        if version != "editable":
            build_data.update(pure_python=False, infer_tag=True)
            build_data["force_include"].update({str(each): str(ROOM / each.name) for each in built})

    def finalize(self, *_unused: object) -> None:
        """Remove the modules that the wheel has packed."""
        if self.folder:
            self.folder.cleanup()


def commit_file() -> dict[str, str]:
    """Return the file with the commit and its place in the package; a source distribution has the file."""
    about = runpy.run_path(str(ROOT / "sidecar" / "commit.py"))
    place = Path("sidecar", about["PACKED"])
    if (ROOT / place).exists():
        return {str(ROOT / place): str(place)}
    commit = os.environ.get(COMMIT) or about["built_from"](ROOT / "sidecar")
    if commit == about["UNKNOWN"]:
        return {}
    file = ROOT / "build" / place.name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{commit}\n", encoding="ascii")
    return {str(file): str(place)}


def build(folder: Path, *flags: str) -> list[Path]:
    """Compile the modules into a folder, with more flags for the compiler; return their paths.

    Builds can run side by side: each has intermediate files of its own.
    """
    from Cython.Build import cythonize  # noqa: PLC0415 -- where they are missing the hook goes on without
    from setuptools import Distribution, Extension  # noqa: PLC0415
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415

    # No debug information, which names the folder it was built in.
    options = ["-O2", "-g0", *flags]
    extensions = [
        Extension(name, [str(ROOM / f"{name}.pyx")], extra_compile_args=options, extra_link_args=[*flags])
        for name in MODULES
    ]
    with TemporaryDirectory(prefix="delay-router-kernel-") as temporary, contextlib.chdir(ROOT):
        # The modules are compiled under their bare names, so Cython needs the folder of their declarations.
        modules = cythonize(extensions, build_dir=temporary, include_path=[str(ROOM)], force=True, quiet=True)
        command = build_ext(Distribution({"ext_modules": modules}))
        command.build_temp, command.build_lib, command.force = temporary, str(folder), True
        command.ensure_finalized()
        command.run()
    return [Path(command.get_ext_fullpath(name)).resolve() for name in MODULES]


if __name__ == "__main__":
    into, *more = sys.argv[1:] or [str(ROOT / ROOM)]
    sys.stdout.writelines(f"{each}\n" for each in build(Path(into), *more))
