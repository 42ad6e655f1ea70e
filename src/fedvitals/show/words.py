"""Values as words for people: seconds, bytes, numbers, and text that strangers wrote.

Everything from a store was named by somebody else: a client, a layer, an exception. `safe` makes it harmless for a
terminal before it is shown.
"""

from __future__ import annotations

import math
import re
from datetime import datetime

from fedvitals.printable import safe as safe

NOTHING = "-"


def number(value: float | None, digits: int = 3) -> str:
    """So many significant digits, without an exponent where a person would not write one."""
    if value is None:
        return NOTHING
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return f"{value:.{digits - 1}e}"


def fixed(value: float | None, places: int = 3) -> str:
    """So many decimal places: for columns of the same quantity."""
    if value is None:
        return NOTHING
    return f"{value:.{places}f}" if math.isfinite(value) and abs(value) < 1e6 else number(value)


def whole(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def seconds(value: float | None) -> str:
    """350 us, 1.9 ms, 12 ms, 3.4 s, 2 m 05 s, 1 h 02 m."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value < 1e-3:
        return f"{value * 1e6:.0f} us"
    if value < 1:
        return f"{value * 1e3:.{1 if value < 0.01 else 0}f} ms"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} m"


def size(value: float | None) -> str:
    """Bytes by thousands: 850 B, 12.3 kB, 4.0 MB."""
    if value is None:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def instant(unix_ns: int) -> str:
    """Local time, to the second."""
    try:
        return datetime.fromtimestamp(unix_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):  # a run's file may say anything
        return NOTHING


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def natural(word: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts `client 2` before `client 10`. Digits are compared as text: there may be any number."""
    parts = re.findall(r"[0-9]+|[^0-9]+", word)
    return tuple(_digits(part) if part[0] in "0123456789" else (1, 0, part) for part in parts)


def _digits(part: str) -> tuple[int, int, str]:
    significant = part.lstrip("0")
    return (0, len(significant), significant)
