"""Completion of SQL that a person is typing: what may stand at the cursor, found from the words around it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from merganser.cli.sql_text import bare
from merganser.errors import MerganserError
from merganser.sql.forms import FORMS

_OF_QUERIES: Final = """
SELECT DISTINCT FROM WHERE GROUP BY HAVING ORDER ASC DESC LIMIT OFFSET JOIN INNER LEFT RIGHT FULL CROSS ON USING UNION
ALL INTERSECT EXCEPT AND OR NOT IN BETWEEN LIKE IS NULL CASE WHEN THEN ELSE END CAST AS OVER PARTITION VALUES TRUE FALSE
DATE TIMESTAMP INTERVAL
"""
KEYWORDS: Final = sorted(
    {word for form in FORMS for word in re.findall(r"\b[A-Z]{2,}\b", form.syntax)} | set(_OF_QUERIES.split())
)
_NAME: Final = r"(?:\w+|`[^`]*`)(?:\$\w*)*"
_NAMES: Final = rf"{_NAME}(?:\.{_NAME})*"
_WORD: Final = re.compile(r"[\w$]*\Z")
_TABLES: Final = re.compile(
    rf"\b(?:FROM|JOIN|INTO|UPDATE|TABLE|OVERWRITE|USING|DESC|DESCRIBE|EXTENDED|DETAIL)\s+({_NAMES})"
    rf"(?:\s+(?:AS\s+)?(\w+))?(?:\s*,\s*({_NAMES})(?:\s+(?:AS\s+)?(\w+))?)*",
    re.IGNORECASE,
)
_MORE: Final = re.compile(rf",\s*({_NAMES})(?:\s+(?:AS\s+)?(\w+))?", re.IGNORECASE)
_TABLE_HERE: Final = re.compile(
    rf"(?:\b(?:FROM|JOIN|INTO|UPDATE|TABLE|OVERWRITE|DESC|DESCRIBE|EXTENDED|DETAIL|EXISTS|PARTITIONS|TAGS|BRANCHES|"
    rf"TBLPROPERTIES|COLUMNS\s+(?:IN|FROM))\s+|\bFROM\s+(?:{_NAMES}(?:\s+(?:AS\s+)?\w+)?\s*,\s*)+|\\d\s+)"
    rf"((?:{_NAME}\.)*)[\w$]*\Z",
    re.IGNORECASE,
)
_DATABASE_HERE: Final = re.compile(
    r"(?:\b(?:USE|DATABASE|SCHEMA)(?:\s+IF\s+EXISTS)?|\bTABLES\s+(?:IN|FROM)|\\(?:c|dt))\s+\w*\Z", re.IGNORECASE
)
_OF_ALIAS: Final = re.compile(r"(\w+)\.\w*\Z")
_SET_HERE: Final = re.compile(r"\A\s*(?:SET|RESET)\s+([\w.'-]*)\Z", re.IGNORECASE)
_CALL_NAME: Final = re.compile(r"\A\s*CALL\s+(?:sys\.)?\w*\Z", re.IGNORECASE)
_CALL_OPEN: Final = re.compile(r"\A\s*CALL\s+(?:sys\.)?(\w+)\s*\(", re.IGNORECASE)
_OPTIONS_HERE: Final = re.compile(
    r"\b(?:WITH|OPTIONS|TBLPROPERTIES|SET|RESET|UNSET)\s*(?:TBLPROPERTIES\s*)?(?:IF\s+EXISTS\s*)?\(", re.IGNORECASE
)
_FUNCTION_LETTERS: Final = 2
"""Minimum number of letters for which functions are completed: there are too many of them to list."""


def completions(before: str, session: Any, after: str = "") -> tuple[str, list[str]]:
    """Return the text before the cursor that is replaced, and the texts that may replace it.

    Args:
        before: what is typed, up to the cursor.
        session: None while it is not loaded: only keywords are known.
        after: what stands behind the cursor.
    """
    start = bare(before).rfind(";") + 1
    statement = before[start:]
    quoted = _quoted(statement)
    letters = _WORD.search(statement)
    word = quoted if quoted is not None else letters[0] if letters else ""
    if quoted is None and (option := _SET_HERE.match(statement)) is not None:
        word = option[1]  # with its dots
    if session is None:
        known: Iterable[str] = () if quoted is not None else _keywords(word)
    else:
        try:
            known = _known(statement, after.partition(";")[0], word, quoted is not None, session)
        except MerganserError:
            known = ()
    found = dict.fromkeys(name for name in known if name.lower().startswith(word.lower()))
    return word, list(found)


def _quoted(statement: str) -> str | None:
    """Return what is typed of a string that is not closed; None outside of strings."""
    plain = bare(statement)  # an open string is blank to its end
    if statement.endswith("'") and bare(statement + "x").endswith("x"):
        return None
    if not statement or bare(statement + "x").endswith("x"):
        return None
    opening = len(plain.rstrip())
    at = statement.find("'", opening)
    return statement[at + 1 :] if at >= 0 else None


def _known(statement: str, after: str, word: str, in_string: bool, session: Any) -> Iterable[str]:
    from merganser.sql.state import SESSION_OPTIONS

    head = statement[: len(statement) - len(word)]
    if (call := _CALL_OPEN.match(statement)) is not None:
        return _of_call(call[1].lower(), head, in_string, session)
    if _CALL_NAME.match(statement):
        from merganser.sql.procedures import PROCEDURES

        return PROCEDURES if "." in statement else ["sys.", *PROCEDURES]
    if _SET_HERE.match(statement):
        return SESSION_OPTIONS
    if in_string or (_in_options(head) and not head.rstrip().endswith("=")):
        return _options(head, in_string)
    if _DATABASE_HERE.search(statement):
        return list(session.state.catalog.list_databases())
    if (table := _TABLE_HERE.search(statement)) is not None:
        return _tables(table[1], word, session)
    if (alias := _OF_ALIAS.search(statement)) is not None:
        return _columns(statement + after, session, alias[1])
    if re.search(r"\\\w*\Z", statement):
        return ()
    functions: Iterable[str] = _functions(word) if len(word) >= _FUNCTION_LETTERS else ()
    return [*_columns(statement + after, session), *_keywords(word), *functions]


def _of_call(name: str, head: str, in_string: bool, session: Any) -> Iterable[str]:
    from merganser.sql.procedures import PROCEDURES

    procedure = PROCEDURES.get(name)
    if procedure is None:
        return ()
    given = head[head.index("(") + 1 :]
    if not in_string:
        return [f"{argument} => " for argument in procedure.arguments if not re.search(rf"\b{argument}\s*=>", given)]
    position = bare(given).count(",")
    argument = re.search(r"(\w+)\s*=>\s*'\Z", given)
    named = argument[1] if argument else (*procedure.arguments, *[""] * (position + 1))[position]
    if named == "table":
        return _qualified(session)
    table = re.search(r"\A\s*(?:table\s*=>\s*)?'([^']*)'", given)
    if named in ("tag", "branch") and table is not None:
        handle = session.state.handle(tuple(table[1].split(".")))
        return [found.name for found in (handle.tags if named == "tag" else handle.branches).list()]
    return ()


def _qualified(session: Any) -> list[str]:
    """Return tables and views of the current database, and then all of them with their databases."""
    catalog, here = session.state.catalog, session.state.database
    known = {
        database: [*catalog.list_tables(database), *catalog.list_views(database)]
        for database in catalog.list_databases()
    }
    return [*known.get(here, ()), *(f"{database}.{name}" for database, names in known.items() for name in names)]


def _in_options(head: str) -> bool:
    opened = list(_OPTIONS_HERE.finditer(bare(head)))
    return bool(opened) and ")" not in bare(head)[opened[-1].end() :]


def _options(head: str, in_string: bool) -> Iterable[str]:
    """Return the keys of options, or behind `'key' =` the values of this option."""
    from merganser.options.registry import ALL_OPTIONS, find_option

    value = re.search(r"'([^']+)'\s*=\s*'\Z", head)
    if value is not None:
        option = find_option(value[1])
        return () if option is None else option.type.choices
    if not in_string:
        return [f"'{option.key}' = " for option in ALL_OPTIONS]
    return [option.key for option in ALL_OPTIONS] if _in_options(head) or "OPTIONS" in head.upper() else ()


def _tables(database: str, word: str, session: Any) -> Sequence[str]:
    from merganser.scan.system_tables import TABLES
    from merganser.scan.views import VIEWS

    catalog, state = session.state.catalog, session.state
    name = database.rstrip(".").replace("`", "") or state.database
    databases = catalog.list_databases()
    tables = [*catalog.list_tables(name), *catalog.list_views(name)] if name in databases else []
    plain, dollar, _ = word.partition("$")
    if not dollar:
        return tables if database else [*tables, *(f"{other}." for other in databases)]
    handle = state.handle((name, plain))
    branches = [f"{plain}$branch_{branch.name}" for branch in handle.branches.list()]
    return [*(f"{plain}${system}" for system in (*TABLES, *VIEWS)), *branches]


def _columns(statement: str, session: Any, alias: str | None = None) -> list[str]:
    """Return the columns of the tables that a statement names, or of the one that goes by an alias."""
    from merganser.sql.sources import fields_of

    found: list[str] = []
    plain = re.sub(r"--[^\n]*|'[^']*'?", " ", statement)
    for match in _TABLES.finditer(plain):
        for name, other in _MORE.findall(f",{match[0].split(None, 1)[1]}"):
            parts = tuple(part.strip("`") for part in name.split("."))
            if alias is not None and alias not in (other, parts[-1]):
                continue
            try:
                fields = fields_of(session.state.handle(parts), {})
            except MerganserError:
                continue  # a CTE, or a name that is not finished
            found += [field.name for field in fields]
    return found


def _keywords(word: str) -> list[str]:
    return [keyword.lower() if word.islower() else keyword for keyword in KEYWORDS]


def _functions(word: str) -> list[str]:
    from merganser.sql.query.expressions import FUNCTIONS

    names = sorted(set(FUNCTIONS))
    return [f"{name.upper() if word.isupper() else name}(" for name in names]
