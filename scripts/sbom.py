"""Writes which packages a wheel brings, as a software bill of materials: CycloneDX 1.6, JSON.

`python scripts/sbom.py WHEEL OUTPUT`. pip installs the wheel with its extra `all` into an environment that is removed
afterwards, so the versions are those that a user gets now on this platform and this Python. cyclonedx-bom reads them,
and checks the result against the schema of CycloneDX.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path


def main(wheel: str, output: str) -> None:
    """Install, and write."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        python = str(Path(folder, "bin", "python"))
        pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", f"{wheel}[all]"], check=True)
        write = [
            sys.executable,
            "-m",
            "cyclonedx_py",
            "environment",
            "--spec-version",
            "1.6",
            "--output-format",
            "JSON",
        ]
        options = ["--mc-type", "library", "--output-reproducible", "--validate", "--output-file", output]
        subprocess.run([*write, *options, python], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
