"""The kernel's own count of this process's resident memory, and its mark of the highest: one small interface.

On Linux the mark (`VmHWM`) can be set back to what is resident now, so that it tells the exact peak of a stretch of
time. Elsewhere, and where a container forbids it, the mark only ever rises. Tests use a pretended one.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from typing import Any, NamedTuple, Protocol

STATM, STATUS, CLEAR = "/proc/self/statm", "/proc/self/status", b"/proc/self/clear_refs"
_SET_BACK = b"5"  # proc(5): reset the peak resident set size
_MOST, _LINE = 8192, 128
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Reading(NamedTuple):
    rss_bytes: int
    peak_bytes: int  # since the process began, or since the mark was set back


class Watermark(Protocol):
    def read(self) -> Reading: ...
    def highest(self) -> int:
        """The mark alone, where what is resident now is of no interest: a third of what `read` costs."""

    def reset(self) -> bool:
        """Set the mark back to what is resident now; False where that cannot be done."""

    def close(self) -> None:
        """Give back what is held; a later `read` takes it again."""


class ProcWatermark:
    """Linux. `getrusage` tells the mark in 1 us where /proc/self/status takes 11, but never less than what the process
    used before it became this program: where that is more than we use, it is the slow way.

    The C library is called directly, with the interpreter's lock held: handing that over and waiting for it again, as
    Python's own calls do, costs more than these take. The file that is read stays open. The one that is written does
    not: had somebody closed our descriptor and opened a file of theirs, which would get its number, the mark would be
    written into that file.
    """

    def __init__(self) -> None:
        import ctypes

        self._c = ctypes.PyDLL(None)
        self._c.pread.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long)
        self._c.pread.restype = ctypes.c_ssize_t
        self._c.write.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
        self._c.write.restype = ctypes.c_ssize_t
        self._text = ctypes.create_string_buffer(_LINE)
        self._file = -1
        self._pid = 0
        self._floor = 0  # at or below which `getrusage` tells nothing
        self._set_back = False

    def read(self) -> Reading:
        if self._pid != os.getpid():  # a descriptor inherited by a fork tells of the parent
            self.close()
            self._file, self._pid = os.open(STATM, os.O_RDONLY), os.getpid()
            self._find_floor()
        try:
            length = self._c.pread(self._file, self._text, _LINE, 0)
            rss = int(self._text.raw[: max(length, 0)].split(None, 2)[1]) * _PAGE
        except (ValueError, IndexError):  # somebody closed it
            self._pid = 0
            return self._told()
        peak = self.highest()
        return Reading(rss, peak if peak > rss else rss)

    def highest(self) -> int:
        if self._pid != os.getpid():
            return self.read().peak_bytes
        found = _most_used()
        return found if found > self._floor else self._told().peak_bytes

    def reset(self) -> bool:
        file = self._c.open(CLEAR, os.O_WRONLY | os.O_CLOEXEC)
        if file < 0:
            return False
        written = self._c.write(file, _SET_BACK, 1)
        self._c.close(file)
        if written != 1:
            return False
        if not self._set_back:
            self._set_back = True
            self._find_floor()
        return True

    def close(self) -> None:
        file, mine = self._file, self._pid == os.getpid()
        self._file, self._pid, self._set_back = -1, 0, False
        if mine and file >= 0:
            with contextlib.suppress(OSError):
                os.close(file)

    def _find_floor(self) -> None:
        most = _most_used()
        self._floor = most if most > self._told().peak_bytes else 0

    def _told(self) -> Reading:
        with open(STATUS, "rb") as status:
            return parsed(status.read(_MOST))


def _most_used() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def parsed(status: bytes) -> Reading:
    """The two lines of /proc/PID/status that matter; ValueError where they are missing."""
    at = status.index(b"VmHWM:")
    peak = int(status[at + 6 : status.index(b"kB", at)])
    at = status.index(b"VmRSS:", at)
    return Reading(int(status[at + 6 : status.index(b"kB", at)]) * 1024, peak * 1024)


class PlainWatermark:
    """Where there is no /proc that tells: the peak since the process began, which nobody can set back."""

    def __init__(self) -> None:
        self._process: Any = None
        self._pid = 0

    def read(self) -> Reading:
        if self._pid != os.getpid():
            import psutil

            self._process, self._pid = psutil.Process(), os.getpid()
        rss = int(self._process.memory_info().rss)
        return Reading(rss, max(rss, _most_used()))

    def highest(self) -> int:
        return _most_used()

    def reset(self) -> bool:
        return False

    def close(self) -> None:
        self._process, self._pid = None, 0


def find_watermark() -> Watermark:
    """The best that this machine has."""
    try:
        found = ProcWatermark()
        found.read()
    except (OSError, ValueError, AttributeError, ImportError):  # another system, or no ctypes
        return PlainWatermark()
    return found
