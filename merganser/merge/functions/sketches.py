"""hll_sketch and theta_sketch: unions of sketches of Apache DataSketches.

The library is an extra, and loaded by the first column that needs it.
"""

from __future__ import annotations

import importlib
from typing import Any, ClassVar, Final

import pyarrow as pa

from merganser.errors import UnsupportedError
from merganser.merge.functions.function import LateRows, Traits, refuse
from merganser.merge.functions.unions import union
from merganser.merge.groups import Groups
from merganser.schema import types as t
from merganser.values import dataclass

_THETA_LG_K: Final = 12
"""Binary logarithm of the most values that a union of theta sketches keeps: the default of the JVM's library."""


@dataclass(frozen=True, slots=True)
class HllSketch(Traits):
    """The union of HLL sketches, as a compact HLL_4 sketch as fine as the coarsest of them."""

    late_rows: ClassVar[LateRows] = LateRows.ANYWHERE
    column: t.Field
    name: str = "hll_sketch"
    retracts: bool = False

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        library = _library(self.column, self.name)

        def united(images: list[bytes]) -> bytes:
            sketches = [_read(self.column, self.name, library.hll_sketch, image) for image in images]
            both = library.hll_union(min(sketch.lg_config_k for sketch in sketches))
            for sketch in sketches:
                both.update(sketch)
            return bytes(both.get_result(library.tgt_hll_type.HLL_4).serialize_compact())

        return union(self.column, self.name, column, groups, united)


@dataclass(frozen=True, slots=True)
class ThetaSketch(Traits):
    """The union of theta sketches, as a compact ordered sketch."""

    late_rows: ClassVar[LateRows] = LateRows.ANYWHERE
    column: t.Field
    name: str = "theta_sketch"
    retracts: bool = False

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        library = _library(self.column, self.name)

        def united(images: list[bytes]) -> bytes:
            both = library.theta_union(_THETA_LG_K)
            for image in images:
                both.update(_read(self.column, self.name, library.compact_theta_sketch, image))
            return bytes(both.get_result().serialize())

        return union(self.column, self.name, column, groups, united)


def _library(column: t.Field, name: str) -> Any:
    try:
        return importlib.import_module("datasketches")
    except ImportError as error:
        raise UnsupportedError(
            f"cannot merge column '{column.name}' with aggregate function '{name}': the library that reads sketches "
            "is not installed. Run pip install 'merganser[sketches]'.",
            column=column.name,
            function=name,
        ) from error


def _read(column: t.Field, name: str, kind: Any, image: bytes) -> Any:
    try:
        return kind.deserialize(image)
    except (ValueError, RuntimeError, IndexError):
        refuse(column, name, f"a value of {len(image)} bytes is no serialised sketch of this kind.")
