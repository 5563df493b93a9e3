"""The example apps: each one's tests pass in a copy of its folder, and its README starts what it says it starts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from processes import clean_environment

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.parent for path in (ROOT / "docs" / "examples").glob("*/README.md"))
SPARED = [option for plugin in ("schemathesis", "hypothesispytest", "xdist") for option in ("-p", f"no:{plugin}")]
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".pytest_cache", "data", ".env")


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Path], Path]:
    def copy(example: Path) -> Path:
        return Path(shutil.copytree(example, tmp_path / example.name, ignore=LEFT_OUT))

    return copy


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_tests_of_an_example_pass(example: Path, copy_of: Callable[[Path], Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SPARED, "-W", "error"],
        cwd=copy_of(example),
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode("utf-8", "replace")


@pytest.mark.crash
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_readme_of_an_example_starts_it(
    example: Path, copy_of: Callable[[Path], Path], try_readme: Callable[[Path], str]
) -> None:
    assert try_readme(copy_of(example) / "README.md").strip()


def test_every_example_is_in_the_table() -> None:
    table = (ROOT / "docs" / "examples" / "README.md").read_text("utf-8")
    assert [example.name for example in EXAMPLES if f"({example.name}/README.md)" not in table] == []
