"""Numbers of bytes as a person reads them."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB")


def size_text(size_bytes: int) -> str:
    """Return a number of bytes such as "1.5 MB"; a MB is 1024 KB, as in table options."""
    value = float(size_bytes)
    for unit in _UNITS[:-1]:
        if value < 1023.95:
            return f"{size_bytes:,} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} {_UNITS[-1]}"
