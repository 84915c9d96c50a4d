"""rbm32 and rbm64: unions of roaring bitmaps."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
import pyroaring

from merganser.merge.functions import bitmap64
from merganser.merge.functions.function import LateRows, Traits, refuse
from merganser.merge.functions.unions import union
from merganser.merge.groups import Groups
from merganser.schema import types as t
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Bitmap32(Traits):
    """The union of bitmaps of 32-bit numbers, in the portable form with runs where they are shorter."""

    late_rows: ClassVar[LateRows] = LateRows.ANYWHERE
    column: t.Field
    name: str = "rbm32"
    retracts: bool = False

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return union(self.column, self.name, column, groups, self._united)

    def _united(self, images: list[bytes]) -> bytes:
        bitmap = pyroaring.BitMap.union(*(self._read(image) for image in images))
        bitmap.run_optimize()
        return bytes(bitmap.serialize())

    def _read(self, image: bytes) -> pyroaring.BitMap:
        try:
            return pyroaring.BitMap.deserialize(image)
        except ValueError:
            refuse(self.column, self.name, f"a value of {len(image)} bytes is no serialised roaring bitmap.")


@dataclass(frozen=True, slots=True)
class Bitmap64(Traits):
    """The union of bitmaps of 64-bit numbers, in the form of the JVM (`bitmap64`).

    Where every bitmap came in the portable form, as clients without a JVM write them, the union stays portable.
    """

    late_rows: ClassVar[LateRows] = LateRows.ANYWHERE
    column: t.Field
    name: str = "rbm64"
    retracts: bool = False

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return union(self.column, self.name, column, groups, self._united)

    def _united(self, images: list[bytes]) -> bytes:
        bitmap = pyroaring.BitMap64.union(*(self._read(image) for image in images))
        if not all(bitmap64.is_portable(image) for image in images):
            return bitmap64.write(bitmap)
        bitmap.run_optimize()
        return bytes(bitmap.serialize())

    def _read(self, image: bytes) -> pyroaring.BitMap64:
        try:
            return bitmap64.read(image)
        except ValueError:
            refuse(self.column, self.name, f"a value of {len(image)} bytes is no serialised 64-bit roaring bitmap.")
