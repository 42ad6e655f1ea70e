"""The C library's heap, for jobs that would rather have memory than time: what is freed goes back to the system.

By itself glibc keeps large freed blocks, and can seldom use them again: torch asks for aligned memory, which does not
fit into the hole that an equally large block has left. Measured with 24 layers of 512 and recomputed activations: 110
to 144 MB instead of 53.
"""

from __future__ import annotations

import ctypes

LARGE_BYTES = 2**19  # blocks from this size on are mapped one by one
_M_MMAP_THRESHOLD = -3  # of glibc's malloc.h


def give_back_freed_memory() -> bool:
    """What is free now (models are built in pieces, and then put together), and for the rest of this process and those
    forked from it; False where the C library has no such switch."""
    try:
        library = ctypes.CDLL(None)
        mallopt, trim = library.mallopt, library.malloc_trim
    except (OSError, AttributeError):
        return False
    switched = bool(mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES))
    trim(0)
    return switched
