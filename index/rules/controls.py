"""The meaning of each header name to a set of rules: control headers in any case, aliases, and names without one.

A name that begins with ``deliver-`` and has no meaning is a mistake (``deliver-att``, ``deliver-in``): its producer
wanted the record later. A router that ignored it would release the record at once, so the record is rejected and the
message suggests the right name. Rules may ask to ignore such names (``ignores_unknown``); reserved names are rejected
all the same.

The rules of 0.1.0 knew names in lower case only and ignored all others; a record that they decided is decided so again.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from index.protocol.control_headers import NAMES
from index.protocol.headers import (
    ATTEMPTS_MAX,
    CONTROL_PREFIX,
    DELAY_HOPS,
    MAX_NAME_CHARS,
    MAX_REMEMBERED,
    NATIVE,
    OURS,
    RECURRING,
    RESERVED,
    SERIES,
    Alias,
    HeaderRole,
    Headers,
    Unit,
    lowered,
    quoted,
)
from index.protocol.readers import Reader, RefusedNameError, reader
from index.protocol.schedule import BY_KEY, KEEP_KEY, NO_EXPIRY
from index.rules.rules_stored import RULES_OF_0_1_0

SLOTS: Final = (
    HeaderRole.AT,
    HeaderRole.AFTER,
    HeaderRole.PARTITION,
    HeaderRole.KEY,
    HeaderRole.ID,
    HeaderRole.EXPIRE,
    HeaderRole.KIND,
    HeaderRole.HOPS,
)
_RECURS_SLOT: Final = len(SLOTS)
"""Slot of a flag: the record has a header that makes it recur. Such headers are read later, and together."""
_CONTROLS_SLOT: Final = _RECURS_SLOT + 1
"""Slot of a flag: the record has a control header (:mod:`index.protocol.control_headers`), read in the same way."""
ABSENT: Final[list[Any]] = [None, None, BY_KEY, KEEP_KEY, None, NO_EXPIRY, None, None, False, False]
_NO_SLOT: Final = -1
KEY_SLOT: Final = SLOTS.index(HeaderRole.KEY)
_ID_SLOT: Final = SLOTS.index(HeaderRole.ID)
AT_BIT: Final = 1 << SLOTS.index(HeaderRole.AT)
AFTER_BIT: Final = 1 << SLOTS.index(HeaderRole.AFTER)
EXPIRE_BIT: Final = 1 << SLOTS.index(HeaderRole.EXPIRE)

# Names that people think of, and that are not spelled like the right name.
_MEANT: Final = {
    CONTROL_PREFIX + guess: CONTROL_PREFIX + role
    for role, guesses in {
        HeaderRole.AT: ("on", "when", "time", "date", "due", "timestamp", "epoch"),
        HeaderRole.AFTER: ("in", "delay", "wait", "delay-ms"),
        HeaderRole.TO: ("topic", "target", "destination"),
        HeaderRole.EXPIRE: ("ttl", "expire", "expiry", "expires"),
    }.items()
    for guess in guesses
}
_MAX_GUESSED_CHARS: Final = 40

Control: TypeAlias = tuple[int, int, Reader | None]
"""The handling of one header name: its slot among the values found, the bit that marks its role as seen (0 where it may
be repeated), and its reader (None for targets, which are collected). A plain tuple unpacks three times as fast as a
NamedTuple."""


def with_natives(aliases: Iterable[Alias], *, any_case: bool = True) -> dict[str, Alias]:
    """Join aliases and native headers by name; raise ValueError for an illegal name or a name with two meanings.

    In ``any_case`` the keys and the names of the aliases are in lower case.
    """
    known = {native.name: native for native in NATIVE}
    for given, role, unit in aliases:
        name = lowered(given) if any_case else given
        alias = Alias(name, HeaderRole(role), Unit(unit))
        if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable():
            raise ValueError(f"alias {given!r}: a header name has 1 to {MAX_NAME_CHARS} printable characters")
        if name in OURS:
            raise ValueError(f"alias {given!r}: this name is written by the router itself; choose another")
        if any_case and name in RESERVED:
            raise ValueError(f"alias {given!r}: this name is reserved by the protocol; choose another")
        other = known.setdefault(name, alias)
        if other != alias:
            raise ValueError(f"alias {given!r}: is '{other.role}' in unit {other.unit} already; a name has one meaning")
        reader(alias)
    return known


class ControlHeaders(dict[str, Control | None]):
    """The handling of each header name, or None where it has no meaning: ``controls[name]``.

    Names seen are remembered, so that a lookup is one step, up to a limit, because producers choose them.
    """

    def __init__(
        self, aliases: Iterable[Alias], version: int, *, ignores_unknown: bool, recurring: bool = False
    ) -> None:
        """Build the table; ``version`` is that of the rules. Raise ValueError as ``with_natives`` does."""
        super().__init__()
        self._recurring = RECURRING | {SERIES} if recurring else frozenset()
        self._any_case = version != RULES_OF_0_1_0
        self._controlling = NAMES if self._any_case else frozenset()
        self._refuses = self._any_case and not ignores_unknown
        self.aliases = with_natives(aliases, any_case=self._any_case)
        known = (
            [*self.aliases.values(), Alias(DELAY_HOPS, HeaderRole.HOPS)] if self._any_case else self.aliases.values()
        )
        self._known = {alias.name: self._control(alias) for alias in known}
        self.absent_when_null = AT_BIT | AFTER_BIT | EXPIRE_BIT if self._any_case else 0
        """Bits of the roles for which a null value counts as no header: nullable columns of an outbox produce such
        values."""
        self.update(self._known)

    def __missing__(self, name: str) -> Control | None:
        """Judge a name that is not remembered."""
        plain = lowered(name) if self._any_case else name
        control = self._known.get(plain)
        if plain in self._recurring:
            control = _RECURS
        elif plain in self._controlling:
            control = _CONTROLS
        elif control is None and self._any_case and plain not in self._known and self._is_refused(plain):
            control = _REFUSED
        if len(name) <= MAX_NAME_CHARS:
            if len(self) >= MAX_REMEMBERED:
                self.clear()
            self[name] = control
        return control

    def alias(self, name: str) -> Alias | None:
        """Return the alias for a header that these rules read; None where it has no meaning or is refused."""
        return None if self[name] is None else self.aliases.get(lowered(name) if self._any_case else name)

    def refuses(self, name: str) -> bool:
        """Return whether a record with this header is rejected with any value."""
        return self[name] is _REFUSED

    def recurs(self, name: str) -> bool:
        """Return whether a record with this header is, or claims to be, a recurring schedule."""
        return self[name] is _RECURS

    def makes_control(self, name: str) -> bool:
        """Return whether a record with this header is, or claims to be, a control."""
        return self[name] is _CONTROLS

    def names_id(self, headers: Headers) -> bool:
        """Return whether one of the headers names a schedule; fast enough for millions of records."""
        for name, _ in headers:
            control = self[name]
            if control is not None and control[0] == _ID_SLOT:
                return True
        return False

    def is_read_apart(self, name: str) -> bool:
        """Return whether a header of this name can only be understood together with other headers."""
        return self[name] in (_RECURS, _CONTROLS)

    def role(self, name: str) -> HeaderRole | None:
        """Return the role of a header; None where it has no meaning, or one that is read apart."""
        alias = self.alias(name)
        return None if alias is None else alias.role

    def refusal(self, name: str) -> str:
        """Say why a name is refused, and which name may have been meant."""
        plain, shown = lowered(name), f"header {quoted(name.encode('utf-8', 'surrogatepass'))}"
        if plain in RECURRING:
            return f"{shown}: recurring schedules are off for this delay topic; its key recurring = true allows them"
        if plain == ATTEMPTS_MAX:
            return f"{shown}: this delay topic counts no attempts; its key retry makes it count them"
        known = sorted(each for each in self.aliases if each.startswith(CONTROL_PREFIX))
        meant = _MEANT.get(plain, "")
        if not meant and len(plain) <= _MAX_GUESSED_CHARS:
            # The prefix that all of them share would distort the comparison.
            tails = [each.removeprefix(CONTROL_PREFIX) for each in known]
            near = get_close_matches(plain.removeprefix(CONTROL_PREFIX), tails, n=1)
            meant = CONTROL_PREFIX + near[0] if near else ""
        hint = f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"
        return f"{shown}: there is no such header; {hint}"

    def _is_refused(self, plain: str) -> bool:
        return plain in RECURRING or (self._refuses and plain.startswith(CONTROL_PREFIX))

    def _control(self, alias: Alias) -> Control | None:
        if alias.role == HeaderRole.IGNORED:
            return None
        if alias.role == HeaderRole.TO:
            return _NO_SLOT, 0, None
        if alias.role == HeaderRole.REFUSED:
            # Its reader always raises.
            return _NO_SLOT, 0, reader(alias)
        slot = SLOTS.index(alias.role)
        bit = 0 if alias.role == HeaderRole.HOPS else 1 << slot
        return slot, bit, reader(alias, short=self._any_case)


def null_value(slot: int, bit: int, read: Reader) -> object:
    """Return the value of a header that is null; raise ValueError where it needs one."""
    # A null key is a key. Elsewhere null means nothing, except that a refused header is refused without a value too.
    if slot == KEY_SLOT:
        return None
    if not bit:
        return read(b"")
    raise ValueError("a value is needed")


def _refuse(_: bytes) -> int:
    raise RefusedNameError


def _is_there(_: bytes) -> int:
    return True


_REFUSED: Final[Control] = (_NO_SLOT, 0, _refuse)
_RECURS: Final[Control] = (_RECURS_SLOT, 0, _is_there)
_CONTROLS: Final[Control] = (_CONTROLS_SLOT, 0, _is_there)
