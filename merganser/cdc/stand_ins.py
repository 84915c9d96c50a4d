"""What Debezium writes in place of a value that the source did not send, in the form that the type of its column has.

A large value of Postgres that an update leaves alone is not in its log. The connector puts a placeholder there, which
is a text: `unavailable.value.placeholder`. A column of another type holds the bytes of this text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.parsing.cells import UNAVAILABLE, Cells
from merganser.parsing.json_scan import ARRAY, OBJECT, TEXT, Bools, Ints, compact

_HEX_MARK: Final = "hex:"
"""Start of a placeholder whose bytes are written in hexadecimal digits."""


def unavailable(marks: Bools, where: Ints) -> Ints:
    """Return where the columns of images lie, UNAVAILABLE for those that are marked."""
    if not marks.any():
        return where
    return np.where((where >= 0) & marks[np.maximum(where, 0)], UNAVAILABLE, where)


def stand_ins(cells: Cells, placeholder: str) -> Bools:
    """Return which cells stand for a value that the source did not send.

    Args:
        placeholder: `unavailable.value.placeholder` of the connector.
    """
    texts, documents, structs = _forms(placeholder)
    found = (cells.kinds == TEXT) & np.asarray(pc.is_in(cells.texts, value_set=texts))
    nested = (cells.kinds == ARRAY) | (cells.kinds == OBJECT)
    if nested.any():
        written = compact(cells.texts.filter(pa.array(nested)))
        found[nested] = pc.or_(pc.is_in(written, value_set=documents), pc.match_substring_regex(written, structs))
    return np.asarray(found)


@lru_cache(maxsize=16)
def _forms(placeholder: str) -> tuple[pa.Array, pa.Array, str]:
    """Return the forms of a placeholder: texts; arrays and objects; and a pattern of objects that hold its bytes."""
    text, raw = placeholder, placeholder.encode()
    if placeholder.startswith(_HEX_MARK):
        try:
            raw = bytes.fromhex(placeholder.removeprefix(_HEX_MARK))
            text = raw.decode()
        except ValueError:
            raw = placeholder.encode()
    encoded = [base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()]
    encoded += [form.rstrip("=") for form in encoded]
    plain = list(dict.fromkeys([text, *encoded, raw.hex(), raw.hex().upper()]))
    quoted = [json.dumps(form, ensure_ascii=False) for form in plain]
    # the id of a name without a namespace, as Java makes it
    digest = bytearray(hashlib.md5(raw, usedforsecurity=False).digest())
    digest[6], digest[8] = digest[6] & 0x0F | 0x30, digest[8] & 0x3F | 0x80
    hstore = f"{{{quoted[0]}:{quoted[0]}}}"
    arrays = [f"[{form}]" for form in quoted]
    arrays += ["[" + ",".join(f"{byte}{end}" for byte in raw) + "]" for end in ("", ".0")]
    arrays += [f'["{uuid.UUID(bytes=bytes(digest))}"]', f"[{hstore}]"]
    in_text = [hstore, hstore.replace(":", ": ", 1), *arrays[: len(quoted)]]
    bytes_ = "|".join(re.escape(form) for form in quoted[1:])
    structs = rf'^\{{(?:.*,)?"wkb":(?:{bytes_})[,}}]'
    return pa.array([*plain, *in_text]), pa.array([hstore, *arrays]), structs
