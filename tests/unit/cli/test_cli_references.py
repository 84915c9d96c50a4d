"""Tags, branches, rollback and consumers at the shell."""

from __future__ import annotations

import merganser as mg

from .conftest import Run


def test_a_tag_is_made_listed_and_dropped(run: Run, orders: mg.Table) -> None:
    assert run("tag", "create", "shop.orders", "v1", "--snapshot", "1").out == "tag v1: snapshot 1\n"
    assert run("tag", "create", "shop.orders", "v2", "--retain", "3 d").out == "tag v2: snapshot 2\n"
    heading, first, second = run("tag", "list", "shop.orders").out.splitlines()
    assert heading.split() == ["tag", "snapshot", "committed", "(UTC)", "rows", "stored", "kept", "until", "(UTC)"]
    assert (first.split()[0], second.split()[0]) == ("v1", "v2")
    assert len(second.split()) == len(first.split()) + 2
    assert run("tag", "drop", "shop.orders", "v1").code == 0
    assert [tag.name for tag in orders.tags.list()] == ["v2"]


def test_a_branch_is_made_read_merged_and_dropped(run: Run, orders: mg.Table) -> None:
    orders.tags.create("v1", snapshot=1)
    assert run("branch", "create", "shop.orders", "b", "--tag", "v1").out == "branch b: snapshot 1\n"
    assert run("branch", "create", "shop.orders", "bare").out == "branch bare: empty\n"
    orders.branches.drop("bare")
    assert run("branch", "list", "shop.orders").out.splitlines()[1].split()[:2] == ["b", "1"]
    read = run("read", "shop.orders$branch_b", "--format", "csv", "-c", "id").out.split()
    assert sorted(read) == ['"id"', "1", "2", "3"]
    orders.branch("b").write([{"id": 9, "dt": "a", "note": "nine", "tags": None}])
    assert run("branch", "fast-forward", "shop.orders", "b").out == "snapshot 2 is the newest\n"
    assert sorted(row["id"] for row in orders.read().to_pylist()) == [1, 2, 3, 9]
    assert run("branch", "drop", "shop.orders", "b").code == 0
    assert run("branch", "list", "shop.orders") == (0, "", "'shop.orders' has no branches\n")


def test_rows_files_and_plans_are_shown_as_of_a_tag_or_a_time(run: Run, orders: mg.Table) -> None:
    orders.tags.create("v1", snapshot=1)
    when = orders.snapshots()[0].commit_time.isoformat()
    for chosen in (("--tag", "v1"), ("--timestamp", when), ("--snapshot", "1")):
        assert len(run("read", "shop.orders", "-f", "csv", "-c", "id", *chosen).out.split()) == 4
        assert "snapshot   1\n" in run("explain", "shop.orders", *chosen).out
        assert run("files", "shop.orders", *chosen).out.count("1 file,") == 2
    assert "--snapshot, --tag and --timestamp" in run("read", "shop.orders$files", "--tag", "v1").err
    assert "has no tag 'v2'. Choose from 'v1'." in run("read", "shop.orders", "--tag", "v2").err


def test_a_branch_and_its_system_tables_are_found_behind_a_path(run: Run, orders: mg.Table) -> None:
    orders.tags.create("v1", snapshot=1)
    orders.branches.create("b", tag="v1")
    assert len(run("read", f"{orders.path}$branch_b", "-f", "csv", "-c", "id").out.split()) == 4
    assert len(run("read", f"{orders.path}$branch_b$snapshots", "-f", "csv").out.splitlines()) == 2
    assert run("snapshots", f"{orders.path}$branch_b").out.count("APPEND") == 1
    assert run("read", f"{orders.path}$branch_b$branch_c").code == 1


def test_a_table_is_rolled_back_to_one_place(run: Run, orders: mg.Table) -> None:
    assert run("rollback", "shop.orders").code == 2
    assert run("rollback", "shop.orders", "--snapshot", "1", "--tag", "v1").code == 2
    orders.tags.create("first", snapshot=1)
    orders.tags.create("v2", snapshot=2)
    went = "snapshot 1 is the newest; gone: 1 later snapshot, tag 'v2'\n"
    assert run("rollback", "shop.orders", "--snapshot", "1").out == went
    assert run("rollback", "shop.orders", "--tag", "first").out == "snapshot 1 is the newest\n"
    assert [snapshot.id for snapshot in orders.snapshots()] == [1]


def test_a_consumer_is_set_listed_and_dropped(run: Run, orders: mg.Table) -> None:
    told = "consumer dashboard: reads snapshot 2 next\n"
    assert run("consumer", "set", "shop.orders", "dashboard", "2").out == told
    heading, row = run("consumers", "shop.orders").out.splitlines()
    assert heading.split("  ")[0] == "consumer"
    assert row.split()[:3] == ["dashboard", "2", "1"]
    assert run("consumer", "list", "shop.orders").out.splitlines() == [heading, row]
    beyond = run("consumer", "set", "shop.orders", "dashboard", "9")
    assert (beyond.code, "next_snapshot is 9, and the newest snapshot is 2." in beyond.err) == (1, True)
    assert run("consumer", "drop", "shop.orders", "dashboard").code == 0
    assert run("consumer", "list", "shop.orders") == (0, "", "'shop.orders' has no consumers\n")


def test_messages_advise_commands(run: Run, orders: mg.Table) -> None:
    failed = run("branch", "fast-forward", "shop.orders", "b")
    assert failed.code == 1
    assert "`merganser branch create TABLE b`" in failed.err
    assert "`merganser tag create TABLE v1`" in run("tag", "drop", "shop.orders", "v1").err
    assert "--order-by is for tables without a key" in run("compact", "shop.orders", "--order-by", "id").err
    assert "(--retain-max)" in run("expire", "shop.orders", "--retain-max", "2", "--retain-min", "3").err
    assert run("tag").code == 2


def test_expiry_and_orphans_say_how_many_went(run: Run, orders: mg.Table) -> None:
    assert run("expire", "shop.orders", "--retain-max", "2", "--dry-run").out == "0 snapshots would expire\n"
    kept = ("--retain-max", "1", "--retain-min", "1")
    assert run("expire", "shop.orders", *kept, "--dry-run").out == "1 snapshot would expire: 1\n"
    assert run("expire", "shop.orders", *kept).out == "1 snapshot expired: 1\n"
    assert run("orphans", "shop.orders") == (0, "", "0 orphans\n")


def test_expiry_says_what_stays_and_why(run: Run, orders: mg.Table) -> None:
    orders.write([{"id": 4, "dt": "a", "note": "four", "tags": None}])
    orders.consumers.set("slow", 1)
    held = run("expire", "shop.orders", "--retain-max", "1")
    assert held == (
        0,
        "0 snapshots expired\n",
        "3 snapshots stay; consumer 'slow' still has to read snapshot 1\n",
    )
    orders.consumers.set("slow", 4)
    limited = ("expire", "shop.orders", "--retain-max", "1", "--max-deletes", "1")
    why = "2 snapshots stay; one run removes at most 1: run it again, or raise --max-deletes\n"
    assert run(*limited, "--dry-run") == (0, "1 snapshot would expire: 1\n", why)
    assert run(*limited) == (0, "1 snapshot expired: 1\n", why)
    assert run(*limited[:-2]) == (0, "1 snapshot expired: 2\n", "1 snapshot stays\n")
