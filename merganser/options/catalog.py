"""Options of a catalog, and of a table that is opened by its path: how the store is reached, and what is remembered.

They belong to the process that reads and writes, and are stored nowhere. The table is for people and for the search
for misspelt keys; `storage.object_connection` says what a store does with its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from merganser.options.option import BOOLEAN, BYTES, DURATION, TEXT, Option, TextForm, choice

CATALOG: Final = "catalog option"
CACHE_MEMORY: Final = Option(
    "cache.manifest.max-memory",
    BYTES,
    256 << 20,
    "Most memory for what manifests hold, of each catalog or table.",
    noun=CATALOG,
)
LOCAL_SYNC: Final = Option(
    "local.sync",
    BOOLEAN,
    True,
    "Local files: writes wait for the disk. false is for tests that pull no plugs.",
    noun=CATALOG,
)

LISTENERS: Final = Option[str | None](
    "catalog.listeners",
    TEXT,
    None,
    "Listeners that are told when a table is created or dropped, as module:Class, with commas between.",
    noun=CATALOG,
)

METASTORE: Final = Option[str | None](
    "metastore",
    choice("filesystem", "jdbc", "rest"),
    None,
    "What knows which tables there are. Default: jdbc for a text that begins with 'jdbc:', rest for one that begins "
    "with 'http:' or 'https:', else filesystem.",
    noun=CATALOG,
)
URI: Final = Option[str | None](
    "uri", TEXT, None, "Address of the metastore, if the argument is the warehouse.", noun=CATALOG
)
WAREHOUSE: Final = Option[str | None](
    "warehouse",
    TEXT,
    None,
    "If the argument is the address of a metastore: the directory of the tables, or what a REST server calls them.",
    noun=CATALOG,
)
TOKEN_PROVIDER: Final = Option[str | None](
    "token.provider",
    TEXT,
    None,
    "Who says to a REST server who asks: bear, which sends 'token'; dlf, which signs each request with the keys of "
    "'dlf.'; module:function, or an entry point, whose result is the headers of a request.",
    noun=CATALOG,
)
TOKEN: Final = Option[str | None]("token", TEXT, None, "Token for a REST server. Needs 'token.provider'.", noun=CATALOG)
DLF_REGION: Final = Option[str | None](
    "dlf.region",
    TEXT,
    None,
    "Region that a signature names. Default: what the address of the server says.",
    noun=CATALOG,
)
DLF_KEY_ID: Final = Option[str | None]("dlf.access-key-id", TEXT, None, "Key that signs requests.", noun=CATALOG)
DLF_KEY_SECRET: Final = Option[str | None]("dlf.access-key-secret", TEXT, None, "Its secret.", noun=CATALOG)
DLF_SECURITY_TOKEN: Final = Option[str | None](
    "dlf.security-token", TEXT, None, "Token of a session, with keys that expire.", noun=CATALOG
)
DLF_TOKEN_PATH: Final = Option[str | None](
    "dlf.token-path",
    TEXT,
    None,
    "File with the keys that sign requests, as JSON. It is read again an hour before they expire.",
    noun=CATALOG,
)
DLF_TOKEN_LOADER: Final = Option[str | None](
    "dlf.token-loader",
    choice("local-file", "ecs"),
    None,
    "Where keys come from: local-file, 'dlf.token-path'; ecs, the service that says which role the machine has.",
    noun=CATALOG,
)
DLF_ECS_URL: Final = Option(
    "dlf.token-ecs-metadata-url",
    TEXT,
    "http://100.100.100.200/latest/meta-data/Ram/security-credentials/",
    "Address of that service.",
    noun=CATALOG,
)
DLF_ECS_ROLE: Final = Option[str | None](
    "dlf.token-ecs-role-name", TEXT, None, "Role of the machine. Default: what that service says.", noun=CATALOG
)
DLF_ALGORITHM: Final = Option[str | None](
    "dlf.signing-algorithm",
    choice("default", "openapi"),
    None,
    "How requests are signed. Default: openapi if the address of the server has 'dlfnext', else default.",
    noun=CATALOG,
)
DATA_TOKEN: Final = Option(
    "data-token.enabled",
    BOOLEAN,
    False,
    "Ask a REST server for keys of the store, by table. The server says it.",
    noun=CATALOG,
)
TLS_CA: Final = Option[str | None](
    "tls.ca-file",
    TEXT,
    None,
    "File with the certificates, as PEM, that a REST server has to prove itself by. Default: REQUESTS_CA_BUNDLE, or "
    "those of public authorities.",
    noun=CATALOG,
)
PREFIX: Final = Option[str | None](
    "prefix", TEXT, None, "What paths of a REST server begin with. Default: what the server says.", noun=CATALOG
)
CATALOG_KEY: Final = Option(
    "catalog-key", TEXT, "jdbc", "Which catalog of an SQL database it is: several can share one.", noun=CATALOG
)
JDBC_USER: Final = Option[str | None]("jdbc.user", TEXT, None, "User of the SQL database.", noun=CATALOG)
JDBC_PASSWORD: Final = Option[str | None](
    "jdbc.password",
    TEXT,
    None,
    "Password of the SQL database. Other options behind 'jdbc.' go to its client as they are.",
    noun=CATALOG,
)
LOCK_ENABLED: Final = Option[bool | None](
    "lock.enabled",
    BOOLEAN,
    None,
    "Hold a lock of the catalog while a commit is made. Default: true if tables lie in an object store.",
    noun=CATALOG,
)
LOCK_TIMEOUT: Final = Option(
    "lock-acquire-timeout", DURATION, timedelta(minutes=8), "Longest wait for a lock of the catalog.", noun=CATALOG
)

_ENDPOINT: Final = TextForm("an address such as 'https://host:9000'", str)
_ADDRESS: Final = TextForm("an address such as 'namenode:9870', or several", str)
_CREATE: Final = choice("check", "trust")
_CREATE_DOC: Final = (
    "check: test once whether a store at a custom endpoint supports 'create only if absent'. trust: assume it."
)
_HTTP_DOC: Final = "Allow requests without encryption. Default: whether the endpoint begins with 'http:'."

_STORES: Final[tuple[tuple[str, TextForm[Any], Any, str], ...]] = (
    ("s3.endpoint", _ENDPOINT, None, "Address of the store. Default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS's."),
    ("s3.region", TEXT, None, "Region of the bucket."),
    ("s3.access-key", TEXT, None, "Access key; goes with 's3.secret-key'. Default: AWS_*, or the role of the machine."),
    ("s3.secret-key", TEXT, None, "Secret key."),
    ("s3.session-token", TEXT, None, "Token of a session, with keys that expire."),
    ("s3.path-style-access", BOOLEAN, True, "The bucket is in the path of requests. false: in the name of the host."),
    ("s3.allow-http", BOOLEAN, None, _HTTP_DOC),
    ("s3.anonymous", BOOLEAN, False, "Send requests without a signature."),
    ("s3.conditional-create", _CREATE, "check", _CREATE_DOC),
    ("oss.endpoint", _ENDPOINT, None, "Address of the store, such as 'https://oss-eu-central-1.aliyuncs.com'."),
    ("oss.region", TEXT, None, "Region of the bucket."),
    ("oss.access-key", TEXT, None, "Access key; goes with 'oss.secret-key'."),
    ("oss.secret-key", TEXT, None, "Secret key."),
    ("oss.session-token", TEXT, None, "Token of a session, with keys that expire."),
    ("oss.path-style-access", BOOLEAN, False, "The bucket is in the path of requests. false: in the name of the host."),
    ("oss.allow-http", BOOLEAN, None, _HTTP_DOC),
    ("oss.anonymous", BOOLEAN, False, "Send requests without a signature."),
    ("oss.conditional-create", _CREATE, "check", _CREATE_DOC),
    ("gs.endpoint", _ENDPOINT, None, "Address of the store. Default: GOOGLE_BASE_URL, Google's."),
    ("gs.service-account", TEXT, None, "File with the key of a service account. Default: GOOGLE_*, or the role."),
    ("gs.service-account-key", TEXT, None, "The key of a service account itself, as JSON."),
    ("gs.bearer-token", TEXT, None, "Token to send unchanged."),
    ("gs.allow-http", BOOLEAN, None, _HTTP_DOC),
    ("gs.anonymous", BOOLEAN, False, "Send requests without a signature."),
    ("gs.conditional-create", _CREATE, "check", _CREATE_DOC),
    ("az.endpoint", _ENDPOINT, None, "Address of the store. Default: AZURE_ENDPOINT, AZURE_STORAGE_ENDPOINT, Azure's."),
    ("az.account-name", TEXT, None, "Account of the container. Default: AZURE_*."),
    ("az.account-key", TEXT, None, "Key of the account."),
    ("az.sas-token", TEXT, None, "Shared access signature, instead of a key."),
    ("az.allow-http", BOOLEAN, None, _HTTP_DOC),
    ("az.anonymous", BOOLEAN, False, "Send requests without a signature."),
    ("az.conditional-create", _CREATE, "check", _CREATE_DOC),
    ("hdfs.webhdfs.address", _ADDRESS, None,
     "Address of the namenode's HTTP server; of several namenodes all, with commas between. 'https://' goes before one "
     "that encrypts. Default: the host of the URL, and port 9870."),
    ("hdfs.user", TEXT, None, "Name of the user. Default: HADOOP_USER_NAME, or the user of the process."),
    ("hdfs.kerberos", BOOLEAN, False, "Log in with a ticket of Kerberos. Needs requests-gssapi or requests-kerberos."),
    ("hdfs.delegation-token", TEXT, None, "Delegation token, instead of a user or a ticket."),
)  # fmt: skip
"""Key, form of the text, default, meaning."""
_ALIASES: Final = {
    "s3.path-style-access": ("s3.path.style.access",),
    "oss.endpoint": ("fs.oss.endpoint",),
    "oss.access-key": ("fs.oss.accessKeyId",),
    "oss.secret-key": ("fs.oss.accessKeySecret",),
    "oss.session-token": ("fs.oss.securityToken",),
}
"""Names that other engines, or older versions, have for them."""

OPTIONS: Final[tuple[Option[Any], ...]] = (
    LOCAL_SYNC,
    CACHE_MEMORY,
    LISTENERS,
    METASTORE,
    URI,
    WAREHOUSE,
    TOKEN_PROVIDER,
    TOKEN,
    DLF_REGION,
    DLF_KEY_ID,
    DLF_KEY_SECRET,
    DLF_SECURITY_TOKEN,
    DLF_TOKEN_PATH,
    DLF_TOKEN_LOADER,
    DLF_ECS_URL,
    DLF_ECS_ROLE,
    DLF_ALGORITHM,
    DATA_TOKEN,
    TLS_CA,
    PREFIX,
    CATALOG_KEY,
    JDBC_USER,
    JDBC_PASSWORD,
    LOCK_ENABLED,
    LOCK_TIMEOUT,
    *(Option[Any](key, form, default, doc, _ALIASES.get(key, ()), noun=CATALOG) for key, form, default, doc in _STORES),
)
TABLE_DEFAULTS: Final = ("table-storage.", "table-default.")
"""What a key begins with that gives new tables the option behind it; the later one wins."""

CLIENT: Final = "kafka."
"""What a key begins with that is for the client of the log; it holds for each table that the catalog opens."""

OWN_FAMILIES: Final = frozenset({"s3", "gs", "az", "oss", "hdfs", "local", "cache", "catalog", "jdbc"})
"""First words of these keys. A key that begins so is meant for us."""
FAMILIES: Final = OWN_FAMILIES | {"fs"}
"""First words of all keys that say how a store is reached, here or in other engines."""


def table_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a catalog gives its new tables: those of its keys that begin with `TABLE_DEFAULTS`."""
    return {
        key.removeprefix(prefix): value
        for prefix in TABLE_DEFAULTS
        for key, value in given.items()
        if key.startswith(prefix) and key != prefix
    }
