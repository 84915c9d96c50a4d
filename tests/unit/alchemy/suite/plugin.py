"""What pytest loads before SQLAlchemy's plugin to run its suite, in a process of its own: `test_suite` starts it."""

from __future__ import annotations

import warnings

import pytest
from sqlalchemy.dialects import registry

import merganser as mg
from merganser.alchemy import DDLCompiler, MerganserWarning
from tests.unit.alchemy.suite.requirements import LEFT_OUT

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")
for name in ("merganser", "merganser.dbapi"):
    registry.register(name, "merganser.alchemy", "MerganserDialect")
for name in ("test", "test_schema"):
    mg.catalog("memory://suite/warehouse").create_database(name)
for kind in ("unique", "check", "column_check"):  # tables of the suite have them by the way
    setattr(DDLCompiler, f"visit_{kind}_constraint", lambda self, constraint, **kw: None)
warnings.filterwarnings("ignore", category=MerganserWarning)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = item.nodeid.replace("_merganser+dbapi", "")
        for left_out, reason in LEFT_OUT.items():
            if left_out in name:
                item.add_marker(pytest.mark.skip(reason=reason))
