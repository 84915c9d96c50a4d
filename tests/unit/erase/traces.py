"""Traces: every byte that a storage holds is searched for a text, in paths, in files as they are, and decoded."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

import fastavro
import pyarrow.ipc
import pyarrow.orc
import pyarrow.parquet


def traces(files: Mapping[str, bytes], text: str) -> list[str]:
    """Return the paths of files that hold a text, or are called by it."""
    return [path for path, data in files.items() if text in path or any(text in part for part in _decoded(data))]


def _decoded(data: bytes) -> Iterator[str]:
    yield data.decode("latin-1")
    if data[:4] == b"PAR1":
        file = pyarrow.parquet.ParquetFile(io.BytesIO(data))
        yield repr(file.read().to_pylist())
        for group in range(file.metadata.num_row_groups):
            yield repr(file.metadata.row_group(group).to_dict())
    elif data[:3] == b"ORC":
        yield repr(pyarrow.orc.ORCFile(io.BytesIO(data)).read().to_pylist())
    elif data[:6] == b"ARROW1":
        yield from _texts(pyarrow.ipc.open_file(data).read_all().to_pylist())
    elif data[:4] == b"Obj\x01":
        reader = fastavro.reader(io.BytesIO(data))
        yield json.dumps(reader.metadata)
        yield "".join(_texts(list(reader)))


def _texts(value: Any) -> Iterator[str]:
    """Yield what texts and bytes hold; an index may be a file of its own inside of a manifest."""
    if isinstance(value, bytes):
        yield value.decode("latin-1")
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
    else:
        yield str(value)
