"""Key order: sorted positions of rows, and where the versions of each key end.

Order is the format's: nulls first, numbers by value with -0.0 below 0.0 and NaN on top, text and binary by
unsigned bytes. Only key columns enter the sort; value columns are gathered afterwards. One integer-like key
goes through numpy (packed with its position into one word where both fit, else by its stable sort); anything
else through Polars, the fastest stable multi-column sort there is. Floats are replaced by an integer image first,
since every library takes -0.0 and 0.0 for equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.schema.lazy_polars import pl

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Image = tuple[tuple[Any, ...], ...]
"""One key, column by column, in a form that Python orders as the format does."""

NULL_IMAGE: Final = (0,)

_RUNS_MAX: Final = 8
"""So many sorted runs are merged faster than they are sorted."""

_FEW: Final = 16_384
"""Maximum number of rows that numpy sorts faster than Polars by several numbers: the first and last keys of files."""


def sorted_positions(
    columns: Sequence[pa.ChunkedArray], tie: npt.NDArray[np.int64] | None = None
) -> tuple[Positions, Mask]:
    """Return the rows in key order, and which of them is the last of its key.

    Args:
        columns: key columns of n rows each.
        tie: int64[n] that orders rows of one key; None: by position.

    Returns:
        positions int64[n]; is_last bool[n], over sorted rows.
    """
    count = len(columns[0])
    if count == 0:
        return np.empty(0, np.int64), np.empty(0, np.bool_)
    if len(columns) == 1 or (tie is None and count <= _FEW):
        images = [image for column in columns if (image := integer_image(column)) is not None]
        if len(images) == len(columns):
            return _by_integer(images[0], tie) if len(images) == 1 else _by_integers(images)
    return _by_polars(columns, tie)


def integer_image(column: pa.ChunkedArray) -> npt.NDArray[np.signedinteger] | None:
    """Return integers that sort as the column does, or None: it has nulls, or is not a fixed-width number."""
    if column.null_count:
        return None
    kind = column.type
    if pa.types.is_floating(kind):
        return _float_image(column.to_numpy())
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return _numpy(column, pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return _numpy(column, pa.int64())
    if pa.types.is_signed_integer(kind):
        return column.to_numpy()  # type: ignore[no-any-return]
    return None


def _numpy(column: pa.ChunkedArray, kind: pa.DataType) -> npt.NDArray[np.signedinteger]:
    return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind).to_numpy()  # type: ignore[no-any-return]


def _float_image(values: npt.NDArray[np.floating]) -> npt.NDArray[np.signedinteger]:
    whole: type[np.signedinteger] = np.int64 if values.dtype == np.float64 else np.int32
    one_nan = np.where(np.isnan(values), values.dtype.type("nan"), values)
    bits: Any = one_nan.view(whole)
    return bits ^ ((bits >> (bits.itemsize * 8 - 1)) & np.iinfo(whole).max)  # type: ignore[no-any-return]


def _by_integer(image: npt.NDArray[np.signedinteger], tie: npt.NDArray[np.int64] | None) -> tuple[Positions, Mask]:
    if tie is not None:
        first = _by_integer(tie, None)[0]
        positions, is_last = _by_integer(image[first], None)
        return first[positions], is_last
    packed = _packed(image)
    if packed is not None:
        words, bits = packed
        words.sort(kind="stable" if _is_few_runs(image) else None)
        positions = words & ((1 << bits) - 1)
        words >>= bits
        return positions, _last_of_each(words)
    positions = np.argsort(image, kind="stable")
    return positions, _last_of_each(image[positions])


def _packed(image: npt.NDArray[np.signedinteger]) -> tuple[npt.NDArray[np.int64], int] | None:
    """Return words of (key, position) in 64 bits, and the bits of the position; None when they have no room.

    Words are all different, so any sort of them is a stable sort of the keys, and sorting plain words is what
    numpy does with vector instructions: six times as fast as the stable sort of random keys.
    """
    low, high = int(image.min()), int(image.max())
    bits = (len(image) - 1).bit_length()
    if (high - low).bit_length() + bits > 63:
        return None
    words = image.astype(np.int64)
    words -= low
    words <<= bits
    words |= np.arange(len(image), dtype=np.int64)
    return words, bits


def _is_few_runs(image: npt.NDArray[np.signedinteger]) -> bool:
    """Return whether the keys are a few sorted runs: numpy's stable sort merges these, at a tenth of the cost."""
    return int(np.count_nonzero(image[1:] < image[:-1])) < _RUNS_MAX


