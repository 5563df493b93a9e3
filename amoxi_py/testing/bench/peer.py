"""Other servers that are measured beside an app, in the same call, by the same clients.

A peer is one Python file that says in its first comment, in the form of inline script metadata (PEP 723), what it
needs and how it is talked to (`[tool.npm]` has `dependencies` too):

    # /// script
    # requires-python = ">=3.11"
    # dependencies = ["starlette", "uvicorn"]
    #
    # [tool.amoxi-bench]
    # path = "/chat"
    # body = '{"message": "hello {n}", "session": "{session}"}'
    # first = "tok0"
    # end = "[DONE]"
    # ///

It is run by the interpreter of its own environment, `.venv/peers/<name>`, with `PORT`, `WORKERS`, `OPENAI_BASE_URL` and
`OPENAI_API_KEY` in its environment and an empty folder as the current one, and serves 127.0.0.1.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from amoxi_py.errors import CommandRefused
from amoxi_py.testing.bench import passthrough
from amoxi_py.testing.bench.child import Child
from amoxi_py.testing.bench.server import Server
from amoxi_py.testing.bench.target import Target

PASSTHROUGH = "passthrough"
ENVIRONMENTS = Path(".venv") / "peers"
_BLOCK = re.compile(r"(?m)^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
_TABLE = "amoxi-bench"
_ANSWER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A server of others.

    Attributes:
        name: Its name in tables.
        file: The program.
        python: The interpreter that has what the program needs.
        dependencies: What that is, as pip takes it.
        npm: What else it needs, as npm takes it.
        target: How it is talked to.
    """

    name: str
    file: Path
    python: str
    dependencies: tuple[str, ...]
    target: Target
    npm: tuple[str, ...] = ()


def find_peer(wanted: str, environments: Path = ENVIRONMENTS) -> Peer:
    """Return the peer of a file, or the one that is named `passthrough`.

    Raises:
        CommandRefused: there is no such file, it does not say what a peer says, or is not installed.
    """
    if wanted == PASSTHROUGH:
        target = Target(path="/chat", body='{"message": "hello {n}"}', first='"content":"tok0', end="[DONE]")
        file = Path(passthrough.__file__)
        return Peer(name=PASSTHROUGH, file=file, python=sys.executable, dependencies=(), target=target)
    peer = read_peer(Path(wanted), environments)
    if not Path(peer.python).exists():
        raise CommandRefused(
            f"peer {peer.name!r} is not installed: there is no {peer.python!r}; "
            f"python bench/peers/install.py {peer.name} makes it"
        )
    return peer


def read_peer(file: Path, environments: Path = ENVIRONMENTS) -> Peer:
    """Return what the file of a peer says, whether it is installed or not.

    Raises:
        CommandRefused: it cannot be read, or something in it does not fit.
    """
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise CommandRefused(
            f"peer {str(file)!r} cannot be read: {error.strerror or error}; it is {PASSTHROUGH!r} or a Python file"
        ) from error
    block = _BLOCK.search(text)
    if block is None:
        raise CommandRefused(f"{str(file)!r} is no peer: it has no '# /// script' block; bench/peers has examples")
    lines = block["content"].splitlines()
    try:
        told = tomllib.loads("\n".join(line[2:] for line in lines))
        target = msgspec.convert(told["tool"][_TABLE], Target)
        dependencies = msgspec.convert(told.get("dependencies", []), tuple[str, ...])
        npm = msgspec.convert(told["tool"].get("npm", {}), dict[str, tuple[str, ...]])
    except tomllib.TOMLDecodeError as error:
        raise CommandRefused(f"{str(file)!r}: its '# /// script' block is no TOML: {error}") from error
    except KeyError as error:
        raise CommandRefused(f"{str(file)!r} is no peer: its block has no [tool.{_TABLE}]") from error
    except msgspec.ValidationError as error:
        raise CommandRefused(f"{str(file)!r}: its block does not fit: {error}") from error
    python = environments / file.stem / "bin" / "python"
    return Peer(
        name=file.stem,
        file=file,
        python=str(python.absolute()),
        dependencies=dependencies,
        target=target,
        npm=npm.get("dependencies", ()),
    )


@contextmanager
def peer_server(peer: Peer, folder: Path, *, workers: int, provider_url: str) -> Iterator[Server]:
    """Run a peer's server in a folder."""
    port = _free_port()
    own = {
        "PORT": str(port),
        "WORKERS": str(workers),
        "OPENAI_BASE_URL": f"{provider_url}/v1",
        "OPENAI_API_KEY": "bench",
        "PYTHONUNBUFFERED": "1",
    }
    command = [peer.python, str(peer.file.absolute())]
    name = f"peer {peer.name!r}"
    with Child(name, command, folder=folder, log=folder / f"{peer.name}.log", env={**os.environ, **own}) as child:
        child.wait_until(lambda: _answers(port))
        yield Server(peer.name, child, port, peer.target)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=_ANSWER_S).close()
    except urllib.error.HTTPError as answer:
        answer.close()
    except OSError:
        return False
    return True
