"""Catalogs with names, and where their secrets are."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import merganser as mg
from merganser.catalogs.profiles import profile_of, profiles
from merganser.cli.main import main
from merganser.errors import InvalidInputError, UnsupportedError


def _run(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "catalogs.toml"
    monkeypatch.setenv("MERGANSER_CATALOGS", str(path))
    return path


def test_a_name_opens_its_catalog(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(f'''
[prod]
warehouse = "{tmp_path}/prod"
local.sync = false
table-default.bucket = 2

[other]
warehouse = "{tmp_path}/other"
''')
    prod = mg.catalog("prod")
    assert prod.warehouse == f"{tmp_path}/prod"
    prod.create_database("shop")
    made = prod.create_table("shop.orders", {"id": "INT"}, primary_key=["id"])
    assert made.options["bucket"] == "2"
    more = mg.catalog("prod", options={"table-default.bucket": "3"})
    assert more.create_table("shop.more", {"id": "INT"}, primary_key=["id"]).options["bucket"] == "3"
    assert _run(["tables", "shop", "--catalog", "prod"]) == 0
    assert capsys.readouterr().out.split() == ["more", "orders"]
    assert _run(["catalogs"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()][1:] == [
        ["prod", f"{tmp_path}/prod", f"{tmp_path}/prod"],
        ["other", f"{tmp_path}/other", f"{tmp_path}/other"],
    ]
    assert mg.catalog("./prod").warehouse == str(Path("prod").absolute())


def test_secrets_come_from_the_environment_and_the_keyring(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("""
[prod]
uri = "jdbc:postgresql://127.0.0.1:1/x"
warehouse = "w"
jdbc.password = "${PROD_PASSWORD}"
s3.secret-key = "keyring:prod"
""")
    found = profile_of("prod")
    assert found is not None
    monkeypatch.setitem(sys.modules, "keyring", None)
    monkeypatch.setenv("PROD_PASSWORD", "hidden")
    with pytest.raises(UnsupportedError, match="package keyring is missing"):
        found.opened()
    kept: dict[tuple[str, str], str] = {}
    ring = SimpleNamespace(
        get_password=lambda entry, key: kept.get((entry, key)),
        set_password=lambda entry, key, text: kept.update({(entry, key): text}),
    )
    monkeypatch.setitem(sys.modules, "keyring", ring)
    with pytest.raises(InvalidInputError, match="merganser login prod"):
        found.opened()
    monkeypatch.setattr("typer.prompt", lambda text, hide_input: "key of " + text)
    assert _run(["login", "prod"]) == 0
    assert found.opened() == {"warehouse": "w", "jdbc.password": "hidden", "s3.secret-key": "key of s3.secret-key"}
    monkeypatch.delenv("PROD_PASSWORD")
    with pytest.raises(InvalidInputError, match="PROD_PASSWORD"):
        found.opened()
    assert _run(["catalogs"]) == 0
    assert "hidden" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[prod", "cannot read the catalogs"),
        ("prod = 3", r"\[prod\]"),
        ("[prod]\nx = 1", "neither"),
        ('[prod]\nwarehouse = "w"\ns3.secret-key = "abc"', "secret in clear"),
        ('[prod]\nwarehouse = "w"\njdbc.password = "x${A}"', "secret in clear"),
        ('[prod]\nuri = "jdbc:postgresql://u:hidden@h/x"\nwarehouse = "w"', "'uri' holds a password in clear"),
        ('[prod]\nuri = "jdbc:mysql://h/x?password=hidden"\nwarehouse = "w"', "'uri' holds a password in clear"),
        ('[prod]\nwarehouse = "s3://key:hidden@b/x"', "'warehouse' holds a password in clear"),
        ('[prod]\nwarehouse = ["w"]', "Give text"),
    ],
)
def test_a_file_that_says_no_catalog_is_refused(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(InvalidInputError, match=said) as caught:
        mg.catalog("prod")
    assert "hidden" not in str(caught.value)


def test_an_address_may_name_a_variable(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("""
[prod]
uri = "jdbc:postgresql://u:${PROD_PASSWORD}@127.0.0.1:1/x?sslmode=disable"
warehouse = "hdfs://nn:8020/a@b:c"
[odd]
warehouse = "s3://key:${PROD_PASSWORD}@b/x"
""")
    monkeypatch.setenv("PROD_PASSWORD", "hid%40den")
    assert profile_of("prod") is not None
    assert _run(["catalogs"]) == 0
    shown = capsys.readouterr().out
    assert "s3://b/x" in shown
    assert "PROD_PASSWORD" not in shown


def test_without_a_file_there_are_no_names(file: Path) -> None:
    assert profiles() == {}
    assert mg.catalog("prod").warehouse == str(Path("prod").absolute())


def test_a_fault_of_a_profile_is_its_own(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = '[bad]\nwarehouse = "x"\ntoken = "hidden"\n["a b"]\nwarehouse = "w"\n[5]\nwarehouse = 5\n'
    file.write_text(f'{bad}[good]\nwarehouse = "{tmp_path}/w"\n')
    assert mg.catalog("good").warehouse == f"{tmp_path}/w"
    for name, said in {"bad": "'token' holds a secret in clear", "5": "'warehouse' is 5. Give text."}.items():
        with pytest.raises(InvalidInputError, match=said):
            mg.catalog(name)
    assert _run(["catalogs"]) == 0
    shown = capsys.readouterr().out
    assert f"{tmp_path}/w" in shown
    assert "holds a secret" in shown
    assert "a name has letters" in shown
    assert "hidden" not in shown


def test_a_text_that_is_almost_a_name_is_refused(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file.write_text('[prod]\nwarehouse = "w"\n')
    with pytest.raises(InvalidInputError, match=r"there is no catalog 'prdo' .* Did you mean 'prod'\? Write './prdo'"):
        mg.catalog("prdo")
    assert _run(["databases", "--catalog", "prdo"]) != 0
    assert mg.catalog("./prdo").warehouse == str(tmp_path / "prdo")
    assert mg.catalog("warehouse").warehouse == str(tmp_path / "warehouse")
    (tmp_path / "prdo").mkdir()
    assert mg.catalog("prdo").warehouse == str(tmp_path / "prdo")


def test_an_address_of_sqlite_names_a_file(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    with pytest.raises(InvalidInputError, match="Write jdbc:sqlite:/path"):
        mg.catalog("jdbc:sqlite:", options={"warehouse": str(tmp_path)})
