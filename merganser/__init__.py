"""merganser: tables with fast upserts and deletes in the Apache Paimon format.

Names are imported at their first use, so importing the package is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from merganser import cdc, changes, dbapi, errors
    from merganser.catalogs.catalog import Catalog
    from merganser.edit.images import Upserted
    from merganser.handle.doors import catalog, table
    from merganser.handle.table import Table
    from merganser.meta.commit_metrics import CommitMetrics, metrics
    from merganser.meta.snapshot import Snapshot
    from merganser.scan.gaps import Gap
    from merganser.scan.split import Split
    from merganser.storage.tuning import tune_process

__all__ = [
    "Catalog",
    "CommitMetrics",
    "Gap",
    "Snapshot",
    "Split",
    "Table",
    "Upserted",
    "__version__",
    "catalog",
    "cdc",
    "changes",
    "dbapi",
    "errors",
    "metrics",
    "table",
    "tune_process",
]

_HOMES = {
    "Catalog": "merganser.catalogs.catalog",
    "CommitMetrics": "merganser.meta.commit_metrics",
    "Gap": "merganser.scan.gaps",
    "Snapshot": "merganser.meta.snapshot",
    "Split": "merganser.scan.split",
    "Table": "merganser.handle.table",
    "Upserted": "merganser.edit.images",
    "catalog": "merganser.handle.doors",
    "metrics": "merganser.meta.commit_metrics",
    "table": "merganser.handle.doors",
    "tune_process": "merganser.storage.tuning",
}


def __getattr__(name: str) -> Any:
    if name in ("cdc", "changes", "dbapi", "errors"):
        return importlib.import_module(f"merganser.{name}")
    if name not in _HOMES:
        if name.startswith("_"):  # asked for by Python's protocols, while the modules below are being imported
            raise AttributeError(f"module 'merganser' has no attribute '{name}'")
        from merganser.edit.other_names import OF_PACKAGE, no_name  # noqa: PLC0415 - only for a wrong name

        raise no_name("merganser", name, __all__, OF_PACKAGE)
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
