"""All table options as a whole: which keys there are, which text is meant for one of them but misspelt.

A table may carry options of other engines; they are kept and never judged. A key that is close to one of ours
but is none is refused, because an option that silently does nothing is worse than an error.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from merganser.errors import InvalidInputError, a_type
from merganser.options import catalog, kept, read, upkeep, write
from merganser.options.option import ColumnOption, Option, Options, TextForm, choice
from merganser.options.secrets import HIDDEN, is_secret

__all__ = [
    "ALL_OPTIONS",
    "COLUMN_OPTIONS",
    "IMMUTABLE_KEYS",
    "Option",
    "Options",
    "arguments_of",
    "check_asked",
    "check_catalog_keys",
    "check_keys",
    "check_texts",
    "closest",
    "did_you_mean",
    "find_catalog_option",
    "find_option",
    "is_of_a_table",
    "normalize_options",
    "sequence_groups",
    "split_column_key",
    "text_of",
]

ALL_OPTIONS: Final[tuple[Option[Any], ...]] = (
    *write.OPTIONS,
    *read.OPTIONS,
    *upkeep.OPTIONS,
    *kept.OPTIONS,
)
COLUMN_OPTIONS: Final[tuple[ColumnOption[Any], ...]] = write.COLUMN_OPTIONS
IMMUTABLE_KEYS: Final = frozenset(option.key for option in ALL_OPTIONS if option.immutable)

_BY_KEY: Final = {key: option for option in ALL_OPTIONS for key in (option.key, *option.aliases)}
_CATALOG_BY_KEY: Final = {key: option for option in catalog.OPTIONS for key in (option.key, *option.aliases)}
_BY_SUFFIX: Final = {option.suffix: option for option in COLUMN_OPTIONS}
_SUFFIXES: Final[dict[str, tuple[str, ...]]] = {
    family: tuple(option.suffix for option in COLUMN_OPTIONS if option.family == family)
    for family in (option.family for option in COLUMN_OPTIONS)
}
# Suffixes that other engines use after `fields.<column>.`.
_OTHER_SUFFIXES: Final = ("agg", "listagg.delimiter", "kind", "min", "max", "length", "expression")
# Keys of other engines that look like ours, and whole families of them.
_OTHER_KEYS: Final = frozenset({
    "async-file-write", "bucket.key", "bucket.num", "cache-page-size", "chain-table.enabled",
    "changelog.precommit-compact", "comment", "commit.callback", "commit.callbacks", "commit.discard-duplicate-files",
    "compaction.max.file-num", "connector", "end-input.check-partition-expire", "end-input.watermark",
    "file-operation-thread-num", "file-reader-async-threshold", "format", "format-table.implementation",
    "global-index.enabled", "iceberg.format-version", "local-merge-buffer-size", "local-sort.max-num-file-handles",
    "location", "lookup.bootstrap-parallelism", "lookup.cache-rows", "lookup.cache-spill-compression",
    "lookup.cache.bloom.filter.enabled", "lookup.cache.bloom.filter.fpp", "lookup.cache.high-priority-pool-ratio",
    "lookup.dynamic-partition", "lookup.hash-load-factor", "lookup.local-file-type", "lookup.refresh.async",
    "materialized-table.definition-query", "metastore.partitioned-table", "metastore.tag-to-partition",
    "object-location", "orc.dictionary-key-threshold", "owner", "page-size", "parquet.enable.dictionary",
    "partition.sink-strategy", "precommit-compact", "provider", "query-auth.enabled",
    "scan.dedicated-split-generation", "scan.ignore-corrupt-files", "scan.ignore-lost-files",
    "scan.infer-parallelism", "scan.infer-parallelism.max", "scan.max-splits-per-task", "scan.push-down",
    "scan.split-enumerator.batch-size", "scan.split-enumerator.mode", "scan.watermark.alignment.group",
    "scan.watermark.emit.strategy", "scan.watermark.idle-timeout", "sink.clustering.sample-factor",
    "sink.clustering.sort-in-cluster", "sink.clustering.strategy", "sink.committer-cpu", "sink.committer-memory",
    "sink.cross-partition.managed-memory", "sink.managed.writer-buffer-memory", "sink.process-time-zone",
    "sink.use-managed-memory-allocator", "sink.watermark-time-zone", "sink.writer-coordinator.enabled",
    "sink.writer-cpu", "sink.writer-memory", "snapshot.watermark-idle-timeout",
    "sort-compaction.local-sample.magnification", "sort-compaction.range-strategy", "sort-engine",
    "source.checkpoint-align.enabled", "source.checkpoint-align.timeout",
    "streaming-read-shuffle-bucket-with-partition", "tag.callbacks", "unaware-bucket.compaction.parallelism",
    "visibility-callback.enabled", "visibility-callback.timeout", "write-buffer-for-append", "write-manifest-cache",
    "write-max-writers-to-spill", "write.batch-memory", "write.batch-size", "zorder.var-length-contribution",
})  # fmt: skip
# Keys of the catalogs of other engines.
_OTHER_CATALOG_KEYS: Final = frozenset({
    "allow-upper-case", "client-pool-size", "default-database", "format-table.enabled",
    "lock-check-max-sleep", "lock.type", "resolving-file-io.enabled", "sync-all-properties", "table.type",
    "cache-enabled", "cache.deletion-vectors.max-num", "cache.enabled", "cache.expiration-interval",
    "cache.expire-after-access", "cache.expire-after-write", "cache.manifest.small-file-memory",
    "cache.manifest.small-file-threshold", "cache.partition.max-num", "cache.snapshot.max-num-per-table",
})  # fmt: skip
_OTHER_FAMILIES: Final = re.compile(
    r"(kafka|table|client|scan\.startup|spark|flink|hive|hadoop|fs|dfs|s3|s3a|oss|gs|hdfs|parquet|orc|avro|lance"
    r"|metadata\.iceberg|iceberg|delta|hoodie|hudi|properties|debezium|canal|http|security|rest|vector|global-index"
    r"|chain-table|materialized-table|metastore|partition\.mark-done-action|write\.parquet|write\.metadata)[.].+"
)
# The compressions that engines know under keys of the formats themselves; a misspelt one fails in all of them.
_OTHER_FORMS: Final[Mapping[str, TextForm[str]]] = {
    "parquet.compression": choice("zstd", "snappy", "lz4", "lz4-raw", "gzip", "lzo", "brotli", "none", "uncompressed"),
    "orc.compress": choice("zstd", "snappy", "lz4", "zlib", "lzo", "brotli", "none"),
    "avro.codec": choice("zstandard", "snappy", "deflate", "bzip2", "xz", "null"),
}
_INDEX_KEY: Final = re.compile(r"file-index\.([a-z-]+)\.(?:columns|.+\.[a-z-]+)")
_OUR_INDEX: Final = write.FILE_INDEX_BLOOM.removeprefix("file-index.")
_COMMAS: Final = "options separate names by commas, so none can name column '{}'."
_CUTOFF_INDEX: Final = 0.9
"""Least likeness of a kind of index to ours; others of the format are as like as 0.8."""
_CUTOFF: Final = 0.8
_NEVER: Final = 2.0
_CUTOFF_WORDS: Final = 0.7
"""Least likeness of a name to what it may have been meant to be; of a key that begins like ours, and of plain words."""


def find_option(key: str) -> Option[Any] | None:
    """Return the option that a key (or one of its older names) sets, per-column keys included."""
    found = _BY_KEY.get(key)
    if found is None and (split := split_column_key(key)):
        column, suffix = split
        return _BY_SUFFIX[suffix].of(column)
    return found


def split_column_key(key: str) -> tuple[str, str] | None:
    """Return (column, suffix) of a key of ours such as `fields.<column>.<suffix>`, else None.

    The column of a sequence group may be several, joined with commas.
    """
    family = _family(key)
    if family is None or key in _BY_KEY:
        return None
    for suffix in _SUFFIXES[family]:
        column = key.removeprefix(family + ".").removesuffix("." + suffix)
        if key.endswith("." + suffix) and column:
            return column, suffix
    return None


def _family(key: str) -> str | None:
    """Return what a key of one column begins with, or None."""
    return next((family for family in _SUFFIXES if key.startswith(family + ".")), None)


def sequence_groups(options: Mapping[str, str]) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """Return each sequence group as (ordering columns, protected columns), in the order of the options."""
    groups = []
    for key, text in options.items():
        split = split_column_key(key)
        if split and split[1] == write.SEQUENCE_GROUP.suffix:
            ordering = tuple(name.strip() for name in split[0].split(","))
            groups.append((ordering, write.SEQUENCE_GROUP.of(split[0]).parse(text)))
    return tuple(groups)


def normalize_options(options: Mapping[str, Any] | None, *, columns: Sequence[str] | None = None) -> dict[str, str]:
    """Return options as texts: what a user gave as Python values, as the format writes them.

    Args:
        options: by key; text, bool, int, float, timedelta, or a list of column names.
        columns: the columns of the table, if known, to check options of single columns.

    Raises:
        InvalidInputError: a key is a misspelt one of ours, a value has no text form, or its text is not of the
            form that its option wants.
    """
    if options is not None and not isinstance(options, Mapping):
        raise InvalidInputError(
            f"cannot use options that are {a_type(options)}. Give a dict such as {{'bucket': '4'}}."
        )
    texts = {}
    for key, value in (options or {}).items():
        if not isinstance(key, str) or not key.strip():
            raise InvalidInputError(
                f"cannot use {key!r} as a table option: a key is text such as 'bucket'.", option=key
            )
        texts[key.strip()] = text_of(key, value)
    check_keys(texts, columns=columns)
    check_texts(texts)
    return texts


def text_of(key: str, value: Any) -> str:
    """Return the text of an option's value.

    Raises:
        InvalidInputError: the value has no text form.
    """
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case timedelta():
            return f"{value // timedelta(milliseconds=1)} ms"
        case list() | tuple() if all(isinstance(name, str) for name in value):
            for name in value:
                if "," in name:
                    raise InvalidInputError(
                        f"cannot use table option '{key}': {_COMMAS.format(name)} Rename the column first.",
                        option=key,
                        column=name,
                    )
            return ",".join(value)
    said = HIDDEN if is_secret(key) else f"{value!r:.100}"
    raise InvalidInputError(
        f"cannot use table option '{key}' = {said}: expected text, a number, a bool, a timedelta or a list of "
        f"column names, not {type(value).__name__}. Leave an option out to have its default.",
        option=key,
        value=said,
    )


def check_keys(keys: Iterable[str], *, columns: Sequence[str] | None = None) -> None:
    """Refuse keys that are meant for an option of ours but are none, and options of columns that do not exist.

    Raises:
        InvalidInputError: names the key and what it may have been meant to be.
    """
    for key in keys:
        if split := split_column_key(key):
            if columns is not None:
                _check_columns_of_key(key, split, columns)
        elif not _is_known(key) and (meant := _meant(key)):
            raise InvalidInputError(f"unknown table option '{key}'. Did you mean '{meant}'?", option=key, meant=meant)


def check_asked(keys: Iterable[str], arguments: Collection[str] = (), action: str = "") -> None:
    """Refuse keys that stand for no option, where they are meant for one call or handle: they would do nothing.

    Args:
        keys: of options; those that only other engines know are taken, since they may be copied from a table.
        arguments: names that the call takes besides options. A key may be one of them, misspelt.
        action: beginning of the message.

    Raises:
        InvalidInputError: names the key and what it may have been meant to be.
    """
    for key in keys:
        if is_of_a_table(key):
            continue
        meant = closest(key, arguments) or closest(key, _BY_KEY)
        hint = f"Did you mean '{meant}'?" if meant else "There is none that is similar."
        what = "argument or option" if arguments else "table option"
        raise InvalidInputError(
            f"{action}unknown {what} '{key}'. {hint}", option=key, **({"meant": meant} if meant else {})
        )


def is_of_a_table(key: str) -> bool:
    """Return whether a key is an option of tables, of merganser or of another engine."""
    return find_option(key) is not None or _is_known(key) or bool(_OTHER_FAMILIES.fullmatch(key))


def arguments_of(call: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the arguments of a function that takes options besides them."""
    return tuple(
        name for name, found in inspect.signature(call).parameters.items() if found.kind is not found.VAR_KEYWORD
    )


