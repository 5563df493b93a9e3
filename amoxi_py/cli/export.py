"""`amoxi export`: all that is kept of one principal, as JSON Lines; it works beside running servers."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from amoxi_py.cli.operating import operate, profile_option
from amoxi_py.cli.principal import principal_id, read_principal, tell_nothing_kept, tenant_option, tenants_beside
from amoxi_py.cli.progress import Progress

if TYPE_CHECKING:
    from amoxi_py.domain.principal import Principal
    from amoxi_py.engine.operator import Operator

LINES = "export.jsonl"
_OWN = 0o700


@click.command()
@principal_id
@tenant_option
@click.option(
    "--to",
    metavar="FOLDER|-",
    default="-",
    show_default=True,
    help="A new folder, which gets the files too; - prints the lines alone.",
)
@profile_option
def export(principal: str, tenant: str | None, to: str, profile: str | None) -> None:
    """Write all that is kept of a principal as JSON Lines.

    PRINCIPAL is user:42, web:..., api:NAME, mcp:NAME or a2a:NAME. In a FOLDER the lines are in export.jsonl, and the
    bytes of each file in files/ under its id.
    """
    who = read_principal(principal, tenant)
    folder = None if to == "-" else _new_folder(Path(to))

    async def write(operator: Operator) -> tuple[int, int, tuple[str, ...]]:
        with Progress("exporting", None) as progress:
            if folder is None:
                lines, files = await _write_lines(operator, who, sys.stdout, None, progress)
            else:
                unfinished = folder / f"{LINES}.part"
                unfinished.touch(mode=0o600)  # the folder may be one that others look into
                with unfinished.open("w", encoding="ascii") as out:
                    lines, files = await _write_lines(operator, who, out, folder / "files", progress)
                unfinished.rename(folder / LINES)
        return lines, files, await tenants_beside(operator, who) if lines == 1 else ()

    lines, files, tenants = operate(write, profile=profile)
    if lines == 1:
        tell_nothing_kept(who, tenants, profile)
    elif folder is not None:
        print(f"{folder / LINES}: {lines} lines, {files} files")
    elif files:
        print(f"the bytes of {files} files are not among these lines: --to FOLDER writes them too", file=sys.stderr)


async def _write_lines(
    operator: Operator, who: Principal, out: IO[str], files: Path | None, progress: Progress
) -> tuple[int, int]:
    from amoxi_py.app.exporting import export_principal
    from amoxi_py.domain.encoding import encode_json

    lines = of_files = 0
    async for line in export_principal(operator, who):
        if line["type"] == "file":
            of_files += 1
            if files is not None and not await _save(operator, who, line, files):
                line["deleted"] = True
        out.write(encode_json(line) + "\n")
        lines += 1
        progress.advance()
    return lines, of_files


async def _save(operator: Operator, who: Principal, line: dict[str, Any], folder: Path) -> bool:
    """Write the bytes of a file; return whether it is still there."""
    from amoxi_py.app.exporting import file_bytes
    from amoxi_py.errors import NotFound

    os.makedirs(folder, mode=_OWN, exist_ok=True)
    place = folder / line["id"]
    try:
        with place.open("wb") as out:
            async for piece in file_bytes(operator, who, line["id"]):
                out.write(piece)
    except NotFound:
        place.unlink()
        return False
    return True


def _new_folder(folder: Path) -> Path:
    """Make a folder for this user alone, or take an empty one; one that has something in it is refused."""
    from amoxi_py.errors import CommandRefused

    folder.mkdir(mode=_OWN, parents=True, exist_ok=True)
    if os.listdir(folder):
        raise CommandRefused(f"{str(folder)!r} is not empty: name a folder that is not there yet")
    return folder
