"""Memory that was freed is kept for the next step.

The C library gives large blocks back to the system as soon as they are free, and most tensors of
a training step are large. Every step then gets its memory anew, page by page, and each page is
a fault that costs more than writing it. Steps are alike, so what one has used the next
needs again.
"""

from __future__ import annotations

import ctypes
import sys

# mallopt's names for its parameters, from malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST = 32 << 20  # blocks up to here come from the heap; no more can be asked for
KEPT = 512 << 20  # of freed memory at the heap's end


def keep_freed_memory() -> bool:
    """For this process, from now on; False where the C library has no such settings."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST) and mallopt(M_TRIM_THRESHOLD, KEPT))
