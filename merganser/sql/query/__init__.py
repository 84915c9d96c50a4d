from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Source:
    name: str
    fields: Any
    key: Any
    open: Any


@dataclass
class B:
    names: Any
    types: Any
    references: Any
    tree: Any
    views: Any


def bind(tree, resolve, setting):
    import duckdb
    from sqlglot import exp

    from merganser.schema.arrow import type_from_arrow

    tree = tree.copy()
    views = {}
    ctes = {c.alias.lower() for c in tree.find_all(exp.CTE)}
    for i, n in enumerate(list(tree.find_all(exp.Table))):
        if n.name.lower() in ctes and not n.args.get("db"):
            continue
        s = resolve(n)
        v = f"v{i}"
        views[v] = s.open(None, None, None).to_arrow()
        alias = n.alias or n.name.partition("\x00")[0]
        n.replace(
            exp.Table(
                this=exp.to_identifier(v),
                alias=n.args.get("alias") or exp.TableAlias(this=exp.to_identifier(alias, quoted=True)),
            )
        )
    con = duckdb.connect()
    for v, t in views.items():
        con.register(v, t)
    from merganser.errors import InvalidInputError

    try:
        r = con.execute(tree.sql("duckdb")).to_arrow_table()
    except Exception as e:
        raise InvalidInputError(str(e)) from e
    return B(r.column_names, [type_from_arrow(f.type, f.name) for f in r.schema], (), tree, r)


def run(b, **kw):
    return b.views.to_reader()
