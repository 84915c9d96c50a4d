"""The scanner against Python's json module, text by text."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from merganser.parsing import json_scan
from merganser.parsing.json_scan import ABSENT, ARRAY, BOOLEAN, NULL, NUMBER, OBJECT, TEXT, compact, scan, unescaped

_KINDS = {dict: OBJECT, list: ARRAY, str: TEXT, bool: BOOLEAN, type(None): NULL}


class _Number(str):
    """A number as it is written."""


def _refuse(name: str) -> Any:
    raise ValueError(name)


def decoded(text: str) -> Any:
    """Return what a text means: members of an object as a list of pairs. Raises ValueError where it is not JSON."""
    return json.loads(
        text,
        parse_int=_Number,
        parse_float=_Number,
        parse_constant=_refuse,
        object_pairs_hook=lambda pairs: {"pairs": pairs},
    )


def kind_of(value: Any) -> int:
    return NUMBER if isinstance(value, _Number) else _KINDS[type(value)]


def is_text(value: str) -> bool:
    return not any(0xD800 <= ord(character) < 0xE000 for character in value)


def is_json(text: str) -> bool:
    try:
        decoded(text)
    except ValueError:
        return False
    return True


def drawn_value(draw: random.Random, depth: int = 0) -> str:
    blank = draw.choice(["", "", "", " ", "\n\t ", " " * 20])
    match draw.randrange(9 if depth < 4 else 6):
        case 0:
            return draw.choice(["null", "true", "false"])
        case 1 | 2:
            return draw.choice(
                ["0", "-0", "7", "-12", "12345678", "123456789", "1234567890123456", "12345678901234567890123456789",
                 "1.5", "-0.25", "1e5", "1E-7", "2.50e+10", str(draw.randrange(10**19))]
            )  # fmt: skip
        case 3 | 4 | 5:
            return drawn_string(draw)
        case 6:
            return (
                "[" + blank + ("," + blank).join(drawn_value(draw, depth + 1) for _ in range(draw.randrange(4))) + "]"
            )
        case _:
            members = (
                f"{drawn_string(draw)}{blank}:{blank}{drawn_value(draw, depth + 1)}" for _ in range(draw.randrange(4))
            )
            return "{" + blank + f"{blank},{blank}".join(members) + blank + "}"


def drawn_string(draw: random.Random) -> str:
    parts = [
        "a", "b", "id", "ünï", "東京", "🚲",
        ",", ":", "{", "}", "[", "]", " ", "/", '\\"', "\\\\", "\\n", "\\/", "\\u00e9",
        "\\ud83d\\ude80", "\\\\u12", "",
    ]  # fmt: skip
    return '"' + "".join(draw.choice(parts) for _ in range(draw.randrange(5))) + '"'


def damaged(draw: random.Random, text: str) -> str:
    at = draw.randrange(len(text) + 1)
    junk = draw.choice(
        ['"', "\\", "{", "}", "[", "]", ",", ":", "x", "\x1e", "\x00", "\n", "-", "0", "e", ".", "\\u12"]
    )
    match draw.randrange(4):
        case 0:
            return text[:at] + junk + text[at:]
        case 1:
            return text[:at] + text[at + 1 :]
        case 2:
            return text[:at]
        case _:
            return text[:at] + junk + text[at + 1 :]


@pytest.mark.parametrize("seed", range(6))
def test_random_texts_give_what_the_json_module_gives(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(json_scan, "_BLOCK_BYTES", draw.choice([64, 1000, 1 << 18]))
    texts = [drawn_value(draw) for _ in range(600)]
    texts = [damaged(draw, text) if draw.random() < 0.3 else text for text in texts]
    found = scan(pa.array(texts, pa.string()))
    names, kinds, values = found.names.to_pylist(), found.kinds.tolist(), found.texts
    quoted = pa.array(found.kinds == TEXT)
    means, halves = unescaped(pc.if_else(quoted, values, ""))
    means, raw = means.to_pylist(), compact(values).to_pylist()
    children: dict[int, list[Any]] = {}
    for i, parent in enumerate(found.parents.tolist()):
        if halves[i]:
            children.setdefault(parent, []).append((names[i], decoded(f'"{raw[i]}"')))
            continue
        value = means[i] if kinds[i] == TEXT else decoded(raw[i])
        assert kind_of(value) == kinds[i]
        children.setdefault(parent, []).append((names[i], value))
    for i, text in enumerate(texts):
        try:
            value = decoded(text)
        except ValueError:
            blank = not text.strip(" \t\r\n")
            assert found.roots[i] == ABSENT
            assert bool(found.faults[i]) != blank, text
            assert i not in children
            continue
        assert not found.faults[i], text
        assert found.roots[i] == kind_of(value)
        if kind_of(value) == OBJECT:
            expected = [(name if is_text(name) else None, member) for name, member in value["pairs"]]
        else:
            expected = [("", element) for element in value] if kind_of(value) == ARRAY else []
        assert children.get(i, []) == expected, text
        assert found.counts[i] == len(expected)


@pytest.mark.parametrize(
    "text",
    ["01", "-", "+1", "1.", ".5", "1e", "nul", "nullx", "NaN", "Infinity", "True", "'a'", '"a', '"\t"', '"\\x"',
     '"\\u12g4"', "[1,]", "[,1]", '{"a"}', '{"a":}', '{"a":1,}', '{1:2}', '{"a":1]', '["a":1]', '{"a" "b":1}',
     "1 2", "[1 2]",
     '"a" "b"', "{} {}", "]", "}{", '{"a":1}}', "\ufeff1", "[1\x0b]", "12345678x",
     "123456789012345678x", "1234567890123456.",
     '{"a":tru e}', "\\", '"a"\\', "[" * 600 + "]" * 600],
)  # fmt: skip
def test_what_is_not_json_is_a_fault_and_its_neighbours_are_whole(text: str) -> None:
    found = scan(pa.array(['{"a":1}', text, '{"b":"x"}']))
    assert found.faults.tolist() == [False, True, False]
    assert found.names.to_pylist() == ["a", "b"]
    assert found.texts.to_pylist() == ["1", "x"]


def test_half_a_surrogate_pair_means_no_text() -> None:
    means, wrong = unescaped(pa.array(["\\ud800", "\\ud83d\\ude80", "\\\\ud800", "\\udc00\\ud800", "a"]))
    assert wrong.tolist() == [True, False, False, True, False]
    assert means.to_pylist() == ["", "🚀", "\\ud800", "", "a"]


def test_only_wanted_members_are_given() -> None:
    found = scan(pa.array(['{"a":1,"b":2,"\\u0061":3}', '{"c":[]}']), pa.array(["b", "a"]))
    assert found.parents.tolist() == [0, 0, 0]
    assert found.names.to_pylist() == [1, 0, 1]
    assert found.counts.tolist() == [3, 1]


def test_numbers_and_nested_values_stay_as_they_are_written() -> None:
    found = scan(pa.array(['{"a": 1.50E+0010 , "b":[1, {"c" : 2.0}] }']))
    assert found.texts.to_pylist() == ["1.50E+0010", '[1, {"c" : 2.0}]']
    assert compact(found.texts).to_pylist() == ["1.50E+0010", '[1,{"c":2.0}]']
