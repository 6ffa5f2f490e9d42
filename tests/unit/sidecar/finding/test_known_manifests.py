"""Known manifests: each is decoded once while there is room, and never taken for another one."""

import pytest

from index.errors import FormatError
from sidecar.finding.known_manifests import KnownManifests
from snapshots.manifest import encode_manifest, manifest_key
from tests.support.manifests import manifest

ONE, OTHER = manifest(1, [(10, 1), (20, 2)]), manifest(1, [(10, 1), (30, 2)])


def test_it_is_decoded_once() -> None:
    known, value = KnownManifests(), encode_manifest(ONE)
    found = known.manifest(manifest_key(1), value)
    assert found == ONE
    assert known.manifest(manifest_key(1), bytes(bytearray(value))) is found


def test_another_value_of_its_key_is_another_manifest() -> None:
    known = KnownManifests()
    assert [known.manifest(manifest_key(1), encode_manifest(each)) for each in (ONE, OTHER, ONE)] == [ONE, OTHER, ONE]


def test_the_one_that_was_not_asked_for_longest_goes_first() -> None:
    known, value = KnownManifests(most_bytes=1), encode_manifest(ONE)
    found = known.manifest(manifest_key(1), value)
    known.manifest(manifest_key(1), encode_manifest(OTHER))
    assert known.manifest(manifest_key(1), value) is not found


def test_one_that_lies_under_another_key_is_refused_each_time() -> None:
    known = KnownManifests()
    known.manifest(manifest_key(1), encode_manifest(ONE))
    for _ in range(2):
        with pytest.raises(FormatError, match="holds the manifest of bucket 1"):
            known.manifest(manifest_key(2), encode_manifest(ONE))
