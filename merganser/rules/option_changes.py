"""Which options of a table may change: always, before its first snapshot, or never.

Rows and files that are there were made by some options, and would mean something else under other values. A change to
the value that an option has is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.option import Option, Options
from merganser.options.registry import IMMUTABLE_KEYS, find_option
from merganser.rules.compacting import publishes_by_compaction
from merganser.rules.facts import DYNAMIC, POSTPONE, refuse

_PLACED: Final = "files lie where it says"
_BUCKETED: Final = "rows lie in the buckets that it chose"
_MERGED: Final = "rows that are stored were merged by it"
_WRITTEN: Final = "files that are there were written by it"
_REASONS: Final[Mapping[str, str]] = {
    w.BUCKET_KEY.key: _BUCKETED,
    w.BUCKET_FUNCTION.key: _BUCKETED,
    w.DYNAMIC_BUCKET_INITIAL_BUCKETS.key: _BUCKETED,
    w.DATA_FILE_PATH_DIRECTORY.key: _PLACED,
    w.INDEX_FILE_IN_DATA_FILE_DIR.key: _PLACED,
    w.PARTITION_DEFAULT_NAME.key: _PLACED,
    w.PARTITION_LEGACY_NAME.key: _PLACED,
    w.MERGE_ENGINE.key: _MERGED,
    w.ASKED_ENGINE.key: _MERGED,
    w.SEQUENCE_SNAPSHOT_ORDERING.key: _MERGED,
    w.AGGREGATION_REMOVE_RECORD_ON_DELETE.key: _MERGED,
    w.PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE.key: _MERGED,
    w.PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP.key: _MERGED,
    w.ROWKIND_FIELD.key: _MERGED,
    u.FORCE_LOOKUP.key: _MERGED,
}
_LAYOUT: Final = (w.PARTITION_DEFAULT_NAME.key, w.PARTITION_LEGACY_NAME.key)
"""Options of the format that it lets change, although the directories of partitions are found by them."""
_NEVER: Final[Mapping[str, str]] = {
    w.TYPE.key: "it says what the table is. Create another table",
    w.PATH.key: "the place of a table is where it lies. Rename the table, or copy its rows",
    w.PARTITION.key: "the partition columns of a table stay. Create another table, and copy the rows",
    w.WRITE_MODE.key: "it says whether the table counts its rows. Create another table, and copy the rows",
    w.PRIMARY_KEY_SINCE.key: "it says with which schema the table got its key. Use merganser.changes.set_primary_key",
    w.STREAM.key: "it says where the shard stream began. Set 'stream.enabled'",
}
_OF_STREAM: Final = (
    w.CHANGELOG_PRODUCER,
    w.ASKED_PRODUCER,
    w.CHANGELOG_IMAGE,
    w.CHANGE_TRACKING,
    u.CHANGELOG_TIME_RETAINED,
    u.CHANGELOG_NUM_RETAINED_MAX,
    u.CHANGELOG_NUM_RETAINED_MIN,
)
"""Options that a shard stream needs as they are."""


def check_option_changes(before: Options, after: Options, *, written: bool, what: str, rewritten: bool = False) -> None:
    """Refuse changes of options that a table may not have.

    Args:
        written: the table has, or had, a snapshot whose files stay.
        rewritten: all rows are written anew, so options of how they lie and merge may change. Where files lie stays:
            those of older snapshots are found by it.
        what: beginning of the message, such as "cannot alter 'db.orders'".

    Raises:
        InvalidInputError: names the option and the reason; nothing was changed.
    """
    for key in dict.fromkeys((*after, *before)):
        option = find_option(key)
        if option is None or before.get(option) == after.get(option):
            continue  # of other engines, or the value that it has
        if option.key in _NEVER and not (option == w.WRITE_MODE and _counts(before) == _counts(after)):
            refuse(what, f"'{key}' cannot change: {_NEVER[option.key]}. Nothing was changed.", option=key)
        if before.get(w.STREAM_ENABLED) and option in _OF_STREAM:
            why = "the shard stream of the table needs it as it is. Disable the stream first"
            refuse(what, f"'{key}' cannot change: {why}. Nothing was changed.", option=key)
        if rewritten and (_REASONS.get(option.key) == _PLACED or option.key in _LAYOUT):
            _check_written(key, option, before, after, what)
    if written:
        check_written_options(before, after, what=what)


def check_written_options(before: Options, after: Options, *, what: str) -> None:
    """Refuse changes of options that rows or files depend on; see `check_option_changes`.

    Raises:
        InvalidInputError: names the option and the reason.
    """
    for key in dict.fromkeys((*after, *before)):
        option = find_option(key)
        if option is not None and before.get(option) != after.get(option):
            _check_written(key, option, before, after, what)


def _check_written(key: str, option: Option[Any], before: Options, after: Options, what: str) -> None:
    """Refuse a change of an option that rows or files depend on."""
    old, new = _shown(before, option), _shown(after, option)
    if option.key in IMMUTABLE_KEYS or option.key in _LAYOUT:
        reason = _REASONS.get(option.key, _WRITTEN)
        _refuse_written(key, old, new, f"{reason}. Create another table with the new value, and copy the rows", what)
    if option == w.BUCKET:
        _check_bucket(before.get(w.BUCKET), after.get(w.BUCKET), after.is_set(w.BUCKET), what)
    elif option == w.DELETION_VECTORS and not after.get(w.DELETION_VECTORS_MODIFIABLE):
        _refuse_written(key, old, new, "files rely on it. Set 'deletion-vectors.modifiable' = 'true' to allow it", what)
    elif option == w.LOG_CONSISTENCY and after.get(option) == "eventual" and publishes_by_compaction(before):
        why = "a stream that goes on at its position would never get rows that wait for the compaction to publish them"
        _refuse_written(key, old, new, f"{why}. Create another table with the new value, and copy the rows", what)
    elif option in (w.IGNORE_DELETE, w.IGNORE_UPDATE_BEFORE) and before.get(option):
        _refuse_written(key, old, new, "rows that it dropped are gone, and rows to come would not go with them", what)


def _check_bucket(old: int, new: int, is_set: bool, what: str) -> None:
    if (old > 0 and new > 0) or new == 0 or new < POSTPONE:
        return  # each partition keeps its number until it is overwritten or rescaled; the definition refuses others
    if not is_set:
        why = "its default gives rows other places, and it cannot be removed. Set it to a number above 0"
    elif DYNAMIC in (old, new):
        why = "with -1, rows lie in buckets that no hash chooses. Create another table, and copy the rows"
    else:
        assert POSTPONE in (old, new)
        why = "with -2, rows wait for their buckets. Create another table, and copy the rows"
    _refuse_written(w.BUCKET.key, f"'{old}'", f"'{new}'", why, what)


def _refuse_written(key: str, old: str, new: str, why: str, what: str) -> NoReturn:
    refuse(
        what,
        f"'{key}' cannot change from {old} to {new}, since the table has rows, or had some: {why}. Nothing was "
        "changed.",
        option=key,
    )


def _shown(options: Options, option: Option[Any]) -> str:
    """Return the value of an option as a message says it."""
    key = options.key_of(option)
    if key is not None:
        return f"'{options[key]}'"
    match option.default:
        case None | ():
            return "none"
        case bool(flag):
            return f"'{str(flag).lower()}'"
    return f"'{option.default}'"


def _counts(options: Options) -> bool:
    return options.get(w.WRITE_MODE) == "change-log"