def find_catalog_option(key: str) -> Option[Any] | None:
    """Return the option of a catalog that a key (or one of its older names) sets."""
    return _CATALOG_BY_KEY.get(key)


def check_catalog_keys(keys: Iterable[str], *, what: str) -> None:
    """Refuse keys that are meant for an option of a catalog or a store but are none; keys of others are left alone.

    Args:
        keys: of options; no value is looked at, because some are secrets.
        what: beginning of the message, such as "cannot open the warehouse 'w'".

    Raises:
        InvalidInputError: names the key and what it may have been meant to be.
    """
    for key in keys:
        if key in _CATALOG_BY_KEY or key in _OTHER_CATALOG_KEYS or key in _OTHER_KEYS:
            continue
        if find_option(key) is not None:
            raise InvalidInputError(
                f"{what}: '{key}' is an option of a table. Give it to catalog.create_table(..., "
                f"options={{'{key}': ...}}), or to table.with_options for one process.",
                option=key,
            )
        own = key.partition(".")[0].lower() in catalog.OWN_FAMILIES
        if not own and _OTHER_FAMILIES.fullmatch(key):
            continue
        meant = _nearest(key, _CATALOG_BY_KEY, cutoff=_CUTOFF_WORDS if own else _CUTOFF) or _default_meant(key)
        if meant := meant or _nearest(key, _OTHER_CATALOG_KEYS, cutoff=_CUTOFF):
            raise InvalidInputError(f"{what}: unknown option '{key}'. Did you mean '{meant}'?", option=key, meant=meant)


