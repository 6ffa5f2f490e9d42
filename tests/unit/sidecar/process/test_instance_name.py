"""Names of routers without a configured name: one a process, the same after a crash, and never another router's."""

import shutil
import subprocess
import sys
from pathlib import Path

from sidecar.process.instance_name import PLACES, HeldName, take_name

HOLDS = """
import sys, time
from pathlib import Path
from sidecar.process.instance_name import take_name
print(take_name("g", Path(sys.argv[1])).name, flush=True)
time.sleep(60)
"""


def taken(directory: Path, group_id: str = "g") -> HeldName:
    place = take_name(group_id, directory)
    assert place is not None
    return place


def test_each_has_a_name_of_its_own(tmp_path: Path) -> None:
    places = [taken(tmp_path, group_id) for group_id in ("g", "g", "g", "h")]
    assert len({place.name for place in places}) == 4
    for place in places:
        place.leave()


def test_who_comes_after_a_crash_has_the_name_of_the_one_that_died(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        name = first.stdout.readline().strip()
        second = taken(tmp_path)
        assert second.name != name
        first.kill()
    third = taken(tmp_path)
    assert third.name == name
    second.leave()
    third.leave()


def test_a_copy_of_the_files_gives_other_names(tmp_path: Path) -> None:
    place = taken(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two", copy_function=shutil.copy2)
    copied = taken(tmp_path / "two")
    assert copied.name != place.name
    place.leave()
    copied.leave()


def test_a_file_that_was_removed_meanwhile_gives_no_name_twice(tmp_path: Path) -> None:
    place = taken(tmp_path)
    for file in tmp_path.iterdir():
        file.unlink()
    other = taken(tmp_path)
    assert other.name != place.name
    place.leave()
    other.leave()


def test_without_a_place_there_is_no_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert take_name("g", tmp_path / "file") is None
    assert take_name("g", tmp_path / "missing" / "deeper") is None
    (tmp_path / "link").symlink_to(tmp_path)
    assert take_name("g", tmp_path / "link") is None


def test_there_are_places_enough_and_then_no_more(tmp_path: Path) -> None:
    places = [taken(tmp_path) for _ in range(PLACES)]
    assert take_name("g", tmp_path) is None
    # Only files of this folder: clients of earlier tests may close their sockets meanwhile.
    opened = [each for each in Path("/proc/self/fd").iterdir() if each.resolve().parent == tmp_path.resolve()]
    assert len(opened) == PLACES, "a descriptor stays open"
    for place in places:
        place.leave()
