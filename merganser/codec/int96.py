"""INT96 timestamps: stored bytes -> counts since 1970.

A value is 12 bytes: nanoseconds of the day (int64, little endian) and the Julian day (int32). The reference
writer lets the nanoseconds of times before 1970 be negative, others do not. pyarrow turns the pair into one
64-bit count with unsigned arithmetic: nanoseconds wrap outside the years 1677 to 2262, coarser units are wrong
for negative nanoseconds, and even both together cannot tell 1916 from 2500. So this module decodes the stored bytes.

Format: section "Parquet mapping".
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

_JULIAN_DAY_OF_EPOCH: Final = 2_440_588
_SECONDS_PER_DAY: Final = 86_400
_NANOS_PER_SECOND: Final = 1_000_000_000
_STORED: Final = np.dtype([("nanos", "<i8"), ("day", "<i4")])

INT96_BYTES: Final = _STORED.itemsize
"""Width of a stored value."""


def int96_counts(values: pa.Array, per_second: int) -> tuple[np.ndarray, bool]:
    """Return stored INT96 values as counts since 1970, rounded down, and whether 64 bits hold them all.

    Args:
        values: fixed_size_binary(12), nulls allowed.
        per_second: counts per second of the wanted unit: 1_000, 1_000_000 or 1_000_000_000.

    Returns:
        int64[n], with any value where `values` is null, and whether all others are right.
    """
    stored = _stored(values)
    days = stored["day"].astype(np.int64) - _JULIAN_DAY_OF_EPOCH
    seconds = days * _SECONDS_PER_DAY + stored["nanos"] // _NANOS_PER_SECOND
    counts = seconds * per_second + stored["nanos"] % _NANOS_PER_SECOND // (_NANOS_PER_SECOND // per_second)
    # A count that wrapped lies 2**64 from the truth, so it does not lead back to the same second.
    fits = counts // per_second == seconds
    if values.null_count:
        fits |= values.is_null().to_numpy(zero_copy_only=False)
    return counts, bool(fits.all())


def int96_seconds(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return seconds since 1970, rounded down, and the nanoseconds besides, of stored values; of a null, any."""
    stored = _stored(values)
    days = stored["day"].astype(np.int64) - _JULIAN_DAY_OF_EPOCH
    return days * _SECONDS_PER_DAY + stored["nanos"] // _NANOS_PER_SECOND, stored["nanos"] % _NANOS_PER_SECOND


def int96_of_seconds(seconds: np.ndarray, nanos: np.ndarray, mask: np.ndarray | None) -> pa.Array:
    """Return stored values of seconds since 1970 and the nanoseconds besides; null where `mask` is true."""
    stored = np.empty(len(seconds), _STORED)
    stored["day"] = seconds // _SECONDS_PER_DAY + _JULIAN_DAY_OF_EPOCH
    stored["nanos"] = seconds % _SECONDS_PER_DAY * _NANOS_PER_SECOND + nanos
    valid = None if mask is None else pa.array(~mask).buffers()[1]
    return pa.Array.from_buffers(pa.binary(INT96_BYTES), len(seconds), [valid, pa.py_buffer(stored.tobytes())])


def has_nanos(values: pa.Array) -> bool:
    """Return whether one of stored INT96 values is no whole number of microseconds; nulls are not counted."""
    parts = _stored(values)["nanos"] % 1_000 != 0
    if values.null_count:
        parts &= values.is_valid().to_numpy(zero_copy_only=False)
    return bool(parts.any())


def _stored(values: pa.Array) -> np.ndarray:
    data = values.buffers()[1]
    if not len(values):  # the buffer may have any size then
        return np.empty(0, _STORED)
    return np.frombuffer(data, _STORED, len(values), values.offset * INT96_BYTES)
