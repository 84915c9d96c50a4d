"""How many files this process may hold open."""

from __future__ import annotations

import sys
from typing import Final

try:
    import resource
except ImportError:  # Windows counts open files in another way
    resource = None  # type: ignore[assignment]

_UNLIMITED: Final = sys.maxsize


def descriptors_max() -> int:
    """Return the limit of open file descriptors of this process (`ulimit -n`); `sys.maxsize` where there is none."""
    if resource is None:
        return _UNLIMITED
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft
