"""What a benchmark found: rows of its scenes, with their machine and profile, as one JSON document."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from amoxi_py.errors import CommandRefused
from amoxi_py.testing.bench.figures import Times
from amoxi_py.testing.bench.profile import Profile

VERSION = 1


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where it was measured."""

    cores: int
    processor: str
    memory_bytes: int
    system: str
    python: str


class SweepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A server with so many clients.

    Attributes:
        server: `amoxi`, or a peer's name.
        clients: How many at once.
        ideal: Turns per second of a server that costs no time.
        turns_per_s: Those that were completed.
        ttft, turn: Milliseconds, as the clients saw them.
        cpu_ms: Of the server's processes, per turn; None when no turn ended.
        rss: The most memory of the server's processes, in bytes.
        errors: By kind; `samples` has words of one answer of each.
        refused: Answers of 429.
        most_at_provider: The most requests that the provider had at once.
        spread: Of repeated measurements, the least and the most turns per second, and of `turn.p95`.
    """

    server: str
    clients: int
    ideal: float
    turns_per_s: float
    ttft: Times
    turn: Times
    cpu_ms: float | None
    rss: int
    errors: dict[str, int]
    samples: dict[str, str]
    refused: int
    most_at_provider: int
    spread: dict[str, tuple[float, float]] = {}


class MemoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of a server before, with, and after so many conversations at once, in bytes.

    What failed or was refused was no conversation: with `errors` or `refused` the figures are too small.
    """

    clients: int
    before: int
    during: int
    after: int
    ttl_s: int
    errors: dict[str, int]
    refused: int

    @property
    def per_conversation(self) -> float:
        """What each conversation adds, in bytes."""
        return (self.during - self.before) / self.clients


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that has a limit; `ok` says whether it keeps it."""

    name: str
    value: float
    limit: float
    ok: bool


class OverloadRow(msgspec.Struct, frozen=True, kw_only=True):
    """Many more clients than fit; times in milliseconds.

    Attributes:
        clients, gate, provider_limit, seconds: The scene.
        completed: Runs that were accepted, all of which completed unless `errors` has others.
        refused: How long answers of 429 took; `refused_without_wait` of them had no `Retry-After`.
        refusal_cpu_ms: CPU of the server for each refusal, while the gate was full.
        before, during, after: Turns without overload, within it, and from 5 s after it.
        checks: What must hold.
    """

    clients: int
    gate: int
    provider_limit: int
    seconds: float
    completed: int
    errors: dict[str, int]
    samples: dict[str, str]
    refused: Times
    refused_without_wait: int
    refusal_cpu_ms: float | None
    before: Times
    during: Times
    after: Times
    checks: list[Check]


class SoakRow(msgspec.Struct, frozen=True, kw_only=True):
    """One part, a minute as a rule, of a long load; store bytes are per turn that ended in it."""

    number: int
    seconds: float
    clients: int
    turns_per_s: float
    ttft: Times
    turn: Times
    cpu_ms: float | None
    rss: int
    store_bytes: float | None
    errors: dict[str, int]


class Outcome(msgspec.Struct, kw_only=True):
    """All that a call has found."""

    version: int = VERSION
    at: str
    command: list[str]
    machine: Machine
    profile: Profile
    app: str
    workers: int
    store: str
    window_s: float
    sweep: list[SweepRow] = []
    memory: list[MemoryRow] = []
    overload: list[OverloadRow] = []
    soak: list[SoakRow] = []


def begin_outcome(*, profile: Profile, app: str, workers: int, store: str, window_s: float) -> Outcome:
    """Return an outcome without rows, of this machine and moment."""
    return Outcome(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        command=["amoxi", *sys.argv[1:]],
        machine=_machine(),
        profile=profile,
        app=app,
        workers=workers,
        store=store,
        window_s=window_s,
    )


def write_outcome(outcome: Outcome, file: Path) -> None:
    """Write it to a file, as indented JSON."""
    _write(file, msgspec.json.format(msgspec.json.encode(outcome), indent=2))


def read_outcome(file: Path) -> Outcome:
    """Read what `write_outcome` has written.

    Raises:
        CommandRefused: it is not there, or something else.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise CommandRefused(f"{str(file)!r} cannot be read: {error.strerror or error}") from error
    try:
        outcome = msgspec.json.decode(content, type=Outcome)
    except msgspec.MsgspecError as error:
        raise CommandRefused(f"{str(file)!r} is not what `amoxi bench --out` writes: {error}") from error
    if outcome.version != VERSION:
        raise CommandRefused(f"{str(file)!r} is of another version of amoxi bench: measure anew with --out")
    return outcome


def write_text(text: str, file: Path) -> None:
    """Write a text to a file.

    Raises:
        CommandRefused: it cannot be written.
    """
    _write(file, text.encode())


def _write(file: Path, content: bytes) -> None:
    try:
        file.write_bytes(content)
    except OSError as error:
        raise CommandRefused(f"{str(file)!r} cannot be written: {error.strerror or error}") from error


def _machine() -> Machine:
    return Machine(
        cores=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1,
        processor=_processor(),
        memory_bytes=0 if sys.platform == "win32" else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=platform.platform(),
        python=platform.python_version(),
    )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
