"""A policy as a record: accepted values, refusals and their messages, and decoding from bytes."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from index.errors import ConfigError, FormatError
from sidecar.policies.policy import DEFAULT, KEYS, Policy, Scope, changed, decode, encode, plain_of, policy_of
from sidecar.policies.policy import target_scope as target
from sidecar.policies.policy import topic_scope as topic

D = topic("orders.delay")


@pytest.mark.parametrize("scope", [DEFAULT, D, target("billing-2")])
def test_a_scope_is_its_key(scope: Scope) -> None:
    assert Scope.parse(scope.key.decode()) == scope


@pytest.mark.parametrize("text", ["", "topic", "topic/", "topic/a b", "target/..", "queue/a", "default/x", "topic/a/b"])
def test_what_is_no_scope_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"policy '.*': "):
        Scope.parse(text)


@pytest.mark.parametrize(
    ("scope", "values", "told"),
    [
        (D, {"max_dela": "5m"}, "policy topic/orders.delay: max_dela: unknown key; did you mean 'max_delay'?"),
        (D, {"max_delay": "5"}, "max_delay: a duration is written like .*: the unit is missing"),
        (D, {"tick": "11s"}, "tick: .*10000"),
        (D, {"allowed_targets": ["__x"]}, "allowed_targets.0.: '__x': names starting with '__' are never a target"),
        (D, {"default_target": "a b"}, "default_target: 'a b' is not a legal topic name"),
        (D, {"records_per_second": 5}, "records_per_second: .*set it for target/NAME"),
        (D, {"retry": {"dead_letter": "dead"}}, "retry.attempts: required"),
        (D, {"retry": {"attempts": 1}}, "retry: dead_letter: required"),
        (D, {"retry": {"attempts": True}}, "retry.attempts: a whole number is needed"),
        (D, {"retry": 3}, "retry: Input should be a valid dictionary"),
        (target("a"), {"retry": {"attempts": 0}}, "retry: it belongs to a delay topic"),
        (DEFAULT, {"allowed_targets": []}, "allowed_targets: .*set them for topic/NAME"),
        (target("a"), {"tick": "1ms", "drained": True}, "tick: .*topic/NAME\npolicy target/a: drained: "),
        (target("a"), {"records_per_second": -1}, "records_per_second: .*greater than or equal to 0"),
        (D, {"paused": True, "paused_until": "2030-01-31 08:00"}, "paused_until: expected an RFC 3339 instant"),
        (D, {"paused": True, "paused_until": 5}, "paused_until: expected an RFC 3339 instant"),
        (D, {"paused": True, "paused_until": "9999-12-31T23:59:60Z"}, "paused_until: .*less than or equal to"),
        (D, {"paused": True, "paused_until": "1969-01-01T00:00:00Z"}, "paused_until: .*greater than or equal to 0"),
        (D, {"paused": True, "paused_reason": "x" * 201}, "paused_reason: String should have at most 200 characters"),
        (target("a"), {"bytes_per_second": 5}, "bytes_per_second: a size is written like"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_key_with_the_remedy(
    scope: Scope, values: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        policy_of(scope, values)


_values = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.booleans(),
        "when_disabled": st.sampled_from(["reject", "release"]),
        "max_delay": st.sampled_from(["0", "5m", "1500ms"]),
        "tick": st.sampled_from(["0", "20ms"]),
        "default_target": st.sampled_from(["", "a"]),
        "allowed_targets": st.lists(st.sampled_from(["a", "b.*"])),
        "retry": st.fixed_dictionaries(
            {
                "first": st.sampled_from(["1s", "500ms"]),
                "factor": st.sampled_from([1, 1.5, 2, 1.001]),
                "max": st.just("1h"),
                "jitter": st.sampled_from([0, 0.1, 1]),
                "attempts": st.integers(0, 1_000),
                "dead_letter": st.just("dead"),
            }
        ),
        "require_time": st.booleans(),
        "unknown_headers": st.sampled_from(["reject", "ignore"]),
        "placement": st.sampled_from(["inline", "pointer", "auto"]),
        "timestamp": st.sampled_from(["release", "due", "source"]),
        "expire_after": st.sampled_from(["0", "1h"]),
        "paused": st.booleans(),
        "drained": st.booleans(),
    },
)


@given(values=_values)
def test_what_is_written_is_read_back_as_it_was_spelled(values: dict[str, Any]) -> None:
    policy = policy_of(D, values)
    assert plain_of(policy) == values
    assert decode(D.key, encode(policy)) == (D, policy)


@given(before=_values, values=_values, unset=st.sets(st.sampled_from(sorted(KEYS))))
def test_a_change_sets_and_unsets_and_leaves_the_rest(
    before: dict[str, Any], values: dict[str, Any], unset: set[str]
) -> None:
    rates = {"records_per_second", "bytes_per_second"}
    now = plain_of(changed(D, policy_of(D, before), values, unset - rates))
    assert now == {key: value for key, value in before.items() if key not in unset} | values


@pytest.mark.parametrize("until", ["1970-01-01T00:00:00Z", "2030-01-31T08:00:00.001Z", "9999-12-31T23:59:59.999Z"])
def test_the_end_of_a_pause_is_read_back_as_it_was_spelled(until: str) -> None:
    values = {"paused": True, "paused_until": until, "paused_reason": "billing is moved"}
    policy = policy_of(target("a"), values)
    assert plain_of(policy) == values
    assert decode(target("a").key, encode(policy)) == (target("a"), policy)


def test_a_reason_is_shown_on_terminals_and_holds_nothing_they_obey() -> None:
    assert plain_of(policy_of(D, {"paused_reason": "\x1b[2J\u202eumzug,\n für heute "})) == {
        "paused_reason": "[2J umzug,  für heute"
    }


@pytest.mark.parametrize(("values", "unset"), [({"paused": False}, ()), ({}, ("paused",))])
def test_what_was_said_of_a_pause_goes_with_it(values: dict[str, Any], unset: tuple[str, ...]) -> None:
    said = {"paused": True, "paused_until": "2030-01-31T08:00:00Z", "paused_reason": "x", "max_delay": "1h"}
    assert plain_of(changed(D, policy_of(D, said), values, unset)) == {"max_delay": "1h", **values}


def test_a_key_that_does_not_exist_cannot_be_unset() -> None:
    with pytest.raises(ConfigError, match="tock: unknown key; known are enabled"):
        changed(D, Policy(), {}, ["tock"])


def test_a_null_value_removes() -> None:
    assert decode(D.key, None) == (D, None)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (None, b"{}", "names no scope"),
        (b"\xff", b"{}", "names no scope"),
        (b"queue/a", b"{}", "names no scope"),
        (D.key, b"{", "not readable as JSON"),
        (D.key, b"[" * 50_000, "not readable as JSON"),
        (D.key, b"[]", "not a JSON object"),
        (D.key, b"{}", "version None is not known"),
        (D.key, b'{"version": true}', "version True is not known"),
        (D.key, b'{"version": 2, "new": 1}', "version 2 is not known here .known: 1."),
        (D.key, b'{"version": 1, "new": 1}', "new: unknown key"),
        (D.key, b'{"version": 1, "tick": "' + b"1" * 70_000 + b'"}', "over the cap"),
    ],
)
def test_a_record_that_cannot_be_understood_is_named(key: bytes | None, value: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        decode(key, value)


@given(
    value=st.binary(max_size=80)
    | st.dictionaries(st.text(max_size=5), st.integers()).map(lambda d: json.dumps(d).encode())
)
def test_any_bytes_are_a_policy_or_refused(value: bytes) -> None:
    with pytest.raises(FormatError):
        decode(D.key, value)


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.just("\udcff")
    | st.just(10**300),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)


@given(values=st.dictionaries(st.sampled_from(sorted(KEYS)) | st.text(max_size=5), _json, max_size=3))
@example(values={"function-after": 1})
@example(values={"\udcff": 1})
@example(values={"tick": 10**300})
def test_any_values_are_a_policy_or_refused_in_words_that_can_be_written(values: dict[str, Any]) -> None:
    try:
        _, policy = decode(D.key, json.dumps({"version": 1, **values}).encode())
    except FormatError as error:
        str(error).encode()
    else:
        assert policy is not None
        assert decode(D.key, encode(policy)) == (D, policy)
