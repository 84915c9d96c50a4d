"""Paimon's released Java and our driver of it: downloaded and compiled once, kept in `.witness` of the checkout.

Jars come from Maven Central over HTTPS, or from the mirror in MERGANSER_MAVEN_REPOSITORY, and are used only with the
checksums below. A newer release than the one that is pinned is tried with `--paimon VERSION` or `--paimon newest`;
what the repository then says about its checksum is believed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import urllib.request
import uuid
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

PAIMON_VERSION = "1.4.2"
"""The newest `paimon-bundle` on Maven Central when this was last checked."""
HADOOP_VERSION = "3.4.1"
_SLF4J_VERSION = "1.7.36"
_DRIVERS = (
    ("org/xerial", "sqlite-jdbc", "3.46.0.0"),
    ("org/postgresql", "postgresql", "42.7.3"),
    ("com/mysql", "mysql-connector-j", "8.4.0"),
)
"""Drivers for catalogs in SQL databases."""
_SHA256 = {
    "hadoop-client-api-3.4.1.jar": "a964d4daa054c9615bbafb4553efbb140fa7fb9ac6f358a24393f183a5703438",
    "hadoop-client-runtime-3.4.1.jar": "f6a800a159f918670db533606d33560d6c13b7e13f14eda493280ae33b9eeb2f",
    "paimon-bundle-1.4.2.jar": "85a1587409e6c044b46eb20370a46ecd288576b8bc7aadf6b0432a4f2370f5d1",
    "slf4j-api-1.7.36.jar": "d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0",
    "slf4j-nop-1.7.36.jar": "c214958b07816cb4412b30c7bdbd4308ffdc6ba2a83767b8f3a9229cbd9274d6",
}
_REPOSITORY = os.environ.get("MERGANSER_MAVEN_REPOSITORY", "https://repo1.maven.org/maven2").rstrip("/")
_SOURCES = Path(__file__).resolve().parent / "java"
_HOME = Path(__file__).resolve().parents[2] / ".witness"
_TIMEOUT_SECONDS = 300


class WitnessUnavailableError(RuntimeError):
    """Java or a jar is missing; the text says which, and what to do."""


def newest_paimon() -> str:
    """The newest release of `paimon-bundle` that the repository names."""
    metadata = ElementTree.fromstring(_fetched("org/apache/paimon/paimon-bundle/maven-metadata.xml"))
    release = metadata.findtext("versioning/release")
    assert release is not None
    return release


def class_path(paimon: str = PAIMON_VERSION) -> str:
    """The class path of the driver; downloads and compiles what is not there yet.

    Raises:
        WitnessUnavailableError: no JDK, no network, or a jar that is not the one that was pinned.
    """
    if shutil.which("javac") is None:
        raise WitnessUnavailableError(
            "cannot compile the driver: there is no javac on the PATH. Install a JDK, 17 or newer."
        )
    jars = [
        jar("org/apache/paimon", "paimon-bundle", paimon),
        jar("org/apache/hadoop", "hadoop-client-api", HADOOP_VERSION),
        jar("org/apache/hadoop", "hadoop-client-runtime", HADOOP_VERSION),
        *(jar(group, name, version) for group, name, version in _DRIVERS),
        jar("org/slf4j", "slf4j-api", _SLF4J_VERSION),
        jar("org/slf4j", "slf4j-nop", _SLF4J_VERSION),
    ]
    return os.pathsep.join(map(str, [_compiled(jars), *jars]))


def jar(group: str, artifact: str, version: str, sha256: str | None = None) -> Path:
    """One jar, downloaded by the first call.

    Args:
        group: its group, with slashes.
        artifact: its name.
        version: its release.
        sha256: what its bytes must have; None for the one pinned here, else what the repository says is believed.

    Raises:
        WitnessUnavailableError: no network, or another checksum.
    """
    path = _HOME / f"{artifact}-{version}.jar"
    if not path.exists():
        address = f"{group}/{artifact}/{version}/{path.name}"
        content = _fetched(address)
        pinned = sha256 or _SHA256.get(path.name)
        if pinned is None:
            found, wanted = hashlib.sha1(content).hexdigest(), _fetched(f"{address}.sha1").decode().split()[0]
        else:
            found, wanted = hashlib.sha256(content).hexdigest(), pinned
        if found != wanted:
            raise WitnessUnavailableError(f"{_REPOSITORY}/{address} has the checksum {found}, expected {wanted}.")
        _HOME.mkdir(exist_ok=True)
        part = path.with_suffix(f".{uuid.uuid4().hex}")
        part.write_bytes(content)
        part.rename(path)
    return path


def _fetched(address: str) -> bytes:
    try:
        with urllib.request.urlopen(f"{_REPOSITORY}/{address}", timeout=_TIMEOUT_SECONDS) as reply:
            content: bytes = reply.read()
            return content
    except OSError as error:
        raise WitnessUnavailableError(
            f"cannot download {_REPOSITORY}/{address}: {error}. MERGANSER_MAVEN_REPOSITORY names another repository; "
            f"jars that lie in {_HOME} are not downloaded."
        ) from error


def _compiled(jars: Iterable[Path]) -> Path:
    """Our driver's classes, in a directory named after what they were made of."""
    sources = sorted(_SOURCES.glob("*.java"))
    recipe = hashlib.sha256(b"".join([*(str(jar).encode() for jar in jars), *(s.read_bytes() for s in sources)]))
    classes = _HOME / f"classes-{recipe.hexdigest()[:12]}"
    if not classes.exists():
        part = _HOME / f"part-{uuid.uuid4().hex}"
        command = ["javac", "-proc:none", "-cp", os.pathsep.join(map(str, jars)), "-d", str(part), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise WitnessUnavailableError(f"cannot compile the driver:\n{done.stderr}")
        try:
            part.rename(classes)
        except OSError:  # another process was first
            shutil.rmtree(part)
    return classes
