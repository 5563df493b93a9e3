"""`amoxi ingest`: what the documents of a folder say, into a knowledge base; it works beside running servers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from amoxi_py.cli.operating import complain, fail_on_signal, json_option, print_any_letter, profile_option
from amoxi_py.cli.tables import print_json
from amoxi_py.cli.visible_text import one_line

if TYPE_CHECKING:
    from amoxi_py.app.ingesting import Ingested

_MOST_TOLD = 40


@click.command()
@click.argument("folder", metavar="[FOLDER]", required=False)
@click.option("--base", metavar="NAME", default="docs", show_default=True, help="The knowledge base.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--remove", is_flag=True, help="Take the whole base away; without a FOLDER.")
@profile_option
@json_option
def ingest(folder: str | None, base: str, dry_run: bool, remove: bool, profile: str | None, as_json: bool) -> None:
    """Put what the documents of a folder say into a knowledge base.

    Markdown, text and PDF, in folders too. What is in the base already is not done again, and what has left the folder
    leaves the base. It can be stopped at any time, and goes on where it was when it is called again. Agents that have
    the tool search_docs find it.
    """
    if remove == (folder is not None):
        raise click.UsageError("name a FOLDER, or say --remove without one")
    import asyncio
    import logging

    fail_on_signal()
    print_any_letter()
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # what it thinks of a PDF that it can read
    ingested = asyncio.run(_ingest(folder, base, dry_run, profile))
    if as_json:
        print_json({**{name: getattr(ingested, name) for name in ingested.__struct_fields__}, "dry_run": dry_run})
    else:
        _tell(ingested, dry_run)
    if ingested.without_vectors:
        complain(f"the documents are stored, and found by their words only: {ingested.without_vectors}")
        print("call it again; or a running server of the app makes their vectors", file=sys.stderr)
        sys.exit(1)


async def _ingest(folder: str | None, base: str, dry_run: bool, profile: str | None) -> Ingested:
    from amoxi_py.app.ingesting import open_bases
    from amoxi_py.cli.progress import Progress

    async with open_bases(profile) as bases:
        if folder is None:
            return await bases.remove(base, dry_run=dry_run)
        with Progress("reading", None, lines=True) as reading, Progress("embedding", None, lines=True) as embedding:
            return await bases.ingest(
                Path(folder), base, dry_run=dry_run, on_step=reading.reach, on_made=embedding.advance
            )


def _tell(ingested: Ingested, dry_run: bool) -> None:
    for what, lines in (("skipped", ingested.skipped), ("note", ingested.notes)):
        for path, why in [*lines.items()][:_MOST_TOLD]:
            print(f"{what}: {one_line(path)}: {one_line(why)}", file=sys.stderr)
        if (more := len(lines) - _MOST_TOLD) > 0:
            print(f"{what}: {more} more, which --json tells", file=sys.stderr)
    if ingested.hidden:
        print(f"left out: {ingested.hidden} hidden files and folders", file=sys.stderr)
    if ingested.others:
        kinds = ", ".join(f"{count} {one_line(kind)}" for kind, count in sorted(ingested.others.items()))
        print(f"left out: other kinds of files: {kinds}", file=sys.stderr)
    counts = ", ".join(f"{len(getattr(ingested, name))} {name}" for name in ("new", "changed", "unchanged", "removed"))
    would = "would be: " if dry_run else ""
    print(f"{ingested.base}: {would}{counts} ({ingested.passages} passages)")
