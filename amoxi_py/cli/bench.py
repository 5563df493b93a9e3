"""`amoxi bench`: what an app does under load, measured with a provider that is played and clients that talk to it."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amoxi_py.errors import CommandRefused

if TYPE_CHECKING:
    from amoxi_py.testing.bench.app_process import App
    from amoxi_py.testing.bench.outcome import Check, Outcome
    from amoxi_py.testing.bench.profile import Profile
    from amoxi_py.testing.bench.provider_process import PlayedProvider

_COUNTS = "1,64,256,512,1000,2000"
_MOST_CLIENTS = 20_000


class _Counts(click.ParamType["tuple[int, ...]"]):
    """Numbers with commas between."""

    name = "N,N,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            counts = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is no list of numbers such as 1,64,256", param, ctx)
        if any(not 1 <= count <= _MOST_CLIENTS for count in counts):
            self.fail(f"{value!r}: each count is from 1 to {_MOST_CLIENTS}", param, ctx)
        return tuple(sorted(set(counts)))


def _headers(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        name, colon, _ = value.partition(":")
        if not colon or not name.strip() or not value.isascii() or not value.isprintable():
            raise click.BadParameter(f"{value!r} is no header such as 'Authorization: Bearer ...'")
    return values


@click.command()
@click.option("--c", "counts", type=_Counts(), default=_COUNTS, show_default=True, help="Clients at once, each count.")
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), default=16.0, show_default=True, help="Counted of each."
)
@click.option("--repeat", type=click.IntRange(1, 100), default=1, show_default=True, help="Measurements of each count.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Server processes.")
@click.option(
    "--store",
    type=click.Choice(["file", "postgres"]),
    default="file",
    show_default=True,
    help="postgres: DATABASE_URL.",
)
@click.option("--app", is_flag=True, help="Measure the app of the current folder, instead of a small one.")
@click.option("--agent", help="Whom the clients talk to; needed where the app has several.")
@click.option("--header", "headers", multiple=True, callback=_headers, help="A line of each request, 'Name: value'.")
@click.option("--peer", "peers", multiple=True, help="'passthrough', or the file of another server to measure beside.")
@click.option("--memory", is_flag=True, help="Measure memory per conversation at each count instead.")
@click.option("--ttl", type=click.IntRange(min=1), default=10, show_default=True, help="For --memory, seconds.")
@click.option("--gate", is_flag=True, help="Play an overload instead: 200 clients for 30 s where 8 runs fit.")
@click.option("--soak", type=click.FloatRange(min=0, min_open=True), help="Load for so many minutes instead.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write all figures as JSON.")
@click.option("--plot", "plot_file", type=click.Path(dir_okay=False, path_type=Path), help="Write a plot as SVG.")
@click.option(
    "--compare", type=click.Path(dir_okay=False, path_type=Path), help="Fail when figures grew since this --out."
)
@click.option("--ttft-ms", type=click.FloatRange(min=0), default=2000.0, show_default=True, help="To the first token.")
@click.option("--tokens-per-s", type=click.FloatRange(min=0), default=200.0, show_default=True, help="0: at once.")
@click.option("--tokens", type=click.IntRange(min=1), default=8, show_default=True, help="Of each answer.")
def bench(**options: Any) -> None:
    """Measure what an app does under load.

    A server is started as by `amoxi start`, with a store of its own that is removed afterwards. A provider is played
    on this machine, so no key is needed and nothing is spent. Clients hold one conversation each: they send the next
    message when the last one is answered. Printed are turns per second beside those of a server that takes no time,
    the time to the first word and of the turn in ms, CPU of the server per turn, memory, and errors.

    \u0008
    --memory  memory per conversation, and what is left of it after --ttl
    --gate    many more clients than fit: how refusals are answered; exit 1 when a limit is not kept
    --soak    half of the largest --c for long; exit 1 when memory, latency, CPU or store bytes per run grow
    --compare exit 1 when p95, CPU per turn or memory grew by over 25 % since an earlier --out
    """
    if sys.platform == "win32":
        raise CommandRefused("amoxi bench measures processes as Linux and macOS tell them: run it there")
    if importlib.util.find_spec("openai") is None:
        raise CommandRefused("amoxi bench asks a provider by the extra 'openai': pip install 'amoxi-py[openai]'")
    scenes = [f"--{name}" for name in ("memory", "gate", "soak") if options[name]]
    if len(scenes) > 1:
        raise click.UsageError(f"{' and '.join(scenes)} are measured one after the other: give one of them")
    if scenes and (options["peers"] or options["plot_file"]):
        raise click.UsageError(f"--peer and --plot belong to the sweep, not to {scenes[0]}")
    if scenes and scenes != ["--memory"] and options["compare"] is not None:
        raise click.UsageError(f"--compare is for the sweep and --memory, not for {scenes[0]}")
    _Bench(options).run()


class _Bench:
    """One call of the command."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def run(self) -> None:
        """Measure, print, write, compare; end with 1 where a limit is not kept."""
        from amoxi_py.testing.bench.outcome import begin_outcome, read_outcome, write_outcome
        from amoxi_py.testing.bench.profile import Profile
        from amoxi_py.testing.bench.provider_process import played_provider

        options = self._options
        _need_folders(options["out"], options["plot_file"])
        _ask_without_proxy()
        before = None if options["compare"] is None else read_outcome(options["compare"])
        profile = Profile(ttft_ms=options["ttft_ms"], tokens_per_s=options["tokens_per_s"], tokens=options["tokens"])
        if not profile.turn_s:
            raise click.UsageError("an answer takes some time: give --ttft-ms or --tokens-per-s above 0")
        outcome = begin_outcome(
            profile=profile,
            app=Path.cwd().name if options["app"] else "",
            workers=options["workers"],
            store=options["store"],
            window_s=options["seconds"],
        )
        try:
            with _place() as place, played_provider(profile, place) as provider:
                failed = self._scene()(self._app(), provider, profile, place, outcome)
        except SystemExit as stop:  # a signal came; a measurement that was stopped must not pass for a good one
            raise SystemExit(1) from stop
        if options["out"] is not None:
            write_outcome(outcome, options["out"])
        if options["plot_file"] is not None:
            self._plot(outcome)
        if before is not None:
            failed = self._compare(outcome, before) or failed
        sys.exit(1 if failed else 0)

    def _app(self) -> App:
        from amoxi_py.testing.bench.app_process import App

        options = self._options
        return App(
            folder=Path.cwd() if options["app"] else None,
            agent=options["agent"],
            workers=options["workers"],
            postgres=options["store"] == "postgres",
            headers=options["headers"],
        )

    def _scene(self) -> Callable[[App, PlayedProvider, Profile, Path, Outcome], bool]:
        if self._options["memory"]:
            return self._memory
        if self._options["gate"]:
            return self._gate
        return self._soak if self._options["soak"] else self._sweep

    def _sweep(self, app: App, provider: PlayedProvider, profile: Profile, place: Path, outcome: Outcome) -> bool:
        from amoxi_py.testing.bench.app_process import app_server
        from amoxi_py.testing.bench.peer import find_peer, peer_server
        from amoxi_py.testing.bench.sweep import sweep
        from amoxi_py.testing.bench.tables import SWEEP_HEAD, ratio_lines, sample_lines, sweep_line

        options = self._options
        peers = [find_peer(wanted) for wanted in options["peers"]]
        names = ["amoxi", *(peer.name for peer in peers)]
        if len(set(names)) < len(names):
            raise click.UsageError(f"servers side by side need names of their own, not {', '.join(names)}")
        each = options["repeat"] * (len(peers) + 1)
        self._tell_duration(len(options["counts"]) * each * (options["seconds"] + 3 * profile.turn_s))
        with ExitStack() as running:
            servers = [running.enter_context(app_server(app, _folder(place, "app"), provider.url))]
            for peer in peers:
                folder = _folder(place, f"peer-{peer.name}")
                servers.append(
                    running.enter_context(peer_server(peer, folder, workers=app.workers, provider_url=provider.url))
                )
            click.echo(SWEEP_HEAD)
            outcome.sweep = sweep(
                servers,
                provider,
                profile,
                counts=options["counts"],
                seconds=options["seconds"],
                repeat=options["repeat"],
                on_row=lambda row: _print([sweep_line(row)]),
            )
        _print(ratio_lines(outcome.sweep))
        _print(sample_lines(outcome.sweep), err=True)
        return any(row.errors for row in outcome.sweep if row.server == "amoxi")

    def _memory(self, app: App, provider: PlayedProvider, profile: Profile, place: Path, outcome: Outcome) -> bool:
        from amoxi_py.testing.bench.memory import probe_memory
        from amoxi_py.testing.bench.tables import MEMORY_HEAD, memory_line

        options = self._options
        each = options["seconds"] + 7 * profile.turn_s + 2 * options["ttl"] + 5
        self._tell_duration(len(options["counts"]) * each)
        click.echo(MEMORY_HEAD)
        outcome.memory = probe_memory(
            app,
            provider,
            profile,
            place,
            counts=options["counts"],
            seconds=options["seconds"],
            ttl_s=options["ttl"],
            on_row=lambda row: _print([memory_line(row)]),
        )
        return any(row.errors or row.refused for row in outcome.memory)

    def _gate(self, app: App, provider: PlayedProvider, profile: Profile, place: Path, outcome: Outcome) -> bool:
        from amoxi_py.testing.bench.overload import overload
        from amoxi_py.testing.bench.tables import overload_lines, sample_lines

        self._tell_duration(50 + 15 * profile.turn_s)
        row = overload(app, provider, profile, _folder(place, "app"))
        outcome.overload = [row]
        _print(overload_lines(row))
        _print(sample_lines([row]), err=True)
        return _any_fails(row.checks)

    def _soak(self, app: App, provider: PlayedProvider, profile: Profile, place: Path, outcome: Outcome) -> bool:
        from amoxi_py.testing.bench.app_process import app_server
        from amoxi_py.testing.bench.soak import growth_of, soak
        from amoxi_py.testing.bench.tables import SOAK_HEAD, check_lines, soak_line

        options = self._options
        self._tell_duration(options["soak"] * 60 + 3 * profile.turn_s)
        with app_server(app, _folder(place, "app"), provider.url) as server:
            click.echo(SOAK_HEAD)
            outcome.soak = soak(
                server,
                profile,
                clients=max(1, options["counts"][-1] // 2),
                minutes=options["soak"],
                on_row=lambda row: _print([soak_line(row)]),
            )
        checks = growth_of(outcome.soak)
        _print(check_lines(checks))
        return _any_fails(checks)

    def _plot(self, outcome: Outcome) -> None:
        from amoxi_py.testing.bench.outcome import write_text
        from amoxi_py.testing.bench.plot import plot

        write_text(plot(outcome), self._options["plot_file"])

    def _compare(self, outcome: Outcome, before: Outcome) -> bool:
        from amoxi_py.testing.bench.comparison import compare
        from amoxi_py.testing.bench.tables import compared_lines

        compared = compare(outcome, before)
        _print(compared_lines(compared))
        return any(one.grew for one in compared)

    def _tell_duration(self, seconds: float) -> None:
        click.echo(f"it takes about {max(1, round(seconds / 60))} min; nothing else should run meanwhile", err=True)


@contextmanager
def _place() -> Iterator[Path]:
    """Make a folder here for stores and logs: it is on the disk that the app's own store would be on."""
    try:
        folder = tempfile.TemporaryDirectory(prefix=".amoxi-bench-", dir=Path.cwd(), ignore_cleanup_errors=True)
    except OSError as error:
        raise CommandRefused(f"the stores of a benchmark are in the current folder: {error}") from error
    with folder as name:
        yield Path(name)


def _folder(place: Path, name: str) -> Path:
    folder = place / name
    folder.mkdir()
    return folder


def _need_folders(*files: Path | None) -> None:
    """Refuse now what could not be written after an hour of measuring."""
    for file in files:
        if file is not None and not file.absolute().parent.is_dir():
            raise CommandRefused(f"{str(file)!r} cannot be written: there is no folder {str(file.parent)!r}")


def _ask_without_proxy() -> None:
    """Let this process and all that it starts ask the servers of this machine themselves."""
    given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = f"{given},127.0.0.1" if given else "127.0.0.1"


def _any_fails(checks: Iterable[Check]) -> bool:
    return any(not check.ok for check in checks)


def _print(lines: Iterable[str], *, err: bool = False) -> None:
    for line in lines:
        click.echo(line, err=err)