def _default_meant(key: str) -> str | None:
    """Return `table-default.bucket` for `table-defaultt.bucket`, or None."""
    first, dot, rest = key.partition(".")
    families = [prefix.removesuffix(".") for prefix in catalog.TABLE_DEFAULTS]
    family = _nearest(first, families, cutoff=_CUTOFF) if dot and first not in families else None
    return None if family is None else f"{family}.{rest}"


def check_texts(options: Mapping[str, str]) -> None:
    """Parse every option of ours, and those of others whose values are names of compressions.

    Raises:
        InvalidInputError: a text is not of its option's form; names key, text and form.
    """
    for key, text in options.items():
        option = find_option(key)
        if option is None and key in _OTHER_FORMS:
            option = Option(key, _OTHER_FORMS[key], "", "")
        if option is not None:
            option.parse(text, key=key)


def closest(name: str, names: Iterable[str]) -> str | None:
    """Return the one of `names` that `name` is most likely a misspelling of, or None.

    A name without a dot may lack the first part of the other one: `heder` is `csv.header`.
    """
    names = list(names)
    ends = {candidate.rpartition(".")[2]: candidate for candidate in names} if "." not in name else {}
    for known in ({candidate: candidate for candidate in names}, ends):
        folded = {_folded(text): candidate for text, candidate in known.items()}
        if found := difflib.get_close_matches(_folded(name), folded, n=1, cutoff=_CUTOFF_WORDS):
            return folded[found[0]]
    return None


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Return the end of a message about an unknown name: the likely one, or the first three there are."""
    for known in names:
        if "," in known and name in (part.strip() for part in known.split(",")):
            return f"If column '{known}' is meant: {_COMMAS.format(known)} Rename the column."
    if meant := closest(name, names):
        return f"Did you mean '{meant}'?"
    if not names:
        return "There are none."
    first = ", ".join(f"'{known}'" for known in names[:3])
    return f"Choose one of {len(names)}, such as {first}." if len(names) > 3 else f"Choose from {first}."


def _is_known(key: str) -> bool:
    if key in _BY_KEY or key in _OTHER_KEYS:
        return True
    if index := _INDEX_KEY.fullmatch(key):
        return not difflib.get_close_matches(index[1], [_OUR_INDEX], cutoff=_CUTOFF_INDEX)
    return any(key.startswith("fields.") and key.endswith("." + suffix) for suffix in _OTHER_SUFFIXES)


def _check_columns_of_key(key: str, split: tuple[str, str], columns: Sequence[str]) -> None:
    column, suffix = split
    names = [column] if column in columns or suffix != write.SEQUENCE_GROUP.suffix else column.split(",")
    for name in (part.strip() for part in names):
        if name in columns:
            continue
        parent = name.split(".")[0]
        hint = did_you_mean(name, columns)
        if parent in columns:
            hint = f"'{parent}' is a column, but options of fields inside a column are not possible."
        raise InvalidInputError(
            f"cannot use table option '{key}': column '{name}' is not found in the table. {hint}",
            option=key,
            column=name,
        )


def _meant(key: str) -> str | None:
    if family := _family(key):
        column, _, suffix = key.removeprefix(family + ".").rpartition(".")
        meant = closest(suffix, _SUFFIXES[family]) if column else closest(key, _BY_KEY)
        return meant if meant is None or not column else f"{family}.{column}.{meant}"
    return _nearest(key, _BY_KEY, cutoff=_NEVER if _OTHER_FAMILIES.fullmatch(key) else _CUTOFF)


def _nearest(key: str, known: Iterable[str], *, cutoff: float) -> str | None:
    """Return the one of `known` that a key equals but for its signs, is like, or begins with and has one word more."""
    folded = _folded(key)
    by_folded = {_folded(candidate): candidate for candidate in known}
    if folded in by_folded:
        return by_folded[folded]
    for candidate in difflib.get_close_matches(folded, by_folded, n=3, cutoff=_CUTOFF_WORDS):
        near = difflib.SequenceMatcher(None, candidate, folded).ratio() >= cutoff
        # 'bucket-num' is far from 'bucket' by letters, but says the same word and one more.
        if near or folded.startswith(candidate + "-"):
            return by_folded[candidate]
    return None


def _folded(text: str) -> str:
    return re.sub(r"[._ -]", "-", text.strip().lower())
