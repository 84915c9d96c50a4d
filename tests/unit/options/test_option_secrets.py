"""Options that hold secrets are known by their keys; people see that they are there, not what they are."""

from __future__ import annotations

import pytest

from merganser.errors import InvalidInputError
from merganser.options.option import Options
from merganser.options.registry import ALL_OPTIONS, COLUMN_OPTIONS, normalize_options
from merganser.options.secrets import HIDDEN, check_no_secrets, is_secret, shown


@pytest.mark.parametrize(
    "key",
    [
        "s3.access-key", "s3.secret-key", "s3.session-token", "s3.secret.key", "s3.access.key",
        "fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token", "fs.s3a.encryption.key",
        "fs.s3a.bucket.b.secret.key", "fs.oss.accessKeyId", "fs.oss.accessKeySecret", "fs.oss.securityToken",
        "fs.azure.account.key.acct.blob.core.windows.net", "fs.azure.sas.c.acct.blob.core.windows.net",
        "kafka.sasl.password", "kafka.ssl.key.pem", "kafka.ssl.keystore.key",
        "kafka.sasl.oauthbearer.config", "kafka.ssl.key.password",
        "fs.azure.account.oauth2.client.secret", "fs.cosn.userinfo.secretId", "fs.obs.access.key",
        "az.account-key", "az.sas-token", "gs.service-account-key", "gs.bearer-token", "AWS_SECRET_ACCESS_KEY",
        "kafka.properties.sasl.jaas.config", "kafka.ssl.keystore.password", "jdbc.pwd", "metastore.passwd",
        "my.passphrase", "rest.Authorization", "client.private-key", "dlf.api-key", "dlf.access-key-id",
        "some.credential",
    ],
)  # fmt: skip
def test_a_key_that_names_a_credential_is_a_secret(key):
    assert is_secret(key)
    with pytest.raises(InvalidInputError) as caught:
        check_no_secrets({"bucket": "1", key: "hunter2"}, what="cannot create 'db.t'")
    assert str(caught.value).startswith(f"cannot create 'db.t': option '{key}' holds a secret")
    assert "catalog(warehouse, options=...)" in str(caught.value)
    assert "hunter2" not in repr(caught.value) + repr(caught.value.context)
    assert shown({key: "hunter2"}) == {key: HIDDEN}


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("jdbc:postgresql://u:p@w@h:5432/d", f"jdbc:postgresql://u:{HIDDEN}@h:5432/d"),
        ("http://:p@h/", f"http://:{HIDDEN}@h/"),
        ("s3://bucket/a@b:c", "s3://bucket/a@b:c"),
        ("http://h:80/x?mail=a@b", "http://h:80/x?mail=a@b"),
        ("user@h:p@h", "user@h:p@h"),
    ],
)
def test_the_password_of_an_address_is_hidden(text, seen):
    assert shown({"uri": text}) == {"uri": seen}


@pytest.mark.parametrize(
    "key",
    [
        "s3.endpoint", "s3.region", "fs.oss.endpoint", "owner", "kafka.properties.sasl.mechanism", "class-assigner",
        "fields.token.aggregate-function", "fields.is_assigned.default-value", "file-index.bloom-filter.secret.fpp",
        "global-index.full-text.tokenizer", "metadata.iceberg.storage", "warehouse", "bucket-key", "primary-key",
    ],
)  # fmt: skip
def test_other_keys_are_no_secrets(key):
    assert not is_secret(key)
    check_no_secrets([key], what="cannot")
    assert shown({key: "x"}) == {key: "x"}


def test_no_option_of_ours_is_taken_for_a_secret():
    keys = [key for option in ALL_OPTIONS for key in (option.key, *option.aliases)]
    keys += [option.of("password").key for option in COLUMN_OPTIONS]
    assert [key for key in keys if is_secret(key)] == []


def test_options_are_shown_in_their_order_and_stay_as_they_are():
    options = Options({"a": "1", "x.password": "hunter2", "b": "2"})
    assert list(shown(options).items()) == [("a", "1"), ("x.password", HIDDEN), ("b", "2")]
    assert options["x.password"] == "hunter2"


def test_a_secret_without_a_text_form_is_refused_without_saying_it():
    with pytest.raises(InvalidInputError) as caught:
        normalize_options({"s3.secret-key": b"hunter2"})
    assert "'s3.secret-key'" in str(caught.value)
    assert "hunter2" not in str(caught.value) + repr(caught.value.context)
