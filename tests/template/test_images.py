"""The Dockerfiles of the checkout and of the template, carried out line by line without Docker and asked over HTTP."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from amoxi_py.config.sections import ServerSection

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tools" / "image_steps.py"
START = "FROM python:3.12-slim\nWORKDIR /srv\nRUN useradd --create-home --uid 10001 app && mkdir /data\n"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    import image_steps

    return image_steps  # type: ignore[no-any-return]  # found on the path of this test alone


@pytest.fixture
def build(steps: ModuleType, tmp_path: Path) -> Callable[[str], object]:
    """Carry out a Dockerfile up to its end, without packages."""

    def carry_out(text: str) -> object:
        (tmp_path / "source").mkdir()
        (tmp_path / "source" / "Dockerfile").write_text(text, "utf-8")
        image = steps.Image(source=tmp_path / "source", root=tmp_path / "image", linked=True)
        (tmp_path / "image").mkdir()
        steps.build(image)
        return image

    return carry_out


@pytest.mark.crash
@pytest.mark.timeout(300)  # ten seconds on a quiet machine
@pytest.mark.parametrize("folder", [".", "app_template"])
def test_an_image_gets_ready_answers_and_stops_as_a_user_who_may_write_to_its_volume_alone(folder: str) -> None:
    command = [sys.executable, str(PROGRAM), "--linked", folder]
    ran = subprocess.run(command, text=True, capture_output=True, timeout=280, check=False)
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for step in ("RUN pip install", "USER 10001", "VOLUME /data", "says that it is ready", "was answered", "SIGTERM"):
        assert step in ran.stdout


@pytest.mark.parametrize("name", ["Dockerfile", "app_template/Dockerfile"])
def test_an_image_is_for_production_and_for_everybody_outside(name: str, steps: ModuleType) -> None:
    lines = {line.name: line.rest for line in steps.read_dockerfile((ROOT / name).read_text("utf-8"))}
    assert {"AMOXI_PROFILE=production", "SERVER_HOST=0.0.0.0"} <= {*lines["ENV"].split()}
    assert lines["EXPOSE"] == str(ServerSection().port)
    assert lines["CMD"] == '["amoxi", "start"]'
    assert "/health/ready" in lines["HEALTHCHECK"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ADD . .", "not understood"),
        ("FROM python:3.12-slim AS again", "one FROM at the beginning"),
        ("RUN rm -rf /", "'rm -rf /' is not understood"),
        ("RUN mkdir ../elsewhere", "leads up"),
        ("RUN mkdir /srv/$NAME", "a shell makes of"),
        ("RUN mkdir /srv/one; mkdir /srv/two", "a shell makes of"),
        ("USER 10001\nRUN mkdir /srv/one", "before USER"),
        ("RUN mkdir /srv/one \\", "goes on after its end"),
        ("COPY Dockerfile copy", "the file's new name"),
        ("EXPOSE 8080/tcp", "as a number"),
        ("COPY nothing .", "'nothing' is not there"),
        ("USER app", "by the number that useradd gave it"),
        ("USER 0", "by the number that useradd gave it"),
        ("ENV SERVER_SECRET=0123456789abcdef", "no secret"),
        ("ENV LD_LIBRARY_PATH=/srv:$LD_LIBRARY_PATH", "write NAME=VALUE"),
        ("VOLUME /nowhere", "mkdir and chown it before"),
        ("CMD amoxi start", "would not pass SIGTERM on"),
        ("HEALTHCHECK CMD curl localhost", "would not pass SIGTERM on"),
        ("USER 10001", "has no CMD"),
        ('CMD ["amoxi"]\nHEALTHCHECK CMD ["true"]\nVOLUME /data', "has no USER"),
    ],
)
def test_what_docker_would_do_otherwise_or_a_deploy_must_not_is_refused(
    build: Callable[[str], object], steps: ModuleType, line: str, told: str
) -> None:
    with pytest.raises(steps.NotUnderstoodError, match=told):
        build(START + line + "\n")


@pytest.mark.parametrize(
    ("path", "left_out"),
    [
        (".env", True),
        (".env.production", True),
        (".env.example", False),
        ("app_template/.env.example", False),
        ("shop/.env", True),
        ("data/ai/runs.db", True),
        ("database/file", False),
        ("app_template/data/notes.jsonl", True),
        ("app_template/data/.gitkeep", False),
        ("amoxi_py/cli/__pycache__/start.pyc", True),
        ("amoxi_py/cli/start.py", False),
    ],
)
def test_a_dockerignore_is_read_as_docker_reads_it(steps: ModuleType, path: str, left_out: bool) -> None:
    patterns = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert steps.is_left_out(path, patterns) is left_out


def test_no_secret_and_nothing_that_was_kept_gets_into_an_image(steps: ModuleType) -> None:
    for folder in (ROOT, ROOT / "app_template"):
        patterns = (folder / ".dockerignore").read_text("utf-8").split()
        for name in (".env", ".env.local", "data/ai/amoxi.db", "data/refunds.log", ".venv/bin/python", ".git/config"):
            assert steps.is_left_out(name, patterns), (folder, name)


def test_secrets_that_the_guides_put_into_an_apps_folder_get_into_no_image_and_no_repository(steps: ModuleType) -> None:
    guides = "".join((ROOT / "docs" / "guides" / name).read_text("utf-8") for name in ("production.md", "a2a.md"))
    named = re.findall(r"> (secrets/\S+)\n|--env-file (\S+)|-out (\S+\.pem)", guides)
    made = {name for names in named for name in names if name}
    assert made == {"secrets/server-secret", "environment", "card-key.pem"}
    template = ROOT / "app_template"
    patterns = (template / ".dockerignore").read_text("utf-8").split()
    assert all(steps.is_left_out(name, patterns) for name in made)
    assert {"/secrets/", "/environment", "/card-key.pem"} <= {*(template / ".gitignore").read_text("utf-8").split()}
