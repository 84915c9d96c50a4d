"""The order of the layers, as data. A module imports from layers above its own line here, never from one below.

Names are prefixes of module names below `merganser`; the longest that fits a module is its layer. Layers of one tuple
do not know each other. `docs/architecture.md` draws them.
"""

from __future__ import annotations

from typing import Final

LAYERS: Final[tuple[tuple[str, ...], ...]] = (
    ("errors", "values"),
    ("options.option",),
    ("options.write", "options.read", "options.upkeep", "options.kept", "options.catalog", "options.secrets"),
    ("options.registry",),
    ("options",),
    # values: what a row is, and what may be asked and defined of it; no bytes, no input or output
    ("schema",),
    ("changes",),
    ("expr", "rules"),
    # what a person who waits is shown; a value in `Env`
    ("progress",),
    # effects, and bytes <-> values; neither knows the other
    ("storage", "codec"),
    # rows and facts as pages show them
    ("html",),
    # the files that describe a table
    ("meta",),
    # three kernels that do not know each other
    ("commit", "merge", "files"),
    # one bucket
    ("lsm",),
    # texts -> values, for files and for change records
    ("parsing",),
    # rows out; rows in from what people have
    ("scan", "ingest", "cdc"),
    # what an overwrite removes, as a function of the newest state
    ("write.overwrite",),
    # the table kept in shape
    ("upkeep",),
    # one write: buckets, then a commit
    ("write",),
    # the newest changes beside the files
    ("log",),
    # the rows of given keys; what comes after a state
    ("lookup",),
    ("stream",),
    # rows that depend on rows that are there; the changes of each shard
    ("edit", "shards"),
    # rows that leave every file
    ("erase",),
    # the handle, and tables made of folders and of other tables
    ("handle", "migrate"),
    ("catalogs.names", "catalogs.definitions"),
    # statements over a catalog
    ("sql",),
    ("catalogs",),
    ("handle.doors",),
    ("dbapi",),
    ("alchemy",),
    # engines, people
    ("spark",),
    ("serve",),
    ("console",),
    ("cli",),
    ("__main__",),
)

INNER_LAYERS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "expr": (
        ("tree",),
        ("setting",),
        ("literal", "names", "patterns"),
        ("compare",),
        ("build", "cast", "listed", "times"),
        ("arithmetic", "functions"),
        ("compute", "zones"),
        ("predicate",),
        ("prune", "from_arrow", "to_polars"),
        ("text",),
        ("filters",),
    ),
    "cdc": (
        ("connect_schema", "options", "computed"),
        ("batch",),
        ("control", "stand_ins", "old_rows", "log_positions"),
        ("message_keys", "debezium", "canal", "row_records"),
        ("resolve",),
        ("records",),
        ("sources", "new_tables"),
    ),
    "parsing": (
        ("json_scan", "rules"),
        ("binary", "cells", "outcome"),
        ("numbers", "json_layout"),
        ("times",),
        ("values",),
    ),
    "rules": (
        ("facts", "named_columns", "merged"),
        ("tag_periods", "starts", "merging", "definition"),
        ("compacting",),
        ("dialects", "option_changes"),
        ("checks",),
        ("gaps", "create"),
        ("alter",),
    ),
}
"""The same inside of packages whose docstrings draw it: all modules of each, lowest first."""

WAITING: Final[dict[str, str]] = {}
"""Functions and classes of `CALLED` without a caller yet, each with the work that brings one."""

CALLED: Final[tuple[str, ...]] = ("expr", "schema", "rules", "options")
"""Packages in which each function and class has a caller in the product."""

IMPORTS_IN_FUNCTIONS: Final[dict[str, str]] = {
    "cli": "the bodies of commands, so that --help loads neither Arrow nor Polars",
    "spark": "a process of Spark imports what its part of the work needs",
    "handle": "verbs import what does their work when they are called, so that opening a table is quick",
    "sql.trees": "casts of typed parameters, by a module that parses by this one",
    "expr.filters": "the parser of SQL, wanted by texts alone",
    "rules.create": "the same",
    "write.begin": "rows that wait for their buckets, of tables with bucket = -2",
    "write.merge_schema": "the change of a schema, wanted by rows with new columns",
    "upkeep.stored_order": "readers of JSON, wanted by columns of log positions",
    "scan.rows": "conversions to pandas and Polars",
    "stream.waiting": "a client of Kafka, wanted by tables with a log",
    "erase.erasure": "the same",
    "stream.logged": "readers of JSON, wanted by the same",
    "catalogs.catalog": "the same as handle",
    "catalogs.definition_verbs": "SQL: a parser and an engine",
    "catalogs.listeners": "rules of new tables: for listeners that give options",
    "catalogs.open": "SQLAlchemy, an extra",
    "console.pages.sql": "SQL: a parser and an engine, wanted by one page",
    "sql.query.views": "datasets of Arrow, which bring pandas: wanted by queries over tables alone",
    "progress.work": "Rich, wanted by long work alone",
    "progress.bar": "IPython, which the kernel of a notebook has",
    "codec.avro_accelerator": "polars-avro, whose import takes 150 ms, where it pays",
    "storage.paths": "numpy, for the shortest digits of a float partition value",
}
"""Modules (or packages) whose functions may import, each with the reason."""

PYSPARK: Final[dict[str, str]] = {
    "spark": "the face to Spark",
    "cli.demo_session": "the demo starts a session of its own",
}
"""Modules (or packages) that may import pyspark."""

SNAPSHOTS_MADE: Final[dict[str, str]] = {
    "commit.table_commit": "the commit, and with it every check",
    "meta.snapshot": "what was read from a file",
    "log.mark": "what a log tells of one",
}
"""Modules that may make a `Snapshot`: a state of a table that was not there before comes from one place."""

ROOTS: Final[tuple[str, ...]] = (
    "merganser", "merganser.spark", "merganser.cli.main", "merganser.__main__", "merganser.dbapi",
    "merganser.alchemy", "merganser.sql.forms", "merganser.log.commit_log",
)  # fmt: skip
"""What users import, what pages are made of, and the log, which `commit.log` finds by its name. A module that none of
these reaches is dead."""

EFFECTS: Final[frozenset[str]] = frozenset(
    {
        "time.time",
        "time.time_ns",
        "time.sleep",
        "datetime.now",
        "datetime.utcnow",
        "datetime.today",
        "date.today",
        "uuid.uuid1",
        "uuid.uuid4",
        "uuid4",
        "sleep",
        "open",
        "random.random",
        "random.choice",
        "random.randint",
        "random.shuffle",
        "os.urandom",
        "secrets.token_hex",
    }
)
"""Calls that only `storage/` makes: everything else gets clocks, ids, randomness and bytes from `Env`."""

EFFECTS_ALLOWED: Final[dict[str, str]] = {
    "catalogs.profiles": "a file of the user, and variables of the environment",
    "catalogs.sql_database": "sessions of PostgreSQL get the zone of this machine",
    "cli.demo_broker": "a demo starts a broker of its own",
    "cli.demo_log": "a demo measures times between two processes",
    "storage": "the door itself",
}
"""Modules (or packages) that may call them."""
