"""The conformance runner: JSON cases in the format of `tests/vectors/README.md`, run through the public surface.

    python -m tests.conformance [--spark | --spark-streams] [--only PATTERN] [-v] DIR_OR_FILE...

    cases        files -> cases, every field known
    dialects     options of another product -> ours
    column_types text of a column type -> Arrow and Spark
    values       JSON value <-> Arrow value
    compare      rows and changelogs, expected and actual
    door         how rows go in and come out: embedded here, through Spark in `spark_door`
    steps        one step of a case -> one call of the public surface
    reads        one read of a case -> rows, a changelog or a count
    streams      a reader that follows the table while later steps run
    table_case   kind `table`: create, step, read, compare
    lsm_cases    kinds `compaction_pick` and `interval_partition`
    run          one case -> passed, failed or skipped
    report       what a person reads

What merganser does not have yet is a skip, found out by asking the object, so the runner gets stricter by itself.
"""
