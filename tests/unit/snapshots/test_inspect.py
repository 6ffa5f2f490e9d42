"""``python -m snapshots inspect``: describes every kind of stored value in words, damaged ones too."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from index.buckets.bucket import Manifest, Placement
from index.pending.progress import BEFORE_ALL, Behind, Position, Progress, Skipped
from index.protocol.record import Record
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from snapshots.__main__ import main
from snapshots.envelope import Kind, wrap
from snapshots.segments.manifest import encode_manifest
from snapshots.segments.segment import encode_segment
from snapshots.show import show
from snapshots.state.inventory import NOTHING_STORED, Inventory
from snapshots.state.staged import StagedBucket, encode_staged
from snapshots.state.state import encode_history, encode_progress
from tests.support.paths import GOLDEN, ROOT
from tests.support.stored import DUE_MS, MANIFEST

DAMAGED = [
    ("segment-inline-v1-bit-flipped.bin", "checksum does not match"),
    ("segment-pointer-v1-bad-bitmap.bin", "bitmap of offsets: "),
    ("manifest-v1-truncated.bin", "claims a body of 69 bytes and has 62"),
    ("manifest-v2-future.bin", "version 2 is not known here"),
]


def test_progress() -> None:
    progress = Progress(cursor=4711, watermark=Position(DUE_MS, 4242), sealed_to=4000, number=99)
    assert list(show(encode_progress(progress, "id\x1b[2J"))) == [
        "progress, format version 1, 39 bytes, checksum correct",
        "  cursor       C = 4711: every record below this offset is indexed",
        "  watermark    W = 2027-01-15T08:00:00.000Z, offset 4242",
        "  sealed to    S = 4000: a restart reads [S, C) again, 711 offsets",
        "  number       transaction 99 of the partition",
        "  delay topic  id 'id\\x1b[2J'",
    ]
    behind = Progress(9, Position(DUE_MS, 7), 9, catching_up=(Behind(3, BEFORE_ALL), Behind(5, Position(DUE_MS, 4))))
    assert list(show(encode_progress(behind, "id")))[-2:] == [
        "  catching up  adopted bucket 3: nothing of it released yet",
        "  catching up  adopted bucket 5: 2027-01-15T08:00:00.000Z, offset 4",
    ]
    skipped = Progress(9, BEFORE_ALL, 0, skipped=(Skipped(3, 5),))
    assert list(show(encode_progress(skipped, "id")))[-1] == (
        "  skipped      [3, 5): rejected as one, could not be read"
    )
    assert list(show(encode_progress(skipped, "id", Inventory((3, 5), 2))))[-2:] == [
        "  buckets      3 5",
        "  held         2 records of this topic: the records held for their targets",
    ]
    assert "  buckets      none" in show(encode_progress(skipped, "id", NOTHING_STORED))
    assert "  watermark    W = nothing released yet" in show(encode_progress(Progress(1, BEFORE_ALL, 0), "id"))


def test_rules() -> None:
    lines = list(
        show(encode_history(RuleHistory.beginning(0, Rules("d", default_target="t")).with_epoch(70, Rules("d"))))
    )
    assert lines[0].startswith("rules, format version 1, ")
    assert lines[1].startswith('  from 0       {"aliases":')
    assert '"default_target":"t"' in lines[1]
    assert lines[2].startswith("  from 70      {")


def test_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(GOLDEN / "manifest-v1.bin")]) == 0
    summary = capsys.readouterr().out.splitlines()
    assert summary == [
        "manifest, format version 1, 82 bytes, checksum correct",
        "  bucket       42, key bucket/00000000000000000042",
        "  offsets      [4000, 10000) of the delay topic",
        "  pointers     from offset 4099 on",
        "  due          1970-01-01T00:00:00.000Z to 2027-01-15T08:10:00.001Z (0 to 1800000600001 ms)",
        "  entries      4,026 in 3 segments",
        "  size         1,250,300 bytes, 310.6 per entry",
        "  ids          nobody has written which ids its records have",
    ]
    assert main(["inspect", "--entries", str(GOLDEN / "manifest-v1.bin")]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[: len(summary)] == summary
    assert listed[len(summary) :][2] == (
        "  00000000000000000042/000002  record offset 8999  pointer  1 entry  300 bytes"
        "  2027-01-15T08:10:00.001Z 4099 to 2027-01-15T08:10:00.001Z 4099"
    )


def test_manifest_with_pages_of_ids(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--entries", str(GOLDEN / "manifest-ids-v1.bin")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[7] == "  ids          of 8,195 records in 2 pages, 262,300 bytes"
    assert lines[-1] == (
        f"  00000000000000000042/id/000001  record offset 9004  ids      3 rows  120 bytes  from {'7a' * 16}"
    )
    assert "  ids          none" in show(encode_manifest(replace(MANIFEST, id_pages=())))


def test_what_is_staged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--entries", str(GOLDEN / "staged-v1.bin")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("staged, format version 1, ")
    assert lines[1:4] == [
        "  waits        to be adopted, key bucket/nightly-7/00000000000000004000",
        "  restores     no",
        "  delay topic  id 'kq3pQmZTRxu6dGVVTm5eJw'",
    ]
    assert lines[4].startswith('  rules        {"aliases":')
    assert lines[5:7] == [
        "  offsets      [4000, 10000) of the delay topic",
        "  pointers     from offset 4099 on",
    ]
    assert lines[-1].startswith("  000002  record offset 8999  pointer  1 entry  300 bytes")
    empty = StagedBucket("j", "id", Rules("d"), Manifest(0, 3, 9, None, ()), restores=True)
    shown = list(show(encode_staged(empty)))
    assert "  restores     only for a partition whose state is gone" in shown
    assert shown[-1] == "  entries      none: nothing of these offsets is pending"


def test_intent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(GOLDEN / "intent-v1.bin")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "intent, format version 1, 34 bytes, checksum correct",
        "  job          nightly-7 writes segments, key intent/nightly-7",
        "  keeps        the snapshots topic from offset 8990 on",
        "  expires      2027-01-15T08:00:00.000Z",
    ]


def test_an_adopted_bucket() -> None:
    lines = list(show(encode_manifest(replace(MANIFEST, from_offset=5000, built_from=4000))))
    assert lines[2:4] == [
        "  offsets      [5000, 10000) of the delay topic",
        "  adopted      built from offset 4000 on; the bucket has no records before it",
    ]


def test_inline_segment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--entries", str(GOLDEN / "segment-inline-v1.bin")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "segment, format version 1, 252 bytes, checksum correct",
        "  placement    inline",
        "  entries      6, 1 of them absent: too big, in the delay topic",
    ]
    assert len(lines) == 6 + 6
    assert lines[7] == (
        "  2027-01-15T08:00:00.000Z  offset 4711  written 2027-01-15T07:00:00.000Z  key b'order-17'"
        "  value b'{\"total\": 3}'"
        "  headers 'deliver-at'=b'1800000000000' 'trace'=b'\\x00\\xff' 'trace'=null 'trace'=b''"
    )
    assert lines[9] == "  2027-01-15T08:00:00.007Z  offset 4407  record in the delay topic"


def test_pointer_segment_without_its_entries(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(GOLDEN / "segment-pointer-v1.bin")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["  placement    pointer", "  entries      105"]
    assert len(lines) == 6


def test_what_came_from_outside_cannot_write_to_a_terminal() -> None:
    record = Record(b"\x1b]0;owned\x07", b"\n" * 50, [("\x1b[31m\n", b"\x9b")], 0)
    lines = list(show(encode_segment(Placement.INLINE, [(0, 0, record)]), entries=True))
    assert all(line.isprintable() for line in lines)
    assert r"key b'\x1b]0;owned\x07'" in lines[-1]
    assert r"'\x1b[31m\n'=b'\x9b'" in lines[-1]
    assert "... (50 bytes)" in lines[-1]


@pytest.mark.parametrize(("name", "message"), DAMAGED)
def test_damage_is_exit_code_1(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(GOLDEN / name)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {GOLDEN / name}: ")
    assert message in error


@pytest.mark.parametrize("stored", [b"", b"KDR\x01", b"KDR\x01\x7f" + bytes(8), b"PK\x03\x04" + bytes(20)])
def test_something_else_is_exit_code_1(stored: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").write_bytes(stored)
    assert main(["inspect", str(tmp_path / "other")]) == 1
    assert "not written by this router, or by a newer one" in capsys.readouterr().err


# A part of a held record may be any bytes, and a claim has none.
@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in (Kind.HELD, Kind.ENDING, Kind.CLAIM)])
def test_a_body_that_is_no_protobuf_is_exit_code_1(
    kind: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").write_bytes(wrap(kind, b"\xff"))
    assert main(["inspect", str(tmp_path / "other")]) == 1
    assert "error: " in capsys.readouterr().err


def test_a_missing_file_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tmp_path / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err


def test_standard_input_and_a_reader_that_goes_away() -> None:
    command = [sys.executable, "-m", "snapshots", "inspect", "--entries", "-"]
    stored = encode_segment(Placement.POINTER, [(due_ms, due_ms, None) for due_ms in range(20_000)])
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(stored)
        process.stdin.close()
        assert process.stdout.readline().startswith(b"segment, format version 1, ")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=30) == 0
