"""`compose.yaml` of the template, without docker: what it starts is started as processes on a database of the test."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from amoxi_py.testing.client import Client
from processes import ServerProcess

pytestmark = pytest.mark.crash

ROOT = Path(__file__).parents[2]
DATABASE = "postgresql://app@db:5432/app"
VARIABLE = re.compile(r"\$\{(\w+)(?::(-|\?)([^}]*))?\}")
SECRETS = {"POSTGRES_PASSWORD": "p@ss/word%"}
TOKEN = "acme-token-0123456789"
DOTENV = {".env": {"AI_API_CALLERS_ACME": TOKEN, "SERVER_PORT": "1", "AI_STORE_TYPE": "file"}}
LEASE_S = 2.0
SHORT_LEASE = {"AI_RUNS_LEASE_MS": str(int(LEASE_S * 1000))}
SERVERS = ("web1", "web2", "worker1", "worker2")

Start = Callable[..., ServerProcess]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "app_template" / "compose.yaml").read_text("utf-8"))
    return read


def filled(text: str) -> str:
    """Put variables in as compose does."""

    def value(found: re.Match[str]) -> str:
        name, sign, rest = found.groups()
        assert sign != "?" or SECRETS.get(name), f"{name} {rest}"
        return SECRETS.get(name) or (rest if sign == "-" else "")

    return VARIABLE.sub(value, text)


def environment(service: Mapping[str, Any]) -> dict[str, str]:
    values = service["environment"]
    assert all(isinstance(value, str) for value in values.values()), "compose refuses true, and takes 1.0 for 1"
    found: dict[str, str] = {}
    for file in service["env_file"]:
        assert file["required"] is False, "an app without a key needs no .env"
        found |= DOTENV[file["path"]]
    return found | {name: filled(value) for name, value in values.items()}


@pytest.fixture
def start(compose: dict[str, Any], folder: Path, serve: Any, postgres_url: str) -> Start:
    """Start a service: its command in its environment, with the database of the test in the place of `db`."""

    def start(name: str, **more: str) -> ServerProcess:
        service = compose["services"][name]
        program, command, *args = service["command"]
        env = environment(service)
        assert program == "amoxi"
        assert env.pop("DATABASE_URL") == DATABASE
        assert env.pop("SERVER_PORT") == ("8080" if command == "start" else "1")
        env |= {"DATABASE_URL": postgres_url, "SERVER_HOST": "127.0.0.1", **SHORT_LEASE, **more}
        serves = command == "start"
        server: ServerProcess = serve(folder, command=command, args=args, env=env, wait_ready=serves)
        if not serves:
            server.wait_log("ready")
        return server

    return start


def wait_for(condition: Callable[[], Any], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_refund_that_a_killed_worker_had_begun_is_finished_by_the_other_and_read_at_the_other_server(
    start: Start, folder: Path, request: pytest.FixtureRequest
) -> None:
    web1, web2, worker1 = start("web1"), start("web2"), start("worker1", RECEIPT_SECONDS="60")
    ledger = folder / "data" / "refunds.log"
    person, elsewhere, program = Client(web1.url), Client(web2.url), Client(web2.url, token=TOKEN)
    for caller in (person, elsewhere, program):
        request.addfinalizer(caller.close)
    assert program.http.get("/agents").status_code == 200, "callers of .env are let in"
    run = person.submit("support-agent", "Refund order A-1001")
    wait_for(ledger.exists, 20)
    start("worker2", RECEIPT_SECONDS="0.1")
    killed = time.monotonic()
    worker1.kill9()
    elsewhere.http.cookies.update(person.http.cookies)  # a browser sends them to every port of a host
    wait_for(lambda: elsewhere.run(run["id"])["attempt"] == 2, 20)
    assert time.monotonic() - killed < LEASE_S + 1 + 20  # the slack is for this test's looks on a busy machine
    ended = elsewhere.until_status(run["id"])
    assert (ended["status"], ended["attempt"]) == ("completed", 2)
    [line] = ledger.read_text("utf-8").splitlines()
    assert line.split(" ")[0] in ended["output"]


def test_web_servers_execute_nothing_and_workers_serve_nothing(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {"db", *SERVERS}
    for name in SERVERS:
        web = name.startswith("web")
        assert (environment(services[name]).get("AI_RUNS_WORKER") == "false") is web
        assert ("ports" in services[name]) is web
        assert services[name]["healthcheck"] == {"disable": True} if not web else "healthcheck" not in services[name]
        assert services[name]["depends_on"]["db"] == {"condition": "service_healthy"}


def test_a_server_is_not_killed_before_its_grace_is_over(compose: dict[str, Any]) -> None:
    from amoxi_py.config.sections import ServerSection

    for name in SERVERS:
        given = re.fullmatch(r"(\d+)s", compose["services"][name]["stop_grace_period"])
        assert given is not None
        assert int(given[1]) > ServerSection().stop_grace_s + 2


def test_the_example_of_env_names_every_variable_that_it_takes() -> None:
    template = ROOT / "app_template"
    wanted = {name for name, *_ in VARIABLE.findall((template / "compose.yaml").read_text("utf-8"))}
    named = set(re.findall(r"^# (\w+)=", (template / ".env.example").read_text("utf-8"), re.MULTILINE))
    assert wanted <= named
