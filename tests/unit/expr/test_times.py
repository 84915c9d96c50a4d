"""Dates, intervals, the time and time zones in SQL text. Spark's own answers are asked for in tests/spark."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot.dialects.spark import Spark

from merganser.errors import InvalidInputError
from merganser.expr.prune import may_match_many
from merganser.expr.setting import Setting, checked_zone
from merganser.expr.text import parse_predicate, parse_projection
from merganser.schema import types as t
from merganser.schema.types_text import parse_type

KINDS = {"d": "DATE", "w": "TIMESTAMP(3)", "l": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "a": "INT", "s": "STRING"}
FIELDS = [t.Field(i, name, parse_type(text)) for i, (name, text) in enumerate(KINDS.items())]
NOW = datetime(2026, 3, 9, 2, 30, tzinfo=UTC)
BERLIN, NEW_YORK = (Setting(zone, int(NOW.timestamp() * 1000)) for zone in ("Europe/Berlin", "America/New_York"))
ZONES = ["UTC", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "+05:45", "-11:00"]


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("d = current_date", "d = DATE '2026-03-08'"),
        ("d >= current_date() - 7", "d >= DATE '2026-03-01'"),
        ("d > date_sub(current_date, 7)", "d > DATE '2026-03-01'"),
        ("d > add_months(current_date, -12)", "d > DATE '2025-03-08'"),
        ("d > trunc(current_date, 'MONTH')", "d > DATE '2026-03-01'"),
        ("d = last_day(current_date)", "d = DATE '2026-03-31'"),
        ("d > make_date(2026, 2, 28) + INTERVAL 1 DAY", "d > DATE '2026-03-01'"),
        ("d > to_date('2026-1-5')", "d > DATE '2026-01-05'"),
        ("l > now()", "l > TIMESTAMP_LTZ '2026-03-09 02:30:00.000000'"),
        ("l > current_timestamp - INTERVAL 1 DAY", "l > TIMESTAMP_LTZ '2026-03-08 03:30:00.000000'"),
        ("l > now() - INTERVAL 24 HOURS", "l > TIMESTAMP_LTZ '2026-03-08 03:30:00.000000'"),
        ("l > now() - INTERVAL '1 02:00:00' DAY TO SECOND", "l > TIMESTAMP_LTZ '2026-03-08 01:30:00.000000'"),
        ("l > now() - INTERVAL 1 DAY 2 HOURS", "l > TIMESTAMP_LTZ '2026-03-08 01:30:00.000000'"),
        ("w > now()", "w > TIMESTAMP '2026-03-08 22:30:00.000000'"),
        ("w > localtimestamp", "w > TIMESTAMP '2026-03-08 22:30:00.000000'"),
        ("w > localtimestamp()", "w > TIMESTAMP '2026-03-08 22:30:00.000000'"),
        ("a = datediff(current_date, '2026-03-01')", "a = 7"),
        ("a = year(current_date)", "a = 2026"),
        ("l >= '2026-03-08'", "l >= TIMESTAMP_LTZ '2026-03-08 05:00:00'"),
        ("l >= '2026-03-08 02:30'", "l >= TIMESTAMP_LTZ '2026-03-08 07:30:00'"),
        ("l >= '2026-11-01 01:30'", "l >= TIMESTAMP_LTZ '2026-11-01 05:30:00'"),
        ("l >= '2026-03-08Z'", None),
        ("l >= '2026-03-08 00:00 Mars/Base'", None),
        ("l >= '2026-03-08 00:00:00 Europe/Berlin'", "l >= TIMESTAMP_LTZ '2026-03-07 23:00:00'"),
        ("l >= '2026-03-08 02:30:00.5 America/New_York'", "l >= TIMESTAMP_LTZ '2026-03-08 07:30:00.5'"),
        ("l >= TIMESTAMP '2026-03-08 00:00:00 PST'", "l >= TIMESTAMP_LTZ '2026-03-08 08:00:00'"),
        ("l >= '2026-03-08T00:00:00UTC-1'", "l >= TIMESTAMP_LTZ '2026-03-08 01:00:00'"),
        ("l >= '2026-03-08T00:00:00+01:00:30'", "l >= TIMESTAMP_LTZ '2026-03-07 22:59:30'"),
        ("w >= '2026-03-08 00:00:00 Europe/Berlin'", "w >= TIMESTAMP '2026-03-08 00:00:00'"),
        ("l >= '2026-03-08 00:00Z'", "l >= TIMESTAMP_LTZ '2026-03-08 00:00:00'"),
    ],
)
def test_what_needs_no_row_is_a_literal_in_the_zone_of_the_setting(text, printed):
    if printed is None:
        with pytest.raises(InvalidInputError, match="is not a timestamp"):
            parse_predicate(text, FIELDS, setting=NEW_YORK)
        return
    predicate = parse_predicate(text, FIELDS, setting=NEW_YORK)
    assert str(predicate) == printed
    assert parse_predicate(printed, FIELDS) == predicate


@pytest.mark.parametrize(
    "text",
    [
        "to_date(l) = '2026-03-08'", "hour(l) = 3", "l > w", "d < l", "date_trunc('WEEK', l) = '2026-03-02'",
        "coalesce(l, w) > '2026-01-01'", "w + INTERVAL 1 MONTH > now()", "last_day(d) = d", "datediff(d, w) > 3",
        "CASE WHEN a > 1 THEN l ELSE w END > '2026-01-01'", "CAST(l AS STRING) LIKE '2026%'", "weekday(l) = 0",
        "extract(QUARTER FROM l) = 1", "date_part('doy', d) = 3", "dateadd(HOUR, 2, w) > d",
    ],
)  # fmt: skip
def test_text_in_a_zone_says_the_zone_where_columns_need_it_and_parses_back_in_utc(text):
    predicate = parse_predicate(text, FIELDS, setting=BERLIN)
    assert parse_predicate(str(predicate), FIELDS) == predicate


@given(
    st.lists(st.datetimes(datetime(1850, 1, 1), datetime(2100, 1, 1)), min_size=1, max_size=20), st.sampled_from(ZONES)
)
def test_clocks_and_instants_are_those_of_the_zone(walls, zone):
    walls = [wall.replace(microsecond=wall.microsecond // 1000 * 1000) for wall in walls]
    table = pa.table({"w": pa.array(walls, pa.timestamp("ms")), "l": pa.array(walls, pa.timestamp("us", "UTC"))})
    there = UTC if zone == "UTC" else _zone(zone)
    setting = Setting(zone)
    shown = parse_projection("CAST(l AS TIMESTAMP_NTZ)", FIELDS, setting=setting).evaluate(table).to_pylist()
    assert shown == [wall.replace(tzinfo=UTC).astimezone(there).replace(tzinfo=None) for wall in walls]
    found = parse_projection("CAST(w AS TIMESTAMP_LTZ)", FIELDS, setting=setting).evaluate(table).to_pylist()
    assert found == [wall.replace(tzinfo=there).astimezone(UTC) for wall in walls]


def _zone(name):
    if name[0] not in "+-":
        return ZoneInfo(name)
    hours, minutes = name[1:].split(":")
    return timezone((1 if name[0] == "+" else -1) * timedelta(hours=int(hours), minutes=int(minutes)))


@given(
    st.lists(st.dates(date(1900, 1, 1), date(2100, 1, 1)), min_size=1, max_size=20),
    st.integers(-400, 400),
    st.integers(-400, 400),
)
def test_months_and_days_are_added_as_people_count(days, months, more):
    table = pa.table(
        {"d": days, "w": pa.array([datetime(x.year, x.month, x.day, 23) for x in days], pa.timestamp("ms"))}
    )
    wanted = []
    for day in days:
        month = day.year * 12 + day.month - 1 + months
        last = (date(month // 12 + (month % 12 == 11), (month + 1) % 12 + 1, 1) - timedelta(1)).day
        wanted.append(date(month // 12, month % 12 + 1, min(day.day, last)) + timedelta(more))
    found = parse_projection(f"add_months(d, {months}) + INTERVAL {more} DAYS", FIELDS).evaluate(table)
    assert found.to_pylist() == wanted
    later = parse_projection(f"w + INTERVAL {months} MONTHS", FIELDS)
    late = parse_projection(f"CAST(w + INTERVAL {months} MONTHS AS DATE) + {more}", FIELDS).evaluate(table)
    assert late.to_pylist() == wanted
    assert {moment.hour for moment in later.evaluate(table).to_pylist()} == {23}


@given(
    st.lists(st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)), min_size=1, max_size=12), st.sampled_from(ZONES)
)
def test_no_file_is_skipped_that_has_a_row_to_keep(moments, zone):
    moments = sorted(moments)
    table = pa.table({"l": pa.array(moments, pa.timestamp("us", "UTC"))})
    rows = np.ones(len(moments), np.int64)
    for text in ("to_date(l) = '2024-03-31'", "year(l) = 2025", "date_trunc('MONTH', l) > '2024-11-01'", "hour(l) = 2"):
        predicate = parse_predicate(text, FIELDS, setting=Setting(zone))
        column = table.column("l").combine_chunks()
        kept = may_match_many(predicate, {"l": column}, {"l": column}, {"l": rows * 0}, rows)
        assert not (np.asarray(predicate.mask(table)) & ~kept).any()


def test_files_of_other_days_are_skipped_in_a_zone_too():
    first = [datetime(2026, 3, day, tzinfo=UTC) for day in range(1, 29)]
    low, high = pa.array(first, pa.timestamp("us", "UTC")), pa.array(first, pa.timestamp("us", "UTC"))
    predicate = parse_predicate("to_date(l) = '2026-03-08'", FIELDS, setting=NEW_YORK)
    zeros = np.zeros(28, np.int64)
    assert may_match_many(predicate, {"l": low}, {"l": high}, {"l": zeros}, zeros + 1).sum() <= 4


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("to_date(s, 'yyyy') = d", "patterns of dates are not supported"),
        ("INTERVAL 1 DAY", "an interval is added to a date"),
        ("d > now() - INTERVAL 'x' DAY", "it is no interval"),
        ("d > now() - INTERVAL 1 MOON", "it is no interval"),
        ("d > now() - INTERVAL a DAY", "must be a whole number, written as a literal"),
        ("d > add_months(d, a)", "must be a whole number, written as a literal"),
        ("date_trunc('MOON', w) = w", "cannot go back to the start of a 'MOON'"),
        ("date_part('moon', w) = 1", "a date has no part 'moon'"),
        ("CAST(s AS TIMESTAMP_LTZ) > l", "supported in UTC only"),
        ("a + INTERVAL 1 DAY > d", "'a' is INT, not a date or timestamp"),
    ],
)
def test_what_is_not_understood_is_refused_in_plain_words(text, why):
    with pytest.raises(InvalidInputError, match=why):
        parse_predicate(text, FIELDS, setting=BERLIN)


def test_the_time_is_asked_for_where_there_is_one():
    with pytest.raises(InvalidInputError, match="cannot ask for the time here"):
        parse_predicate("d = current_date", FIELDS)


@pytest.mark.parametrize(
    ("name", "zone"),
    [("utc", None), ("Z", None), ("GMT+1", "+01:00"), ("+5", "+05:00"), ("UTC-0330", "-03:30"), ("+00:00", None),
     ("Asia/Tokyo", "Asia/Tokyo"), ("PST", "America/Los_Angeles"), ("+1:5", "+01:05"), ("-010203", "-01:02:03")],
)  # fmt: skip
def test_zones_are_named_as_spark_names_them(name, zone):
    assert checked_zone(name) == zone


@pytest.mark.parametrize("name", ["", "Mars/Base", "+25:00", "+01:75", "+18:00:01", "WET5", "../etc/passwd", None, 3])
def test_no_other_zone_is_taken(name):
    with pytest.raises(InvalidInputError, match="there is no time zone"):
        checked_zone(name)


def test_no_refusal_names_a_function_that_only_the_parser_knows():
    inner = {"tsordstodate", "tsordsadd", "tsordstotimestamp", "strtotime", "timetostr", "strtounix", "unixtostr"}
    known = {name.lower() for name in Spark.Parser.FUNCTIONS}
    for name in sorted(name for name in known if not any(word in name.replace("_", "") for word in inner)):
        for text in (f"{name}(s) = 'x'", f"{name}(d, w) = 'x'", f"{name}(s, 'yyyy', 3) = 'x'"):
            try:
                parse_predicate(text, FIELDS, setting=BERLIN)
            except InvalidInputError as error:
                said = str(error).lower().replace("_", "")
                assert not [word for word in inner if word in said], (text, str(error))
