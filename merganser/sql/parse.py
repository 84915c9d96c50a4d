"""SQL text -> statements. All statements of a text are parsed before any of them runs.

Definitions, CALL, SET, SHOW and DESCRIBE are read here, word by word, in the forms of Flink and of Spark. Queries and
expressions inside of statements are parsed by sqlglot (`trees`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from sqlglot import exp
from sqlglot.tokens import TokenType

from merganser.errors import InvalidInputError, SqlSyntaxError, a_type
from merganser.expr.setting import Setting
from merganser.schema import types as t
from merganser.schema.types_text import parse_type
from merganser.sql import statements as s
from merganser.sql.alter import alteration
from merganser.sql.literals import value_of
from merganser.sql.stored_statements import create_function, create_view, view_alteration
from merganser.sql.tokens import Cursor, Piece, check_hints, fail, pieces
from merganser.sql.trees import Takes, Texts, hint_options, option_key, option_pairs, option_value

_UTC: Final = Setting()
_USING: Final = ("paimon", "merganser")
_QUERIES: Final = ("SELECT", "WITH", "VALUES", "(", "TABLE", "FROM")
"""Words that a query begins with."""
_CHANGES: Final = ("INSERT", "DELETE", "UPDATE", "MERGE")
"""Words before which WITH may stand, as before a query."""


def parse(
    text: str, parameters: Mapping[str, Any] | None = None, takes: Takes | None = None
) -> tuple[s.Statement, ...]:
    """Return the statements of a text.

    Args:
        parameters: values of `:name`.
        takes: tells whether the engine understands a query that the parser does not; None: such queries are refused.

    Raises:
        SqlSyntaxError: a statement is not understood; with line and column of the whole text.
        InvalidInputError: the parameters have no names.
    """
    if parameters is not None and not isinstance(parameters, Mapping):
        raise InvalidInputError(
            f"cannot take the parameters: they are {a_type(parameters)}. Nothing was run. Write :name in the text, and "
            "pass parameters={'name': ...}."
        )
    given = dict(parameters or {})
    try:
        return _parsed(text) if parameters is None else tuple(_statement(piece, given) for piece in pieces(text))
    except SqlSyntaxError:
        if takes is None:
            raise
    return tuple(_statement(piece, given, takes) for piece in pieces(text))


@lru_cache(maxsize=256)
def _parsed(text: str) -> tuple[s.Statement, ...]:
    """Parse a text without parameters. Trees in statements are never changed: whoever runs one copies it."""
    return tuple(_statement(piece, {}) for piece in pieces(text))


def _statement(piece: Piece, parameters: dict[str, Any], takes: Takes | None = None) -> s.Statement:
    check_hints(piece)
    reader = Reader(piece, parameters, takes)
    found = reader.statement()
    reader.end()
    return found


def parse_expression(text: str) -> exp.Expression:
    """Return the tree of an expression.

    Raises:
        SqlSyntaxError: the text is none.
    """
    return _expression(text).copy()


@lru_cache(maxsize=256)
def _expression(text: str) -> exp.Expression:
    found = pieces(text)
    if len(found) != 1:
        fail(text, 0, "expected one expression.")
    reader = Reader(found[0], {})
    tree = reader.expression()
    reader.end()
    return tree


class Reader(Cursor):
    """Reads one statement.

    Attributes:
        common: where WITH and its queries stand before INSERT, DELETE, UPDATE or MERGE; None: there is none.
    """

    def __init__(self, piece: Piece, parameters: dict[str, Any], takes: Takes | None = None) -> None:
        super().__init__(piece, parameters)
        self.texts = Texts(piece, parameters, takes)
        self.common: tuple[int, int] | None = None

    def statement(self) -> s.Statement:
        """Take a whole statement."""
        self._take_common()
        word = self.word()
        if word in _QUERIES:
            return s.Query(self.texts.query(*self.rest()), text=self.piece.source)
        read = _READERS.get(word)
        if read is None:
            known = [first for first, reader in _READERS.items() if reader is not _refused]
            self.fail_with_nearest((*known, "SELECT", "WITH", "VALUES"))
        self.at += 1
        return read(self)

    # WITH before a change

    def _take_common(self) -> None:
        """Take `WITH a AS (...), ...` if it stands before a statement that changes rows."""
        start = self.at
        if not self.take("WITH"):
            return
        self.take("RECURSIVE")
        more = True
        while more and self.peek() is not None and not self.sees("("):
            self.at += 1
            self._take_brackets()
            if not self.take("AS"):
                break
            self._take_brackets()
            more = self.take(",")
        if self.word() in _CHANGES and not more:
            self.common = self.tokens[start].start, self.tokens[self.at - 1].end + 1
        else:
            self.at = start

    def _take_brackets(self) -> None:
        if self.take("("):
            if not self.sees(")"):
                self.balanced()
            self.take(")")

    def query(self) -> exp.Expression:
        """Take the rest of the statement as a query, with the queries of a WITH before the statement."""
        start, end = self.rest()
        if self.common is None:
            return self.texts.query(start, end)
        first, last = self.common
        inner = next(token for token in self.tokens if token.start >= start)
        joined = inner.text.upper() == "WITH"  # of the query itself
        start = inner.end + 1 if joined else start
        text = self.piece.text
        gap = re.sub(r"[^\n]", " ", text[last:start])
        gap = gap[:-1] + "," if joined else gap
        tokens = tuple(token for token in self.tokens if token.end < last or token.start >= start)
        piece = Piece(text[:last] + gap + text[start:], self.piece.start, self.piece.end, tokens)
        return Texts(piece, self.parameters, self.texts.takes).query(first, end)

    def common_queries(self) -> exp.Expression | None:
        """Return the WITH before the statement; None if there is none."""
        if self.common is None:
            return None
        text, (first, last) = self.piece.text, self.common
        piece = Piece(f"{text[:last]} SELECT 1", first, last + 9, pieces(f"{text[:last]} SELECT 1")[-1].tokens)
        found: exp.Expression = Texts(piece, self.parameters).query(first, last + 9).args["with_"]
        return found

    # parts of statements

    def expression(self, *stops: str) -> exp.Expression:
        """Take an expression up to one of these words."""
        return self.texts.expression(*self.balanced(*stops))

    def literal(self, *stops: str) -> Any:
        """Take an expression without columns, and return its value."""
        return value_of(self.expression(*stops), _UTC, "cannot run the statement")

    def alias(self, *stops: str) -> str | None:
        """Take `AS x`, or `x`, unless one of the words stands there."""
        if self.take("AS"):
            return self.name("an alias")
        token = self.peek()
        if token is None or self.word() in stops or token.token_type == TokenType.STRING:
            return None
        return self.name("an alias") if token.text[:1].isidentifier() or token.text[:1] == "`" else None

    def spec(self) -> dict[str, Any]:
        """Take `(a = 1, b = 'x')`: values of partition columns."""
        self.expect("(")
        found = {}
        while True:
            name = self.name("a partition column")
            self.expect("=")
            found[name] = self.literal(",", ")")
            if not self.take(","):
                break
        self.expect(")")
        return found

    def if_exists(self) -> bool:
        return self.take("IF", "EXISTS")

    def if_not_exists(self) -> bool:
        return self.take("IF", "NOT", "EXISTS")

    def type(self) -> tuple[t.DataType, str]:
        """Take a type, and return it with its text."""
        first, depth = self.at, 0
        while not self.done:
            word = self.word()
            if depth == 0 and self.at > first and not (
                word in ("(", "<", "<>", "PRECISION", "ARRAY", "MULTISET")
                or self.sees("WITH", "LOCAL")
                or self.sees("WITHOUT", "TIME")
                or (word in ("LOCAL", "TIME", "ZONE") and self.word(-1) in ("WITH", "WITHOUT", "LOCAL", "TIME"))
            ):  # fmt: skip
                break
            if depth == 0 and self.at == first and word in (",", ")", "("):
                break
            text = self.peek().text  # type: ignore[union-attr]
            if self.peek().token_type not in (TokenType.STRING, TokenType.IDENTIFIER):  # type: ignore[union-attr]
                depth += text.count("(") + text.count("<") - text.count(")") - text.count(">")
            if depth < 0:
                break
            self.at += 1
        if self.at == first:
            self.fail("expected a type")
        start, end = self.tokens[first].start, self.tokens[self.at - 1].end + 1
        text = self.piece.text[start:end]
        nullable = not self.take("NOT", "NULL")
        if nullable:
            self.take("NULL")
        try:
            kind = parse_type(text, definition=True)
        except InvalidInputError as error:
            self.at = first
            self.fail(str(error).rstrip("."))
        return (kind if nullable else kind.with_nullable(False)), text

    def column(self, *, placed: bool = False) -> s.ColumnDef:
        """Take the definition of a column: name, type, DEFAULT, COMMENT, and with `placed` FIRST or AFTER."""
        name = self.name("the name of a column")
        while placed and self.take("."):
            name += "." + self.name("the name of a field")
        self.take(":")
        if self.word() == "AS":
            self.fail("computed columns are not supported. Store the value, or compute it in a query")
        kind, _ = self.type()
        default, comment, after, first = None, None, None, False
        while True:
            if self.take("COMMENT"):
                comment = self.string("a comment")
            elif self.take("DEFAULT"):
                default = self.expression(",", ")", "COMMENT", "NOT", "FIRST", "AFTER")
            elif self.take("NOT", "NULL"):
                kind = kind.with_nullable(False)
            elif placed and self.take("FIRST"):
                first = True
            elif placed and self.take("AFTER"):
                after = ".".join(self.dotted("a column"))
            elif self.sees("PRIMARY", "KEY"):
                self.fail("a primary key stands behind the columns: PRIMARY KEY (id) NOT ENFORCED")
            else:
                return s.ColumnDef(name, kind, default, comment, after, first)

    def key(self) -> tuple[str, ...]:
        """Take `PRIMARY KEY (a, b) NOT ENFORCED`."""
        self.expect("PRIMARY", "KEY")
        columns = self.names_in_brackets()
        if not self.take("NOT", "ENFORCED"):
            self.fail("expected NOT ENFORCED: a table does not check its key, it keeps the last row of it")
        return columns


def _create(reader: Reader) -> s.Statement:
    replace = reader.take("OR", "REPLACE")
    if reader.word() in ("TEMPORARY", "TEMP", "GLOBAL", "CATALOG", "MATERIALIZED", "EXTERNAL"):
        reader.fail(f"CREATE {reader.word()} is not supported")
    if reader.take("VIEW"):
        return create_view(reader, replace=replace)
    if reader.take("FUNCTION"):
        return create_function(reader, replace=replace)
    if reader.take("DATABASE") or reader.take("SCHEMA"):
        absent = reader.if_not_exists()
        name = reader.dotted("the name of a database")
        if reader.take("COMMENT"):
            reader.string("a comment")
        if not reader.done:
            reader.fail("databases have no location and no properties")
        return s.CreateDatabase(name, absent, text=reader.piece.source)
    if replace:
        reader.fail("CREATE OR REPLACE TABLE is not supported. Use INSERT OVERWRITE, or DROP TABLE first")
    if not reader.take("TABLE"):
        reader.fail_with_nearest(("TABLE", "VIEW", "FUNCTION", "DATABASE", "SCHEMA"))
    absent = reader.if_not_exists()
    name = reader.dotted("the name of a table")
    columns: list[s.ColumnDef] = []
    key: tuple[str, ...] | None = None
    partition: tuple[str, ...] = ()
    options: dict[str, str] = {}
    comment, like, like_options, query = None, None, True, None
    if reader.take("("):
        if reader.sees(")"):
            reader.fail("expected a column: a table has at least one column")
        while True:
            if reader.take("CONSTRAINT"):
                reader.name("the name of the constraint")
            if reader.sees("PRIMARY", "KEY"):
                if key is not None:
                    reader.fail("the table has two primary keys")
                key = reader.key()
            elif reader.sees("WATERMARK"):
                reader.fail("WATERMARK is not supported")
            else:
                columns.append(reader.column())
            if not reader.take(","):
                break
        if not reader.take(")"):
            reader.fail("expected , or )")
    while not reader.done:
        if reader.take("USING"):
            engine = reader.name("paimon or merganser")
            if engine.lower() not in _USING:
                reader.at -= 1
                reader.fail(f"tables of '{engine}' cannot be made here; write USING paimon, or leave it out")
        elif reader.take("COMMENT"):
            comment = reader.string("a comment")
        elif reader.take("PARTITIONED", "BY"):
            reader.expect("(")
            names = []
            while True:
                names.append(reader.name("a column"))
                if not reader.sees(",") and not reader.sees(")"):
                    kind, _ = reader.type()
                    columns.append(s.ColumnDef(names[-1], kind))
                if not reader.take(","):
                    break
            reader.expect(")")
            partition = tuple(names)
        elif reader.word() in ("WITH", "TBLPROPERTIES", "OPTIONS") and reader.word(1) == "(":
            reader.at += 1
            options.update(option_pairs(reader))
        elif reader.take("LIKE"):
            like = reader.dotted("the name of a table")
            if reader.take("("):
                while reader.word() in ("EXCLUDING", "INCLUDING", "OVERWRITING"):
                    how = reader.one_of("EXCLUDING", "INCLUDING", "OVERWRITING")
                    what = reader.one_of("OPTIONS", "ALL", "CONSTRAINTS", "PARTITIONS", "GENERATED", "METADATA")
                    if how == "EXCLUDING" and what in ("OPTIONS", "ALL"):
                        like_options = False
                reader.expect(")")
            elif reader.sees("EXCLUDING") or reader.sees("INCLUDING"):
                how = reader.one_of("EXCLUDING", "INCLUDING")
                reader.one_of("OPTIONS", "ALL")
                like_options = how == "INCLUDING"
        elif reader.sees("LOCATION"):
            reader.fail("a table lies in its warehouse; LOCATION is not supported")
        elif reader.sees("CLUSTERED"):
            reader.fail("CLUSTERED BY is not supported here; use 'bucket' and 'bucket-key' in WITH")
        elif reader.take("AS") or reader.word() == "SELECT":
            query = reader.texts.query(*reader.rest())
        else:
            reader.fail_with_nearest(("WITH", "PARTITIONED BY", "COMMENT", "USING", "TBLPROPERTIES", "LIKE", "AS"))
    if query is not None and columns:
        reader.fail("CREATE TABLE ... AS takes its columns from the query; leave the list of columns out")
    if like is not None and (columns or key or partition or query is not None):
        reader.fail("CREATE TABLE ... LIKE takes columns, keys and partitions of that table; leave yours out")
    if not columns and like is None and query is None:
        reader.fail("expected columns in brackets, LIKE, or AS with a query")
    if query is not None and comment is None:
        comment = options.pop("comment", None)
    return s.CreateTable(
        name, absent, tuple(columns), key, partition, options, comment, like, like_options, query,
        text=reader.piece.source,
    )  # fmt: skip


def _drop(reader: Reader) -> s.Statement:
    if reader.take("DATABASE") or reader.take("SCHEMA"):
        exists = reader.if_exists()
        name = reader.dotted("the name of a database")
        cascade = reader.take("CASCADE")
        if not cascade:
            reader.take("RESTRICT")
        return s.DropDatabase(name, exists, cascade, text=reader.piece.source)
    if reader.word() in ("CATALOG", "TEMPORARY", "MATERIALIZED"):
        reader.fail(f"DROP {reader.word()} is not supported")
    if reader.take("VIEW"):
        exists = reader.if_exists()
        return s.DropView(reader.dotted("the name of a view"), exists, text=reader.piece.source)
    if reader.take("FUNCTION"):
        exists = reader.if_exists()
        return s.DropFunction(reader.dotted("the name of a function"), exists, text=reader.piece.source)
    if not reader.take("TABLE"):
        reader.fail_with_nearest(("TABLE", "VIEW", "FUNCTION", "DATABASE", "SCHEMA"))
    exists = reader.if_exists()
    name = reader.dotted("the name of a table")
    reader.take("PURGE")
    return s.DropTable(name, exists, text=reader.piece.source)


def _alter(reader: Reader) -> s.Statement:
    if reader.word() in ("DATABASE", "SCHEMA", "CATALOG", "FUNCTION"):
        reader.fail(f"ALTER {reader.word()} is not supported")
    if reader.take("VIEW"):
        return view_alteration(reader, reader.dotted("the name of a view"))
    reader.expect("TABLE")
    return alteration(reader, reader.dotted("the name of a table"))


def _use(reader: Reader) -> s.Statement:
    if reader.word(1):
        reader.take("DATABASE") or reader.take("SCHEMA") or reader.take("CATALOG")
    return s.Use(reader.dotted("the name of a database"), text=reader.piece.source)


def _truncate(reader: Reader) -> s.Statement:
    reader.expect("TABLE")
    name = reader.dotted("the name of a table")
    spec = reader.spec() if reader.take("PARTITION") else None
    return s.Truncate(name, spec, text=reader.piece.source)


def _analyze(reader: Reader) -> s.Statement:
    reader.expect("TABLE")
    name = reader.dotted("the name of a table")
    reader.expect("COMPUTE", "STATISTICS")
    columns: tuple[str, ...] | None = None
    if reader.take("FOR", "ALL", "COLUMNS"):
        columns = ()
    elif reader.take("FOR", "COLUMNS"):
        found = [reader.name("a column")]
        while reader.take(","):
            found.append(reader.name("a column"))
        columns = tuple(found)
    return s.Analyze(name, columns, text=reader.piece.source)


def _insert(reader: Reader) -> s.Statement:
    overwrite = reader.one_of("INTO", "OVERWRITE") == "OVERWRITE"
    reader.take("INTO")
    reader.take("TABLE")
    name = reader.dotted("the name of a table")
    options = _hint_options(reader)
    partition: dict[str, exp.Expression | None] = {}
    columns: tuple[str, ...] | None = None
    by_name = False
    while True:
        if reader.take("PARTITION"):
            reader.expect("(")
            while True:
                column = reader.name("a partition column")
                partition[column] = reader.expression(",", ")") if reader.take("=") else None
                if not reader.take(","):
                    break
            reader.expect(")")
        elif reader.take("BY", "NAME"):
            by_name = True
        elif reader.sees("(") and reader.word(1) not in _QUERIES:
            columns = reader.names_in_brackets()
        else:
            break
    if reader.word() not in _QUERIES:
        reader.fail("expected VALUES or a query")
    query = reader.query()
    return s.Insert(name, options, query, columns, partition, overwrite, by_name, text=reader.piece.source)


def _hint_options(reader: Reader) -> Mapping[str, str]:
    if reader.hint() is None:
        return {}
    return hint_options(reader.piece, reader.tokens[reader.at - 1].end + 1)


def _delete(reader: Reader) -> s.Statement:
    reader.expect("FROM")
    name = reader.dotted("the name of a table")
    alias = reader.alias("WHERE")
    where = reader.expression() if reader.take("WHERE") else None
    return s.Delete(name, alias, where, reader.common_queries(), text=reader.piece.source)


def _update(reader: Reader) -> s.Statement:
    name = reader.dotted("the name of a table")
    alias = reader.alias("SET")
    reader.expect("SET")
    assignments = _assignments(reader, "WHERE")
    where = reader.expression() if reader.take("WHERE") else None
    return s.Update(name, alias, assignments, where, reader.common_queries(), text=reader.piece.source)


def _assignments(reader: Reader, *stops: str) -> tuple[tuple[s.Name, exp.Expression], ...]:
    found = []
    while True:
        column = reader.dotted("a column")
        if not reader.take("=") and not reader.take("=="):
            reader.fail("expected =")
        found.append((column, reader.expression(",", *stops)))
        if not reader.take(","):
            return tuple(found)


def _merge(reader: Reader) -> s.Statement:
    reader.expect("INTO")
    name = reader.dotted("the name of a table")
    alias = reader.alias("USING")
    reader.expect("USING")
    start, end = reader.balanced("ON")
    source = reader.texts.source(start, end)
    reader.expect("ON")
    on = reader.expression("WHEN")
    clauses = []
    while reader.take("WHEN"):
        clauses.append(_clause(reader))
    if not clauses:
        reader.fail("expected WHEN MATCHED or WHEN NOT MATCHED")
    tree, source_alias = source
    tree.set("with_", reader.common_queries())
    return s.Merge(name, alias, tree, source_alias, on, tuple(clauses), text=reader.piece.source)


def _clause(reader: Reader) -> s.Clause:
    matched: bool | None = not reader.take("NOT")
    reader.expect("MATCHED")
    if not matched and reader.take("BY"):
        matched = None if reader.one_of("TARGET", "SOURCE") == "SOURCE" else False
    condition = reader.expression("THEN") if reader.take("AND") else None
    reader.expect("THEN")
    if matched is False:
        reader.expect("INSERT")
        if reader.take("*"):
            return s.Clause(matched, condition, "insert", None)
        columns = _columns(reader) if reader.sees("(") else None
        reader.expect("VALUES", "(")
        values = [reader.expression(",", ")")]
        while reader.take(","):
            values.append(reader.expression(",", ")"))
        reader.expect(")")
        if columns is None:
            reader.fail("expected the columns to insert: INSERT (a, b) VALUES (...)")
        if len(columns) != len(values):
            reader.fail(f"INSERT names {len(columns)} columns and gives {len(values)} values")
        return s.Clause(matched, condition, "insert", tuple(zip(columns, values, strict=True)))
    action = reader.one_of("UPDATE", "DELETE")
    if action == "DELETE":
        return s.Clause(matched, condition, "delete", ())
    reader.expect("SET")
    if reader.take("*"):
        return s.Clause(matched, condition, "update", None)
    return s.Clause(matched, condition, "update", _assignments(reader, "WHEN"))


def _columns(reader: Reader) -> list[s.Name]:
    reader.expect("(")
    found = [reader.dotted("a column")]
    while reader.take(","):
        found.append(reader.dotted("a column"))
    reader.expect(")")
    return found


def _set(reader: Reader) -> s.Statement:
    if reader.done:
        return s.SetOption(None, None, text=reader.piece.source)
    if reader.sees("TIME", "ZONE"):
        reader.at += 2
        return s.SetOption("timezone", option_value(reader), text=reader.piece.source)
    key = option_key(reader)
    value = option_value(reader) if reader.take("=") else None
    return s.SetOption(key, value, text=reader.piece.source)


def _reset(reader: Reader) -> s.Statement:
    return s.Reset(None if reader.done else option_key(reader), text=reader.piece.source)


def _call(reader: Reader) -> s.Statement:
    procedure = reader.dotted("the name of a procedure")
    reader.expect("(")
    positional: list[Any] = []
    named: dict[str, Any] = {}
    while not reader.sees(")"):
        if reader.word(1) == "=>" or (reader.word(1) == "=" and reader.word(2) == ">"):
            key = reader.name("the name of an argument").lower()
            reader.at += 1 if reader.word() == "=>" else 2
            if key in named:
                reader.fail(f"the argument '{key}' is given twice")
            named[key] = reader.literal(",", ")")
        elif named:
            reader.fail("expected name => value: arguments with names come last")
        else:
            positional.append(reader.literal(",", ")"))
        if not reader.take(","):
            break
    reader.expect(")")
    return s.Call(procedure, tuple(positional), named, text=reader.piece.source)


def _explain(reader: Reader) -> s.Statement:
    for word in ("EXTENDED", "FORMATTED", "COST", "CODEGEN"):
        reader.take(word)
    reader.take("PLAN", "FOR")
    return s.Explain(reader.statement(), text=reader.piece.source)


def _describe(reader: Reader) -> s.Statement:
    if reader.word() == "DETAIL" and reader.word(1) not in ("", "."):
        reader.at += 1
        reader.take("TABLE")
        name = reader.dotted("the name of a table")
        spec = reader.spec() if reader.take("PARTITION") else None
        return s.DescribeDetail(name, spec, text=reader.piece.source)
    if reader.word() in ("DATABASE", "SCHEMA", "CATALOG") and reader.word(1):
        reader.fail(f"DESCRIBE {reader.word()} is not supported")
    if reader.word() == "FUNCTION" and reader.word(1) not in ("", "."):
        reader.at += 1
        extended = bool(reader.word(1)) and reader.take("EXTENDED")
        return s.DescribeFunction(reader.dotted("the name of a function"), extended, text=reader.piece.source)
    if reader.word(1):
        reader.take("TABLE")
    extended = bool(reader.word(1)) and (reader.take("EXTENDED") or reader.take("FORMATTED"))
    name = reader.dotted("the name of a table")
    column = None if reader.done else ".".join(reader.dotted("a column"))
    return s.Describe(name, column, extended, text=reader.piece.source)


def _show(reader: Reader) -> s.Statement:
    source = reader.piece.source
    what = reader.one_of(
        "TABLES", "VIEWS", "DATABASES", "SCHEMAS", "PARTITIONS", "COLUMNS", "TAGS", "BRANCHES", "TBLPROPERTIES",
        "CREATE", "FUNCTIONS", "USER", "ALL", "SYSTEM",
    )  # fmt: skip
    if what in ("USER", "ALL", "SYSTEM"):
        if what == "SYSTEM":
            reader.fail("SHOW SYSTEM FUNCTIONS is not supported: the pages of Spark list them")
        what = reader.one_of("FUNCTIONS")
    if what in ("DATABASES", "SCHEMAS"):
        reader.take("LIKE")
        return s.ShowDatabases(None if reader.done else reader.string("a pattern"), text=source)
    if what == "TABLES":
        database = reader.dotted("a database") if reader.take("IN") or reader.take("FROM") else None
        reader.take("LIKE")
        return s.ShowTables(database, None if reader.done else reader.string("a pattern"), text=source)
    if what in ("VIEWS", "FUNCTIONS"):
        database = reader.dotted("a database") if reader.take("IN") or reader.take("FROM") else None
        reader.take("LIKE")
        return s.ShowStored(what, database, None if reader.done else reader.string("a pattern"), text=source)
    if what == "CREATE":
        reader.one_of("TABLE", "VIEW")
        return s.Show("CREATE TABLE", reader.dotted("a table"), text=source)
    reader.take("IN") or reader.take("FROM")
    name = reader.dotted("a table")
    if what == "COLUMNS" and (reader.take("IN") or reader.take("FROM")):
        name = (*reader.dotted("a database"), *name)
    if what == "PARTITIONS":
        return s.Show(what, name, reader.spec() if reader.take("PARTITION") else None, text=source)
    key = None
    if what == "TBLPROPERTIES" and reader.take("("):
        key = option_key(reader)
        reader.expect(")")
    return s.Show(what, name, key=key, text=source)


def _refused(reader: Reader) -> s.Statement:
    reader.at -= 1
    reader.fail(f"{reader.word()} is not supported")


_READERS: Final[dict[str, Callable[[Reader], s.Statement]]] = {
    "CREATE": _create, "DROP": _drop, "ALTER": _alter, "USE": _use, "TRUNCATE": _truncate, "ANALYZE": _analyze,
    "INSERT": _insert, "DELETE": _delete, "UPDATE": _update, "MERGE": _merge, "SET": _set, "RESET": _reset,
    "CALL": _call, "EXPLAIN": _explain, "DESCRIBE": _describe, "DESC": _describe, "SHOW": _show,
    "GRANT": _refused, "REVOKE": _refused,
}  # fmt: skip