def _last_of_each(ordered: npt.NDArray[np.signedinteger]) -> Mask:
    is_last = np.empty(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_last[:-1])
    is_last[-1] = True
    return is_last


def _by_integers(images: Sequence[npt.NDArray[np.signedinteger]]) -> tuple[Positions, Mask]:
    positions = np.lexsort(images[::-1])
    is_last = np.logical_or.reduce([_last_of_each(image[positions]) for image in images])
    return positions, is_last


def _by_polars(columns: Sequence[pa.ChunkedArray], tie: npt.NDArray[np.int64] | None) -> tuple[Positions, Mask]:
    names = [f"k{i}" for i in range(len(columns))]
    frame = pl.DataFrame({name: polars_column(column) for name, column in zip(names, columns, strict=True)})
    by = list(names)
    if tie is not None:
        frame = frame.with_columns(pl.Series("tie", tie))
        by.append("tie")
    frame = frame.with_row_index("row").sort(by, maintain_order=True, nulls_last=False)
    ends = frame.select(
        pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(-1)) for name in names)
    ).to_series()
    is_last = ends.to_numpy(writable=True)
    is_last[-1] = True  # an all-null key would compare equal to the row that is not there
    return frame["row"].to_numpy().astype(np.int64), is_last


def polars_column(column: pa.ChunkedArray) -> pl.Series:
    """Return a column in a form that Polars compares as keys compare, and can hold whatever its type."""
    kind = column.type
    if pa.types.is_floating(kind):
        valid = pc.is_valid(column).to_numpy()
        image = _float_image(pc.fill_null(column, 0.0).to_numpy())
        return pl.Series(image).set(pl.Series(~valid), None) if not valid.all() else pl.Series(image)
    if pa.types.is_timestamp(kind):  # as numbers: Polars has no seconds, and renames zones
        column = pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
    elif pa.types.is_time32(kind) or pa.types.is_date32(kind):
        column = pa.chunked_array([chunk.view(pa.int32()) for chunk in column.chunks], pa.int32())
    return pl.Series(pl.from_arrow(pa.table({"k": column}))["k"])  # type: ignore[index]


def count_at_most(columns: Sequence[pa.ChunkedArray], bound: Image, images: KeyImages) -> int:
    """Return how many leading rows of sorted key columns are at or below `bound` (an image of one key)."""
    if images.is_integer and bound[0] != NULL_IMAGE:
        image = integer_image(columns[0])
        if image is not None:
            return int(np.searchsorted(image, bound[0][1], side="right"))
    low, high = 0, len(columns[0])
    while low < high:
        middle = (low + high) // 2
        if images.at(columns, middle) <= bound:
            low = middle + 1
        else:
            high = middle
    return low


class KeyImages:
    """Comparable images of single keys: tuples that Python orders as the format orders keys."""

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        self.is_integer = len(kinds) == 1 and (
            pa.types.is_signed_integer(kinds[0]) or pa.types.is_temporal(kinds[0]) or pa.types.is_floating(kinds[0])
        )

    def at(self, columns: Sequence[pa.ChunkedArray], row: int) -> Image:
        """Return the image of the key at a row."""
        return tuple(_image(column[row]) for column in columns)


def _image(scalar: pa.Scalar) -> tuple[Any, ...]:
    """Return (0,) for null, else (1, value): nulls sort first."""
    if not scalar.is_valid:
        return NULL_IMAGE
    kind = scalar.type
    if pa.types.is_floating(kind):
        return (1, _float_image(np.array([scalar.as_py()], np.float64 if kind == pa.float64() else np.float32))[0])
    if pa.types.is_temporal(kind):
        return (1, scalar.value)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return (1, scalar.as_py().encode())
    return (1, scalar.as_py())
