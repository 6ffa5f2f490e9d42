"""Aliases and presets, headers that are removed on release, and the display of values in messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.protocol.headers import NATIVE, PRESETS, PROVENANCE, Alias, HeaderRole, StrippedNames, Unit, quoted
from index.protocol.readers import reader
from index.rules.controls import with_natives


def test_the_native_headers_are_those_of_the_contract() -> None:
    assert {alias.name for alias in NATIVE} == {
        "deliver-at",
        "deliver-after",
        "deliver-to",
        "deliver-key",
        "deliver-partition",
        "deliver-id",
        "deliver-expire-after",
    }


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_can_be_used_and_twice_is_once(preset: str) -> None:
    aliases = PRESETS[preset]
    assert with_natives(aliases + aliases).keys() == {alias.name.lower() for alias in (*NATIVE, *aliases)}


def test_all_presets_can_be_used_together() -> None:
    everything = [alias for aliases in PRESETS.values() for alias in aliases]
    assert len(with_natives(everything)) == len(NATIVE) + len(everything)


@pytest.mark.parametrize(
    ("alias", "problem"),
    [
        (Alias("deliver-at", HeaderRole.AFTER), "alias 'deliver-at': is 'at' in unit native already"),
        (Alias("deliver-at", HeaderRole.AT, Unit.S), "one meaning"),
        (Alias("cesium-deliver-at", HeaderRole.AT, Unit.S), "is 'at' in unit ms already"),
        (Alias("delay-due", HeaderRole.AT), "written by the router itself"),
        (Alias("delay-error", HeaderRole.ID), "written by the router itself"),
        (Alias("Delay-Hops", HeaderRole.ID), "alias 'Delay-Hops': .* written by the router itself"),
        (Alias("Deliver-At", HeaderRole.AFTER), "alias 'Deliver-At': is 'at' in unit native already"),
        (Alias("deliver-Cancel", HeaderRole.IGNORED), "alias 'deliver-Cancel': this name is reserved"),
        (Alias("", HeaderRole.AT), "1 to 256 printable characters"),
        (Alias("x" * 257, HeaderRole.AT), "1 to 256 printable characters"),
        (Alias("x\n", HeaderRole.AT), "1 to 256 printable characters"),
        (Alias("x", HeaderRole.TO, Unit.MS), "role 'to' takes unit native, not ms"),
        (
            Alias("x", HeaderRole.AFTER, Unit.RFC3339),
            "role 'after' takes unit native or ms or s or iso8601 or us or be-ms, not rfc3339",
        ),
        (
            Alias("x", HeaderRole.AT, Unit.ISO8601),
            "role 'at' takes unit native or ms or s or rfc3339 or us or be-ms or nservicebus, not iso8601",
        ),
    ],
)
def test_a_bad_alias_is_refused_by_name(alias: Alias, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        with_natives((*PRESETS["cesium"], alias))


def test_an_alias_equal_to_a_native_header_changes_nothing() -> None:
    assert with_natives([Alias("deliver-at", HeaderRole.AT), Alias("Deliver-At", HeaderRole.AT)]) == with_natives([])


def test_names_of_aliases_once_counted_as_they_were_written() -> None:
    different = [
        Alias("X-Due", HeaderRole.AT),
        Alias("x-due", HeaderRole.AFTER),
        Alias("deliver-cancel", HeaderRole.IGNORED),
    ]
    assert with_natives(different, any_case=False).keys() >= {"X-Due", "x-due", "deliver-cancel"}


def test_every_role_has_a_reader_in_its_native_unit() -> None:
    assert all(callable(reader(Alias("x", role))) for role in HeaderRole)


@pytest.mark.parametrize(
    "name",
    [
        "deliver-at",
        "deliver-",
        "deliver-unknown",
        "delay-id",
        "delay-due",
        "scheduler-epoch",
        "Deliver-At",
        "DELIVER-x",
        "Delay-Source",
        "Scheduler-Epoch",
        "delay-hops",
    ],
)
def test_removed_on_release(name: str) -> None:
    assert StrippedNames(with_natives(PRESETS["etf1"]))[name]


@pytest.mark.parametrize("name", ["", "deliver", "x-deliver-at", "delay-error", "scheduler-timestamp"])
def test_not_removed_on_release(name: str) -> None:
    assert not StrippedNames(with_natives(PRESETS["etf1"]))[name]


def test_the_bookkeeping_of_a_preset_is_removed_too() -> None:
    stripped = StrippedNames(with_natives(PRESETS["karafka"]))
    assert stripped["schedule_schema_version"]
    assert stripped["schedule_source_type"]


@given(names=st.lists(st.text(max_size=12) | st.sampled_from(sorted(PROVENANCE)) | st.just("deliver-x"), max_size=50))
def test_what_is_removed_does_not_depend_on_what_was_seen_before(names: list[str]) -> None:
    stripped = StrippedNames(["alias"])
    expected = [name == "alias" or name.startswith("deliver-") or name in PROVENANCE for name in names]
    assert [stripped[name] for name in names] == expected
    assert [stripped[name] for name in names] == expected


def test_producers_cannot_make_the_memory_of_names_grow() -> None:
    stripped = StrippedNames([])
    for number in range(20_000):
        assert not stripped[f"user-header-{number}"]
    assert not stripped["x" * 100_000]
    assert len(stripped) <= 4096
    assert max(map(len, stripped)) <= 256


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (None, "null"),
        (b"", "''"),
        (b"12e3", "'12e3'"),
        (b"\x1b[31m\n\x00", r"'\x1b[31m\n\x00'"),
        ("\u0661".encode(), r"'\xd9\xa1'"),
        (b"x" * 81, "'" + "x" * 80 + "'... (81 bytes)"),
    ],
)
def test_values_are_shown_escaped_and_capped(raw: bytes | None, shown: str) -> None:
    assert quoted(raw) == shown


@given(raw=st.binary(max_size=300))
def test_a_shown_value_is_always_short_printable_ascii(raw: bytes) -> None:
    shown = quoted(raw)
    assert shown.isascii()
    assert shown.isprintable()
    assert len(shown) <= 4 * 80 + 20
