"""Every package that merganser imports comes with it or with an extra; without it, an error names the extra."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from sys import stdlib_module_names

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.environments import closure, environment, outside
from tests.tidy.modules import Module, modules, within

pytestmark = pytest.mark.xdist_group("packaging")

FEATURES = {
    "spark": ("spark",),
    "cli.demo": ("demo",),
    "cli.demo_log": ("demo", "kafka"),
    "cli.demo_session": ("demo",),
    "cli.demo_stream": ("demo",),
    "serve": ("console",),
    "console": ("console",),
    "catalogs.rest_client": ("rest-catalog",),
    "catalogs.rest_signing": ("rest-catalog",),
    "catalogs.open": ("sql-catalog",),
    "catalogs.sql_database": ("sql-catalog",),
    "catalogs.profiles": ("keyring",),
    "alchemy": ("sqlalchemy",),
    "codec.avro_accelerator": ("avro",),
    "log.kafka": ("kafka",),
    "merge.functions.sketches": ("sketches",),
    "storage.hdfs_connection": ("hdfs", "kerberos"),
    "scan.rows": ("pandas",),
}
"""The extras of modules (or packages) whose imports the core does not need."""
FOR_DEVELOPERS = {"bench", "demo", "docs", "test"}
NOT_IN_ALL = {"all", "kerberos"} | FOR_DEVELOPERS
"""pip compiles what `kerberos` needs, and fails without the headers of Kerberos."""
WITHOUT_EXTRA = {
    "IPython": "imported inside a notebook, which has it",
    "requests_kerberos": "taken where it is installed; the extra brings requests-gssapi",
}
_BY_NAME = re.compile(r"(?:importlib\.)?(?:util\.)?(?:import_module|find_spec|_package)\(")
_TRIED = sorted({extra for names in FEATURES.values() for extra in names} - {"keyring", "kerberos"})
"""Extras whose packages the tests use."""

WITHOUT = {
    "spark": "import merganser.spark as ms; ms.read",
    "kafka": "shop.create_table('shop.log', {'id': 'INT'}, ['id'], options={'log.system': 'kafka', "
    "'kafka.bootstrap.servers': '127.0.0.1:1'})",
    "hdfs": "mg.catalog('hdfs://127.0.0.1:1/warehouse').list_databases()",
    "rest-catalog": "mg.catalog('http://127.0.0.1:1', metastore='rest', options={'warehouse': 'w'})",
    "sql-catalog": "mg.catalog('jdbc:sqlite:file', options={'warehouse': 'w'})",
    "sketches": "t = shop.create_table('shop.s', {'id': 'INT', 's': 'BYTES'}, ['id'], options={'merge-engine': "
    "'aggregation', 'fields.s.aggregate-function': 'hll_sketch'}); "
    "[t.write([{'id': 1, 's': b'x'}]) for _ in range(2)]; t.read().to_arrow()",
    "pandas": "shop.sql('SELECT 1'); shop.create_table('shop.p', {'id': 'INT'}, ['id']).read().to_pandas()",
    "keyring": "from merganser.catalogs.profiles import keyring_of; keyring_of('cannot open')",
    "console": "from merganser.cli.serve_command import serve_stream; serve_stream()",
    "demo": "from merganser.cli.demo_session import check_machine; check_machine()",
}
"""A use of each extra. The others: who asks SQLAlchemy for an engine has it, without `avro` reads are slower, and
tests/unit/storage/test_hdfs.py misses `kerberos`."""


@pytest.fixture(scope="session")
def extras(requirements: list[Requirement]) -> dict[str, set[str]]:
    """The packages that each extra names, and those of the core under the empty name."""
    found: dict[str, set[str]] = {"": set()}
    for requirement in requirements:
        extra = re.search(r'extra == "([^"]+)"', str(requirement.marker))
        found.setdefault(extra[1] if extra else "", set()).add(canonicalize_name(requirement.name))
    return found


def _imported(module: Module) -> Iterator[str]:
    """Yield the packages of others that a module imports when it runs, also by name."""
    for found in module.imports:
        if not found.typing_only:
            yield found.target.partition(".")[0]
    if not _BY_NAME.search(module.path.read_text()):
        return
    texts = {
        target.id: node.value
        for node in module.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and node.args and _BY_NAME.fullmatch(ast.unparse(node.func) + "("):
            first = node.args[0]
            value = texts.get(first.id) if isinstance(first, ast.Name) else first
            if isinstance(value, ast.Constant):
                yield str(value.value).partition(".")[0]


def test_every_package_that_is_imported_is_asked_for(extras: dict[str, set[str]]) -> None:
    of_import = packages_distributions()
    lacking, used = [], set()
    for module in modules().values():
        prefix = max((name for name in FEATURES if within(module.short, name)), key=len, default="")
        allowed = extras[""].union(*(extras[extra] for extra in FEATURES.get(prefix, ())))
        for name in set(_imported(module)) - stdlib_module_names - {"merganser", "", *WITHOUT_EXTRA}:
            package = canonicalize_name(of_import.get(name, [name])[0])
            if package not in extras[""]:
                used |= {extra for extra in FEATURES.get(prefix, ()) if package in extras[extra]}
            if package not in allowed:
                lacking.append(f"{module.short} imports {name}: {package} is not in the core, nor in its extras")
    assert lacking == []
    assert used == set(extras) - {"", "all", "bench", "docs", "test"}


def test_the_extra_all_has_what_users_need(requirements: list[Requirement], extras: dict[str, set[str]]) -> None:
    assert extras["all"] == set().union(*(extras[extra] for extra in set(extras) - NOT_IN_ALL - {""}))
    markers = [str(r.marker) for r in requirements if r.name == "datasketches" and 'extra == "all"' in str(r.marker)]
    assert markers == ['python_version < "3.14" and extra == "all"']


def test_a_missing_package_is_an_error_that_names_its_extra(
    core: Path, extras: dict[str, set[str]], tmp_path: Path
) -> None:
    tries = "\n".join(
        f"try: {code}\nexcept Exception as error: said[{extra!r}] = str(error)" for extra, code in WITHOUT.items()
    )
    start = "import json, merganser as mg\nsaid = {}\nshop = mg.catalog('w')\nshop.create_database('shop')\n"
    code = f"{start}{tries}\nprint(json.dumps(said))"
    done = subprocess.run(
        [str(core), "-c", code], cwd=tmp_path, env=outside(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert {extra: text for extra, text in said.items() if f"pip install 'merganser[{extra}]'" not in text} == {}
    assert set(said) == set(extras) - {"", "all", "avro", "kerberos", "sqlalchemy", *FOR_DEVELOPERS} | {"demo"}


@pytest.mark.campaign(1 / 7)
@pytest.mark.parametrize("extra", _TRIED)
def test_an_extra_brings_what_its_modules_import(
    extra: str, wheel: Path, requirements: list[Requirement], tmp_path: Path
) -> None:
    python = environment(tmp_path / "env", wheel, closure(requirements) | closure(requirements, extra))
    prefixes = [prefix for prefix, names in FEATURES.items() if extra in names and names[0] == extra]
    names = [m.name for m in modules().values() if any(within(m.short, prefix) for prefix in prefixes)]
    assert names
    code = f"import importlib\nfor name in {names}: importlib.import_module(name)"
    done = subprocess.run(
        [str(python), "-c", code], cwd=tmp_path, env=outside(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
