"""docs/guides/production.md: what it gives to systemd, Kubernetes and Docker fits what the code does."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from amoxi_py.cli.child import longest_stop
from amoxi_py.config.load import load_settings
from amoxi_py.config.sections import FilesSection, ServerSection
from amoxi_py.surfaces.http.app import build_http
from amoxi_py.surfaces.http.door import Door
from amoxi_py.surfaces.http.settings import HttpSettings

ROOT = Path(__file__).parents[2]
LONGEST_STOP_S = longest_stop(ServerSection().stop_grace_s)


@pytest.fixture(scope="module")
def page() -> str:
    return (ROOT / "docs" / "guides" / "production.md").read_text("utf-8")


def block(page: str, title: str) -> str:
    [found] = re.findall(rf'```\w+ title="{re.escape(title)}"\n(.*?)```', page, re.DOTALL)
    return str(found)


def test_systemd_asks_the_supervisor_alone_and_waits_for_it(page: str) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # names of systemd are not made small
    unit.read_string(block(page, "shop.service"))
    service = unit["Service"]
    assert int(service["TimeoutStopSec"]) > LONGEST_STOP_S
    assert service["KillMode"] == "mixed"
    assert service["OOMPolicy"] == "continue", "that one process was killed is the supervisor's business"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0", "five starts that fail take less than systemd's 10 s"
    assert service["ReadWritePaths"] == f"{service['WorkingDirectory']}/data"


def test_kubernetes_asks_what_there_is_and_waits_for_the_stop(page: str, tmp_path: Path) -> None:
    pod = yaml.safe_load(block(page, "shop.yaml"))["spec"]["template"]["spec"]
    [container] = pod["containers"]
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > before + LONGEST_STOP_S
    routes = {getattr(route, "path", "") for route in build_http(Door(HttpSettings())).routes}
    probes = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    assert set(probes.values()) <= routes
    assert probes == {"startup": "/health/ready", "readiness": "/health/ready", "liveness": "/health/live"}
    [port] = container["ports"]
    assert port["containerPort"] == ServerSection().port
    environ = {one["name"]: one["value"] for one in container["env"]} | {"DATABASE_URL": "postgresql://shop@db/shop"}
    assert load_settings(tmp_path, environ=environ).warnings == ()


def test_the_page_and_the_image_agree_about_the_user_and_the_volume(page: str) -> None:
    image = (ROOT / "app_template" / "Dockerfile").read_text("utf-8")
    [user] = re.findall(r"^USER (\d+)$", image, re.MULTILINE)
    pod: dict[str, Any] = yaml.safe_load(block(page, "shop.yaml"))["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "fsGroup": int(user)}
    assert [one["mountPath"] for one in pod["containers"][0]["volumeMounts"]] == re.findall(
        r"^VOLUME (\S+)$", image, re.MULTILINE
    )
    assert f"user {user}" in page
    for shown in (page, image, (ROOT / "Dockerfile").read_text("utf-8")):
        runs = re.findall(r"docker run (?:.*--stop-timeout (\d+))?", shown)
        assert runs
        assert all(int(stop or 0) > LONGEST_STOP_S for stop in runs), "Docker kills after 10 s"


def test_compose_keeps_what_the_image_keeps_and_waits_for_the_stop() -> None:
    image = (ROOT / "app_template" / "Dockerfile").read_text("utf-8")
    services = yaml.safe_load((ROOT / "app_template" / "compose.yaml").read_text("utf-8"))["services"]
    apps = [service for name, service in services.items() if name != "db"]
    volumes = {volume for app in apps for volume in app["volumes"]}
    assert all(int(app["stop_grace_period"].removesuffix("s")) > LONGEST_STOP_S for app in apps)
    assert volumes == {f"data:{path}" for path in re.findall(r"^VOLUME (\S+)$", image, re.MULTILINE)}


def test_proxies_let_the_largest_file_through(page: str) -> None:
    told = re.findall(r"(?:client_max_body_size|max_size|proxy-body-size:) (\d+)(?:m|MiB)\b", page)
    assert len(told) == 3
    assert all(int(mebibytes) > FilesSection().max_mb for mebibytes in told)


def test_the_proxy_waits_longer_than_any_answer_is_silent(page: str) -> None:
    read_timeout = re.search(r"proxy_read_timeout (\d+)s", page)
    assert read_timeout is not None
    waiting = build_http(Door(HttpSettings())).openapi()["paths"]["/agents/{agent}/runs"]["post"]["parameters"]
    [longest] = [one["schema"]["anyOf"][0]["maximum"] for one in waiting if one["name"] == "wait"]
    assert int(read_timeout[1]) > max(longest, HttpSettings().heartbeat)
