"""What is installed: the package, its SQL, its license, and the template app as plain files."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.xdist_group("wheel"),  # built once, not by each process of the tests
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=250)
    [built] = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


def test_the_wheel_carries_the_template_as_it_is(wheel: set[str]) -> None:
    template = ROOT / "app_template"
    left_out = {"__pycache__", ".pytest_cache", ".venv"}
    for path in template.rglob("*"):
        name = path.relative_to(template).as_posix()
        if (
            path.is_file()
            and not left_out & set(path.parts)
            and (not name.startswith("data/") or name == "data/.gitkeep")
        ):
            assert f"amoxi_py/_app_template/{name}" in wheel


def test_the_wheel_carries_code_sql_and_license_and_nothing_of_the_checkout(wheel: set[str]) -> None:
    assert {"amoxi_py/errors.py", "amoxi_py/py.typed", "amoxi_py/__main__.py"} <= wheel
    assert any(name.startswith("amoxi_py/stores/") and name.endswith(".sql") for name in wheel)
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in wheel)
    assert {name.split("/")[0] for name in wheel} == {"amoxi_py", "amoxi_py-0.1.0.dist-info"}
    assert not any("__pycache__" in name or name.endswith(".pyc") for name in wheel)


def test_the_wheel_carries_the_chat_page_with_its_libraries_and_their_licenses(wheel: set[str]) -> None:
    page = ROOT / "amoxi_py/surfaces/http/chat_page"
    files = {path.relative_to(ROOT).as_posix() for path in page.rglob("*") if path.is_file()}
    assert {f"amoxi_py/surfaces/http/chat_page/{name}" for name in ("client.js", "vendor/dompurify.LICENSE")} <= files
    assert files <= wheel
