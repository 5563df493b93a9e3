"""Fetch the libraries of the chat page, and axe-core for its tests, each at an exact version.

`python tools/vendor_page.py` needs npm. Each archive must have the digest that is written here. To take a newer one,
change it here with the value of `npm view NAME@VERSION dist.integrity`, run this, and run the tests of the page.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "amoxi_py/surfaces/http/chat_page/vendor"
TESTS = ROOT / "tests/template/vendor"


@dataclass(frozen=True, kw_only=True)
class Library:
    """What is taken of one package of npm: `files` maps names in the archive to ours."""

    name: str
    version: str
    integrity: str
    files: dict[str, str]
    licence: str = "LICENSE"
    folder: Path = PAGE
    replace: dict[str, str] = field(default_factory=dict)


LIBRARIES = (
    Library(
        name="preact",
        version="11.2.0",
        integrity="sha512-/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        files={"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "preact-hooks.js"},
        replace={'from"preact"': 'from"./preact.js"', "from'preact'": "from'./preact.js'"},
    ),
    Library(
        name="htm",
        version="3.1.1",
        integrity="sha512-983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        files={"dist/htm.module.js": "htm.js"},
    ),
    Library(
        name="marked",
        version="18.2.1",
        integrity="sha512-ii4bxCTCqqwpT86XZWgJNs+ZnAIZksmLGYMViWA7PDIXYIeNo1x6cDdX3JOip9NM/cI6p8z57FxliACboTruMA==",
        files={"lib/marked.esm.js": "marked.js"},
    ),
    Library(
        name="dompurify",
        version="3.5.0",
        integrity="sha512-LYC0ZkE8P1V42JsRYTwMdme/2ET8SpOc5AA2eOFjP/IadvRd2fwiT4TVz5vkfy0XUx12aS2UaRkTnfVPNOv9vw==",
        files={"dist/purify.es.mjs": "dompurify.js"},
    ),
    Library(
        name="axe-core",
        version="4.14.1",
        integrity="sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
        files={"axe.min.js": "axe.min.js"},
        folder=TESTS,
    ),
)


def main() -> int:
    """Write all files anew; return 1 when an archive is not what it must be."""
    for folder in {library.folder for library in LIBRARIES}:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
    versions: dict[Path, list[str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for library in LIBRARIES:
            archive = _fetch(library, Path(scratch))
            if _integrity(archive) != library.integrity:
                found = f"its digest is {_integrity(archive)!r}, not the one that is written here"
                sys.stderr.write(f"{library.name}@{library.version}: {found}\n")
                return 1
            _take(library, archive)
            versions.setdefault(library.folder, []).append(f"{library.name} {library.version} {library.integrity}\n")
    for folder, lines in versions.items():
        (folder / "VERSIONS").write_text("".join(lines), "utf-8")
    return 0


def _fetch(library: Library, scratch: Path) -> Path:
    command = ["npm", "pack", "--silent", "--pack-destination", str(scratch), f"{library.name}@{library.version}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=scratch)
    return scratch / done.stdout.strip().splitlines()[-1]


def _integrity(archive: Path) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()


def _take(library: Library, archive: Path) -> None:
    wanted = {**library.files, library.licence: f"{library.name}.LICENSE"}
    with tarfile.open(archive) as files:
        for name, ours in wanted.items():
            member = files.extractfile(f"package/{name}")
            assert member is not None, f"{name} is a file of {library.name}"
            text = member.read().decode("utf-8")
            lines = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL=")]
            text = "\n".join(lines) + "\n"
            for old, new in library.replace.items():
                text = text.replace(old, new)
            (library.folder / ours).write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
