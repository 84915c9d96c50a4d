"""Message keys -> the columns of the primary key that records themselves do not give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.cdc.batch import Document, document, documents
from merganser.cdc.connect_schema import encodings_of
from merganser.parsing.cells import NOTHING, Cells, cells, joined
from merganser.parsing.json_scan import ABSENT, BOOLEAN, NUMBER, OBJECT, TEXT, Bools, Ints
from merganser.parsing.rules import Encoding


def key_cells(
    keys: pa.Array, columns: Sequence[str], *, is_text: bool = False
) -> tuple[Cells, Ints, list[dict[str, Encoding]], Ints, Bools]:
    """Return what message keys say of key columns.

    A key is an object of them, `{schema, payload}` around it, or for a single column a bare value: JSON, or for a
    column of text any text that does not begin like JSON. Other texts say nothing.

    Args:
        keys: string[n], valid UTF-8; null says nothing.
        columns: names of members.
        is_text: there is one column, and it holds text.

    Returns:
        All values; int64[n, columns], where each column lies, or NOTHING; encodings by name, the first is empty;
        int64[n], which of them a key has; and bool[n], which keys name columns or are the value of one.
    """
    texts = keys.fill_null("")
    whole = document(texts, ("payload", "schema", *columns))
    wrapped = (whole.kinds("payload") != ABSENT) & (whole.kinds("schema") != ABSENT)
    schema, encodings = np.zeros(len(texts), np.int64), [dict[str, Encoding]()]
    values, where = whole.cells, whole.where[:, 2:]
    bare = _bare(texts, whole, is_text=is_text)
    named = (whole.children.roots == OBJECT) & (whole.children.counts > 0)
    if wrapped.any():
        payload = whole.of("payload")
        inner = documents(payload, columns)
        where = np.where(wrapped[:, None], _shifted(inner.where, len(values.kinds)), where)
        named = np.where(wrapped, inner.children.counts > 0, named)
        values = joined([values, inner.cells])
        bare = Cells(
            np.where(wrapped, payload.kinds, bare.kinds), pc.if_else(pa.array(wrapped), payload.texts, bare.texts)
        )
        given = whole.of("schema")
        described = wrapped & (given.kinds == OBJECT)
        if described.any():
            coded = given.texts.filter(pa.array(described)).dictionary_encode()
            schema[described] = np.asarray(coded.indices, dtype=np.int64) + 1
            encodings += [encodings_of(text, ()) for text in coded.dictionary.to_pylist()]
    scalar = (bare.kinds == TEXT) | (bare.kinds == NUMBER) | (bare.kinds == BOOLEAN)
    if len(columns) == 1:
        where = where.copy()
        where[scalar, 0] = len(values.kinds) + np.flatnonzero(scalar)
        values = joined([values, bare])
    return values, where, encodings, schema, named | scalar


def _bare(texts: pa.Array, whole: Document, *, is_text: bool) -> Cells:
    roots = whole.children.roots
    trimmed = pc.utf8_trim(texts, characters=" \t\r\n")
    quoted = roots == TEXT
    if quoted.any():
        trimmed = pc.if_else(pa.array(quoted), pc.replace_substring_regex(trimmed, r'^"|"$', ""), trimmed)
    found = cells(roots, trimmed)
    if not is_text:
        return found
    raw = whole.children.faults & np.asarray(pc.match_substring_regex(texts, r'^[ \t\r\n]*[^ \t\r\n{\["]'))
    if not raw.any():
        return found
    return Cells(np.where(raw, np.uint8(TEXT), found.kinds), pc.if_else(pa.array(raw), texts, found.texts))


def _shifted(where: Ints, by: int) -> Ints:
    return np.where(where == NOTHING, where, where + by)
