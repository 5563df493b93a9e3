"""The docs as a site: built without a warning, complete, and nothing in them is loaded from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from amoxi_py import testing

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.xdist_group("site"),  # built once, not by each process of the tests
    pytest.mark.timeout(300),
]
LOADED = re.compile(
    r"<(?:script|img|iframe|source)[^>]+?src=\"(https?:)?//|<link[^>]+?href=\"(https?:)?//|url\(['\"]?https?:"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_nothing_of_the_site_is_loaded_from_elsewhere(site: Path) -> None:
    found = {path.name: match[0] for path in site.rglob("*.html") if (match := LOADED.search(path.read_text("utf-8")))}
    found |= {path.name: match[0] for path in site.rglob("*.css") if (match := LOADED.search(path.read_text("utf-8")))}
    assert found == {}


def test_the_reference_has_every_public_name(site: Path) -> None:
    text = "".join(path.read_text("utf-8") for path in (site / "reference").glob("*.html"))
    names = [f"amoxi_py.{name}" for name in (ROOT / "tests" / "public_api.txt").read_text("utf-8").split()]
    names += [f"amoxi_py.testing.{name}" for name in testing.__all__]
    assert [name for name in names if f'id="{name}"' not in text] == []


def test_every_page_of_the_docs_is_in_the_site(site: Path) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page not in navigation] == []
    assert all((site / page).with_suffix(".html").exists() for page in pages if not page.endswith("README.md"))
