"""The engine, at its door: what a key of a job may hold, and the one place where a value is judged.

Light on purpose: a job is checked, listed and documented without torch or numpy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from fedvitals.errors import JobError, nearest

T = TypeVar("T")
FUNCTION = "module:function"
MOST_COMPARED = 5000  # names, to find the nearest
FEW = 20
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    tuple: "a list of whole numbers",
}


@dataclass(frozen=True, slots=True)
class Key:
    """What one key may hold. `built` lists the values of the contract that this version can carry out."""

    meaning: str
    low: float | None = None
    high: float | None = None
    above: float | None = None  # a bound that is itself not allowed
    choices: tuple[str, ...] = ()
    or_else: str = ""  # another form that is right beside the choices, in words
    files: str = ""  # how the name of a file ends that is right beside the choices
    names: bool = False  # a list of clients' names, not of whole numbers
    built: tuple[object, ...] = ()
    longest: int = 200  # characters of a text, entries of a list


def key(default: T, meaning: str, **limits: Any) -> T:
    """A field of a section with its default and its limits."""
    return field(default=default, metadata={"key": Key(meaning, **limits)})


class Section:
    """Base of the sections: a value that cannot be is refused when the section is made, however it is made."""

    __slots__ = ()
    title: ClassVar[str]

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]  # every section is a dataclass
            name = f"{self.title}.{one.name}" if self.title else one.name
            value = checked(name, getattr(self, one.name), one.default, one.metadata["key"])
            object.__setattr__(self, one.name, value)


def checked(name: str, value: object, default: object, limits: Key) -> object:
    """The value in its field's own type, or a JobError that names the key, the value and what would be right."""
    typed = _names(name, value) if limits.names else _typed(name, value, type(default))
    for number in typed if isinstance(typed, tuple) else (typed,):
        if isinstance(number, int | float) and not isinstance(number, bool):
            _in_range(name, value, number, limits)
    if isinstance(typed, tuple | str) and len(typed) > limits.longest:
        raise JobError(f"{name} has {len(typed)} {_unit(typed)}; at most {limits.longest} are allowed")
    if isinstance(typed, str):
        _one_of(name, typed, limits)
    if limits.built and typed not in limits.built:
        there = ", ".join(shown(entry) for entry in limits.built)
        raise JobError(f"{name} = {shown(value)} is not available in this version; what there is: {there}")
    return float(typed) if type(default) is float else typed  # type: ignore[arg-type]  # _typed made it a number


def shown(value: object) -> str:
    """A value as it stands in TOML, shortened."""
    try:
        plain = list(value) if isinstance(value, tuple) else value
        text = str(value).lower() if isinstance(value, bool) else repr(plain).replace("'", '"')
    except ValueError:  # Python refuses to spell whole numbers of more than 4,300 digits
        text = "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _typed(name: str, value: object, wanted: type) -> object:
    right = type(value) is wanted or (wanted is float and type(value) is int)
    if wanted is tuple and isinstance(value, list | tuple):
        right = all(type(entry) is int for entry in value)
        value = tuple(value)
    if not right:
        raise JobError(f"{name} = {shown(value)} should be {_WORDS[wanted]}")
    return value


def _names(name: str, value: object) -> tuple[str, ...]:
    """Names as text, whether they were written as numbers or not, as faults take them."""
    right = isinstance(value, list | tuple) and all(type(entry) in (int, str) for entry in value)
    if not right:
        raise JobError(f'{name} = {shown(value)} should be a list of clients\' names, such as ["3", "7"]')
    assert isinstance(value, list | tuple)
    return tuple(dict.fromkeys(shown(entry) if type(entry) is int else entry for entry in value))


def _in_range(name: str, value: object, number: float, limits: Key) -> None:
    if type(number) is float and not math.isfinite(number):  # a huge int would overflow there, and is out of range
        raise JobError(f"{name} = {number} is not a finite number")
    low, high, above = limits.low, limits.high, limits.above
    wrong = (
        (low is not None and number < low)
        or (high is not None and number > high)
        or (above is not None and number <= above)
    )
    if wrong:
        raise JobError(f"{name} = {shown(value)} is out of range; right is {described_range(limits)}")


def described_range(limits: Key) -> str:
    """The range in words; empty when there is none."""
    parts = [
        f"at least {limits.low:g}" if limits.low is not None else "",
        f"above {limits.above:g}" if limits.above is not None else "",
        f"at most {limits.high:g}" if limits.high is not None else "",
    ]
    return " and ".join(part for part in parts if part)


def _one_of(name: str, text: str, limits: Key) -> None:
    if not limits.choices or text in limits.choices:
        return
    if (limits.files and text.endswith(limits.files)) or (FUNCTION in limits.or_else and ":" in text):
        return
    also = f", or {limits.or_else}" if limits.or_else else ""
    known = ", ".join(limits.choices)
    close = nearest(text, list(limits.choices))
    hint = close if "did you mean" in close else ""
    raise JobError(f"{name} = {shown(text)} is not one of {known}{also}{hint}")


def _unit(value: object) -> str:
    return "characters" if isinstance(value, str) else "entries"


def refuse_unknown(excluded: Sequence[str], clients: Sequence[str]) -> None:
    """A name that is nobody's is a mistake: the run would quietly be another one."""
    there = set(clients)
    for name in excluded:
        if name not in there:
            raise JobError(f"train.exclude: there is no client {name[:80]!r}{_who(name[:80], clients)}")


def _who(name: str, clients: Sequence[str]) -> str:
    """The nearest name, or how they begin: a list of a thousand names helps nobody."""
    hint = nearest(name, list(clients)) if len(clients) <= MOST_COMPARED else ""
    if "did you mean" in hint or (hint and len(clients) <= FEW):
        return hint
    return f"; the {len(clients)} clients begin with {', '.join(clients[:5])}"
