"""`amoxi doctor`: everything an app needs to start, looked at without starting it."""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from amoxi_py.cli.checks.configuration import Configuration, Shown
    from amoxi_py.cli.checks.finding import Finding, Level

_COLOURS: dict[Level, str] = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}


@click.command()
@click.option(
    "--profile", help="Look at this profile: dev is what amoxi dev uses. Default: AMOXI_PROFILE, else production."
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def doctor(profile: str | None, as_json: bool) -> None:
    """Check everything that the app of the current folder needs to start.

    Python, the installed package, settings and where each came from, the app's package, store, model, port and system;
    each finding with the way out. Nothing is changed, no provider is asked, and no secret is printed. The exit code is
    1 when something keeps the app from starting, or from what it promises.
    """
    logging.getLogger().setLevel(logging.CRITICAL)  # what others would log is said as a finding
    from amoxi_py.cli.checks.configuration import Configuration

    configuration = Configuration(Path.cwd(), profile)
    findings = [
        replace(finding, text=configuration.hide(finding.text), fix=configuration.hide(finding.fix))
        for finding in _look(configuration)
    ]
    shown = [replace(row, value=configuration.hide(row.value)) for row in configuration.shown()]
    failed = any(finding.level == "error" for finding in findings)
    if as_json:
        told = {
            "ok": not failed,
            "folder": str(configuration.folder),
            "profile": configuration.settings.profile,
            "findings": [
                {"check": finding.check, "level": finding.level, "text": finding.text, "fix": finding.fix}
                for finding in findings
            ],
            "settings": [asdict(row) for row in shown],
        }
        click.echo(json.dumps(told, ensure_ascii=False, indent=2))
    else:
        _print(configuration, findings, shown)
    sys.exit(1 if failed else 0)


def _look(configuration: Configuration) -> list[Finding]:
    from amoxi_py.cli.checks import machine
    from amoxi_py.cli.checks.a2a import look_at_a2a
    from amoxi_py.cli.checks.application import Application, look_at_port
    from amoxi_py.cli.checks.finding import found
    from amoxi_py.cli.checks.mcp import look_at_mcp
    from amoxi_py.cli.checks.storage import look_at_store

    settings = configuration.settings
    application = Application(settings)
    checks = {
        "python": machine.look_at_python,
        "installation": machine.look_at_installation,
        "settings": configuration.findings,
        "app": application.look_at_package,
        "own settings": lambda: configuration.look_at_own_sections(application.declarations),
        "model": application.look_at_models,
        "memory": application.look_at_embedder,
        "mcp": lambda: look_at_mcp(settings, application.declarations),
        "a2a": lambda: look_at_a2a(settings, application.declarations),
        "store": lambda: look_at_store(settings),
        "port": lambda: look_at_port(settings),
        "system": machine.look_at_system,
    }
    return [finding for name, look in checks.items() for finding in found(name, look)]


def _print(configuration: Configuration, findings: list[Finding], shown: list[Shown]) -> None:
    settings = configuration.settings
    click.echo(f"app {settings.app_name!r} in {configuration.folder}, profile {settings.profile!r}\n")
    widest = max(len(finding.check) for finding in findings)
    for finding in findings:
        level = click.style(f"{finding.level:<8}", fg=_COLOURS[finding.level], bold=finding.level == "error")
        click.echo(f"{level} {finding.check:<{widest}}  {finding.text}")
        if finding.fix:
            click.echo(f"{'':8} {'':<{widest}}  fix: {finding.fix}")
    click.echo("\nsettings:")
    key_width = max(len(row.key) for row in shown)
    value_width = min(40, max(len(row.value) for row in shown))
    for row in shown:
        line = f"  {row.key:<{key_width}}  {row.value:<{value_width}}  {row.source}"
        click.echo(click.style(line, dim=row.source == "default"))
    click.echo(f"\n{_summary(findings)}")


def _summary(findings: list[Finding]) -> str:
    counts = Counter(finding.level for finding in findings)
    told = [
        f"{counts[level]} {level}{'s' if counts[level] > 1 else ''}" for level in ("error", "warning") if counts[level]
    ]
    if counts["error"]:
        starts = all(finding.starts for finding in findings if finding.level == "error")
        return f"{', '.join(told)}: the app {'can start, but not keep its promises' if starts else 'cannot start'}"
    return f"{', '.join(told)}: the app can start" if told else "all is well: the app can start"
