"""Notes, one JSON line each; everybody sees only their own."""

import json
from pathlib import Path

from amoxi_py import SyncToolContext, singleton, tool

from .files import add_line, alone_with, read_lines

NOTES = Path("data/notes.jsonl")


@singleton
class NoteTools:
    """Tools to write notes down and to read them again."""

    @tool(read_only=True)
    def list_notes(self, ctx: SyncToolContext) -> list[str]:
        """List the person's notes."""
        return [note["text"] for note in self._read() if note["owner"] == ctx.principal.id]

    @tool
    def add_note(self, text: str, ctx: SyncToolContext) -> str:
        """Add a note.

        Args:
            text: What to write down
        """
        with alone_with(NOTES):
            add_line(NOTES, json.dumps({"owner": ctx.principal.id, "text": text}))
        return f"Noted: {text}"

    def _read(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in read_lines(NOTES) if line.endswith("}")]
