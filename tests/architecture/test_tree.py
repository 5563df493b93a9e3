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


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """Each source of the package, read once."""
    assert len(SOURCES) > 100
    return {path: ast.parse(path.read_text("utf-8")) for path in SOURCES}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_the_layers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert len(read_configuration("pyproject.toml")["contracts_options"]) >= 5
    assert use_cases.lint_imports(is_debug_mode=False, cache_dir=None) is True


def test_files_are_named_after_what_they_hold() -> None:
    vague = []
    for path in SOURCES:
        words = set(re.split(r"[_.]", path.stem.lower())) | {path.parent.name}
        if words & VAGUE or re.search(r"_v\d+$", path.stem):
            vague.append(name_of(path))
    assert vague == []


def test_files_open_with_what_they_hold_and_stay_readable(trees: dict[Path, ast.Module]) -> None:
    problems = []
    for path in SOURCES:
        if len(ast.get_docstring(trees[path]) or "") <= 20:
            problems.append(f"{name_of(path)} does not say what it holds")
        if (length := len(path.read_text("utf-8").splitlines())) > LONGEST_FILE:
            problems.append(f"{name_of(path)} has {length} lines")
    assert problems == []


def test_functions_fit_on_a_screen(trees: dict[Path, ast.Module]) -> None:
    long = [
        f"{name_of(path)}: {function.name}: {function.end_lineno - function.lineno}"
        for path in SOURCES
        for function in functions(trees[path])
        if function.end_lineno is not None and function.end_lineno - function.lineno > 80
    ]
    assert long == []


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    words = {"skip", "skipif", "xfail", "importorskip"}
    texts = {path: path.read_text("utf-8") for path in sorted((ROOT / "tests").rglob("*.py"))}
    assert len(texts) > 100
    found = [
        f"{name_of(path)}, line {node.lineno}: {node.attr}"
        for path, text in texts.items()
        if any(word in text for word in words)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in words
    ]
    assert found == []


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
