"""What fits a layout means what `scan` says it means, and everything else is left to `scan`."""

from __future__ import annotations

import json
from random import Random

import pyarrow as pa
import pytest

from merganser.cdc.batch import document
from merganser.parsing.json_layout import laid_out
from merganser.parsing.json_scan import NULL, NUMBER, OBJECT, TEXT

NAMES = ("a", "id", "a long name, longer than a word", "b.c", "日本", "", "{", "a:b,")
VALUES = (
    "null", "true", "false", "12", "-7", "0", "1.5e3", "123456789012", '"x"', '""', '"a,b"', '"}"', '"é"',
    '",b:"', '"12345678901234567890"',
)  # fmt: skip
OTHERS = ("007", '"\\""', "[1]", '{"a":1}', '"a":1', '"""', "1,2", "", " 1", "nul", '"\n"', '"\x1e"', "1x")
PIECES = ('"', ",", "{", "}", "[", "]", ":", "null", "1", "-", "\\", "x", " ", "\x01", ',"a":', '"a"', '{"a":', "é", "")


def test_texts_of_the_layout_fit() -> None:
    texts = pa.array(['{"id":7,"name":"x y"}', '{"id":null,"name":""}', '{"id":"7","name":1.5}'])
    fits, cells = laid_out(texts, ["id", "name"], ["name"])
    assert fits.tolist() == [True, True, True]
    assert list(cells) == ["name"]
    assert cells["name"].texts.to_pylist() == ["x y", "", "1.5"]
    assert cells["name"].kinds.tolist() == [TEXT, TEXT, NUMBER]
    assert laid_out(texts, ["id", "name"], ["id"])[1]["id"].kinds.tolist() == [NUMBER, NULL, TEXT]


@pytest.mark.parametrize(
    "text",
    [
        '{"id":7}', '{"name":"x","id":7}', '{"id": 7,"name":"x"}', '{"id":7,"name":"x"} ', '{"id":7,"name":"x"',
        '{"id":7,"name":"\\n"}', '{"id":[7],"name":"x"}', '{"id":7,"name":{}}', '{"id":7,"name":"x","more":1}',
        '{"id":07,"name":"x"}', '{"id":7,"name":x}', '{"id":,"name":"x"}', "", "{", '{"id":7,"name":',
    ],
)  # fmt: skip
def test_others_do_not_fit_and_do_not_disturb(text: str) -> None:
    good = '{"id":7,"name":"x"}'
    fits, cells = laid_out(pa.array([good, text, good]), ["id", "name"], ["id", "name"])
    assert fits.tolist() == [True, False, True]
    assert cells["name"].texts.to_pylist() == ["x", "x"]
    assert laid_out(pa.array([text]), ["id", "name"], ["id"])[0].tolist() == [False]


def test_names_with_escapes_and_no_texts_at_all_fit_nothing() -> None:
    assert laid_out(pa.array(['{"a\\"":1}']), ['a"'], ['a"'])[0].tolist() == [False]
    assert laid_out(pa.array([], pa.string()), ["a"], ["a"])[0].tolist() == []
    assert laid_out(pa.array(["{}"]), [], [])[0].tolist() == [False]


def drawn_texts(rng: Random, names: list[str]) -> list[str]:
    texts = []
    for _ in range(rng.choice([1, 3, 30])):
        values = [rng.choice(VALUES if rng.random() < 0.9 else OTHERS) for _ in names]
        order = names if rng.random() < 0.9 else rng.sample(names, len(names))
        pairs = zip(order, values, strict=True)
        text = "{" + ",".join(json.dumps(name, ensure_ascii=False) + ":" + value for name, value in pairs) + "}"
        for _ in range(rng.choice([0, 0, 0, 1, 2])):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(PIECES) + text[at + rng.randrange(3) :]
        texts.append(text if rng.random() < 0.95 else text[: rng.randrange(len(text) + 1)])
    return texts


@pytest.mark.parametrize("seed", range(8))
def test_what_fits_means_the_same_to_a_scan(seed: int) -> None:
    rng, fitting = Random(seed), 0
    for _ in range(100):
        names = rng.sample(NAMES, rng.randint(1, 5))
        texts = pa.array(['"', *drawn_texts(rng, names)], pa.string()).slice(1)
        fits, cells = laid_out(texts, names, names)
        found = document(texts, names)
        assert (found.children.roots[fits] == OBJECT).all()
        assert (found.children.counts[fits] == len(names)).all()
        for name in names if fits.any() else ():
            assert cells[name].texts.equals(found.of(name).texts.filter(pa.array(fits)))
            assert cells[name].kinds.tolist() == found.of(name).kinds[fits].tolist()
        fitting += int(fits.sum())
    assert fitting > 200
