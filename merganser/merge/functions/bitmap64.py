"""The serialised form of 64-bit roaring bitmaps in columns <-> bitmaps.

The JVM's `Roaring64Bitmap` is a radix tree over the high 48 bits, with a container of low 16 bits at each leaf::

    byte       0: empty, nothing follows; 1: not empty
    uint64     number of leaves
    nodes      parents before children, children by rising byte:
               byte kind (0 to 3: a branch of at most 4, 16, 48, 256 children; 4: a leaf)
               uint16 number of children, byte length of prefix, prefix: bytes that all keys below share
               branch: which bytes its children go by. kinds 0 and 1: the bytes, rising; kind 2: per byte the child's
                 number, 255 for none; both turned around within words of 4 and of 8 bytes. kind 3: a bit per byte
               leaf: 6 bytes key (big-endian), uint64 number of the container
    containers int32 number of arrays (1); byte -2; int32 slots; per slot
               byte 0: no container; 1: byte kind (0 runs, 1 bitmap, 2 array), int32 cardinality, and as portable
    int64      number of containers; int32 number of the last array; int32 of its last slot

All numbers are little-endian but for the keys. The portable form (count, then a high half and a 32-bit bitmap each),
which some writers put into such columns, is read too. `pyroaring` knows only that one, so containers are moved
between the two forms as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import groupby
from typing import Final

import pyroaring

_LEAF: Final = 4
_BRANCH_BYTES: Final = (4, 16, 256, 32)
_RUNS, _BITMAP, _ARRAY = range(3)
_ARRAY_MAX: Final = 4096
"""Values that a container holds as an array at most; more make a bitmap."""
_COOKIE, _COOKIE_RUNS = 12346, 12347
_KEY_BYTES: Final = 6

Container = tuple[int, int, bytes]
"""Kind, cardinality, bytes."""


def read(image: bytes) -> pyroaring.BitMap64:
    """Return the bitmap that bytes of either form hold.

    Raises:
        ValueError: they are of neither form.
    """
    tree = _tree(image)
    return pyroaring.BitMap64.deserialize(image) if tree is None else tree


def is_portable(image: bytes) -> bool:
    """Return whether bytes that hold a bitmap are of the portable form."""
    return _tree(image) is None


def _tree(image: bytes) -> pyroaring.BitMap64 | None:
    """Return the bitmap of the tree form, None if the bytes are not of it."""
    try:
        return pyroaring.BitMap64.deserialize(_portable(list(_tree_containers(image))))
    except (struct.error, IndexError, ValueError):
        return None


def write(bitmap: pyroaring.BitMap64) -> bytes:
    """Return the tree form of a bitmap; makes its containers as small as they can be."""
    if not bitmap:
        return b"\0"
    bitmap.run_optimize()
    containers = list(_portable_containers(bytes(bitmap.serialize())))
    keys = [key.to_bytes(_KEY_BYTES, "big") for key, _ in containers]
    nodes: list[bytes] = []
    _write_nodes(keys, 0, 0, nodes)
    slots = [struct.pack("<BBi", 1, kind, size) + data for _, (kind, size, data) in containers]
    head = struct.pack("<BQ", 1, len(keys))
    tail = struct.pack("<qii", len(keys), 0, len(keys) - 1)
    return b"".join([head, *nodes, struct.pack("<ibi", 1, -2, len(slots)), *slots, tail])


def _write_nodes(keys: list[bytes], first: int, depth: int, out: list[bytes]) -> None:
    """Write the subtree of rising keys that share their first `depth` bytes; `first` is the number of the first."""
    if len(keys) == 1:
        out.append(struct.pack("<BHB", _LEAF, 0, 0) + keys[0] + struct.pack("<Q", first))
        return
    shared = depth
    while keys[0][shared] == keys[-1][shared]:
        shared += 1
    children = [(byte, list(below)) for byte, below in groupby(keys, lambda key: key[shared])]
    out.append(_branch([byte for byte, _ in children], keys[0][depth:shared]))
    for _, below in children:
        _write_nodes(below, first, shared + 1, out)
        first += len(below)


def _branch(children: list[int], prefix: bytes) -> bytes:
    kind = next(i for i, most in enumerate((4, 16, 48, 256)) if len(children) <= most)
    if kind < 2:
        body = _turned(bytes(children).ljust(_BRANCH_BYTES[kind], b"\0"), 4 if kind == 0 else 8)
    elif kind == 2:
        table = bytearray(b"\xff" * 256)
        for number, byte in enumerate(children):
            table[byte] = number
        body = _turned(bytes(table), 8)
    else:
        body = sum(1 << byte for byte in children).to_bytes(32, "little")
    return struct.pack("<BHB", kind, len(children), len(prefix)) + prefix + body


def _turned(data: bytes, word: int) -> bytes:
    """Return the bytes turned around within each word."""
    return b"".join(data[at : at + word][::-1] for at in range(0, len(data), word))


def _tree_containers(image: bytes) -> Iterator[tuple[int, Container]]:
    """Yield (high 48 bits, container) in rising order, from the tree form.

    Raises:
        ValueError, struct.error, IndexError: the bytes are of another form, or damaged.
    """
    if image[0] == 0 and len(image) == 1:
        return
    mark, count = struct.unpack_from("<BQ", image, 0)
    if mark != 1:
        raise ValueError("no tree of containers")
    leaves: list[tuple[int, int]] = []
    at = 9
    while len(leaves) < count:
        kind, _, prefix = struct.unpack_from("<BHB", image, at)
        at += 4 + prefix
        if kind == _LEAF:
            leaves.append(
                (int.from_bytes(image[at : at + _KEY_BYTES], "big"), *struct.unpack_from("<Q", image, at + 6))
            )
            at += _KEY_BYTES + 8
        else:
            at += _BRANCH_BYTES[kind]
    containers, at = _slots(image, at)
    if at + 16 != len(image):
        raise ValueError("bytes behind the last container")
    for key, number in leaves:
        yield key, containers[number]


def _slots(image: bytes, at: int) -> tuple[dict[int, Container], int]:
    """Return the containers by number, and where they end."""
    out: dict[int, Container] = {}
    [arrays] = struct.unpack_from("<i", image, at)
    at += 4
    for array in range(arrays):
        _, slots = struct.unpack_from("<bi", image, at)
        at += 5
        for slot in range(slots):
            at += 1
            if image[at - 1] == 0:
                continue
            kind, size = struct.unpack_from("<Bi", image, at)
            at += 5
            length = _length(kind, size, image, at)
            out[array << 32 | slot] = (kind, size, image[at : at + length])
            at += length
    return out, at


def _length(kind: int, size: int, image: bytes, at: int) -> int:
    """Return how many bytes a container has that begins at `at`."""
    if kind == _RUNS:
        return 2 + 4 * int(struct.unpack_from("<H", image, at)[0])
    return 8192 if kind == _BITMAP else 2 * size


def _portable(containers: list[tuple[int, Container]]) -> bytes:
    """Return the portable form of containers in rising order."""
    parts = []
    for high, group in groupby(containers, lambda one: one[0] >> 16):
        some = list(group)
        flags = sum(1 << i for i, (_, (kind, _, _)) in enumerate(some) if kind == _RUNS)
        head = struct.pack("<II", _COOKIE, len(some))
        if flags:
            head = struct.pack("<I", _COOKIE_RUNS | (len(some) - 1) << 16) + flags.to_bytes(
                (len(some) + 7) // 8, "little"
            )
        head += b"".join(struct.pack("<HH", key & 0xFFFF, size - 1) for key, (_, size, _) in some)
        if not flags or len(some) >= 4:
            begin = len(head) + 4 * len(some)
            for _, (_, _, data) in some:
                head += struct.pack("<I", begin)
                begin += len(data)
        parts.append(struct.pack("<I", high) + head + b"".join(data for _, (_, _, data) in some))
    return struct.pack("<Q", len(parts)) + b"".join(parts)


def _portable_containers(image: bytes) -> Iterator[tuple[int, Container]]:
    """Yield (high 48 bits, container) in rising order, from the portable form that `pyroaring` writes."""
    [bitmaps] = struct.unpack_from("<Q", image, 0)
    at = 8
    for _ in range(bitmaps):
        high, cookie = struct.unpack_from("<II", image, at)
        at += 8
        flags = 0
        if cookie & 0xFFFF == _COOKIE_RUNS:
            count = (cookie >> 16) + 1
            flags = int.from_bytes(image[at : at + (count + 7) // 8], "little")
            at += (count + 7) // 8
        else:
            [count] = struct.unpack_from("<I", image, at)
            at += 4
        heads = [struct.unpack_from("<HH", image, at + 4 * i) for i in range(count)]
        at += 4 * count
        if cookie & 0xFFFF != _COOKIE_RUNS or count >= 4:
            at += 4 * count
        for i, (key, less) in enumerate(heads):
            kind = _RUNS if flags >> i & 1 else _BITMAP if less >= _ARRAY_MAX else _ARRAY
            length = _length(kind, less + 1, image, at)
            yield high << 16 | key, (kind, less + 1, image[at : at + length])
            at += length
