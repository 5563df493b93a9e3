"""The tree keeps its rules: layers, names of files, lengths, and what may be said in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.api import read_configuration
from importlinter.application import use_cases

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "amoxi_py"
SOURCES = sorted(PACKAGE.rglob("*.py"))
VAGUE = {"utils", "util", "helpers", "helper", "common", "shared", "base", "manager", "misc"}
LONGEST_FILE = 450


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_the_layers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert len(read_configuration("pyproject.toml")["contracts_options"]) >= 5
    assert use_cases.lint_imports(is_debug_mode=False, cache_dir=None) is True


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_file_is_named_after_what_it_holds(path: Path) -> None:
    words = set(re.split(r"[_.]", path.stem.lower())) | {path.parent.name}
    assert words & VAGUE == set()
    assert re.search(r"_v\d+$", path.stem) is None


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_file_opens_with_what_it_holds_and_stays_readable(path: Path) -> None:
    text = path.read_text("utf-8")
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring is not None
    assert len(docstring) > 20
    assert len(text.splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    long = [
        f"{function.name}: {function.end_lineno - function.lineno}"
        for function in functions(ast.parse(path.read_text("utf-8")))
        if function.end_lineno is not None and function.end_lineno - function.lineno > 80
    ]
    assert long == []


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=name_of)
def test_no_test_is_skipped_or_expected_to_fail(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"skip", "skipif", "xfail", "importorskip"}, f"line {node.lineno}"


def test_the_top_level_is_as_described() -> None:
    files = """
        pyproject.toml README.md dev.py Makefile application.json data/.gitkeep Dockerfile CHANGELOG.md
        CONTRIBUTING.md LICENSE .ci/run docs/architecture.md docs/glossary.md docs/decisions/README.md
    """
    assert [name for name in files.split() if not (ROOT / name).is_file()] == []


def test_every_part_of_the_package_is_on_the_page_of_the_architecture() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    parts = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir() if path.suffix in ("", ".py")}
    parts -= {"__init__", "__main__", "__pycache__", "_app_template"}
    assert [part for part in sorted(parts) if f"| `{part}` |" not in page] == []


def test_the_links_of_the_docs_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "app_template").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
