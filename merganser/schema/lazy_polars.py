"""Polars, imported when one of its names is first used: the import takes 0.2 s, and many statements need none of it.

Modules write `from merganser.schema.lazy_polars import pl`, and use `pl` inside of functions.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class _Polars:
    """Stands for the module, and keeps the names that were asked for."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module("polars"), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import polars as pl
else:
    pl = _Polars()

__all__ = ["pl"]
