"""The public functions take and return what their names say."""

from __future__ import annotations

import inspect

import merganser
from merganser import spark
from merganser.handle.system_table import SystemTable, TableView
from merganser.handle.table import Table


def test_a_parameter_of_the_spark_functions_that_takes_a_table_is_positional_and_called_table() -> None:
    for function in (spark.read, spark.write, spark.load, spark.compact):
        parameters = inspect.signature(function).parameters
        assert parameters["table"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD, function
        assert "orders" not in parameters, function


def test_no_public_method_says_that_it_returns_anything_at_all() -> None:
    for kind in (merganser.Catalog, Table, SystemTable, TableView):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                returns = inspect.signature(method).return_annotation
                assert returns not in ("Any", inspect.Signature.empty), f"{kind.__name__}.{name}"
