"""What a client may ask."""

from __future__ import annotations

import pytest

from merganser.errors import StreamParameterError
from merganser.serve.operations import Limits, operations

RECORDS = operations(Limits(records=50, wait_seconds=5))["records"]


def test_what_is_left_out_has_its_default() -> None:
    asked = RECORDS.asked(b"iterator=a%2Bb")
    assert asked == {
        "iterator": "a+b",
        "limit": 50,
        "wait": 0.0,
        "before": False,
        "full": False,
        "gaps": "error",
        "format": None,
        "integers": "number",
    }
    assert RECORDS.asked(b"iterator=&limit=7&wait=0.5&full=true") == asked | {
        "iterator": "",
        "limit": 7,
        "wait": 0.5,
        "full": True,
    }


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("", "'iterator' is missing"),
        ("iterator=a&iterator=b", "'iterator' is given twice"),
        ("iterator=a&limt=3", "no parameter 'limt'"),
        ("iterator=a&limit=0", "'limit' is '0'. Give a whole number from 1 to 50"),
        ("iterator=a&limit=51", "from 1 to 50"),
        ("iterator=a&limit=1e1", "'limit' is '1e1'"),
        ("iterator=a&limit=-1", "'limit' is '-1'"),
        ("iterator=a&limit=%C2%B2", "'limit' is"),
        ("iterator=a&limit=1.0", "'limit' is '1.0'"),
        ("iterator=a&wait=nan", "'wait' is 'nan'. Give a number from 0 to 5"),
        ("iterator=a&wait=5.1", "from 0 to 5"),
        ("iterator=a&wait=.", "'wait' is '.'"),
        ("iterator=a&full=yes", "'full' is 'yes'. Give true or false"),
        ("iterator=a&format=xml", "Give 'json' or 'arrow'"),
        ("iterator=%ff", "not percent-encoded UTF-8"),
        ("&".join(f"a{i}=1" for i in range(99)), "at most 32 parameters"),
    ],
)
def test_what_has_no_meaning_is_refused(query: str, told: str) -> None:
    with pytest.raises(StreamParameterError, match=told.replace(".", r"\.")) as refused:
        RECORDS.asked(query.encode())
    assert refused.value.code == "OTSParameterInvalid"
