"""Notes, one JSON line each; everybody sees only their own."""

import json
import os
import threading
from pathlib import Path

from amoxi_py import SyncToolContext, singleton, tool

NOTES = Path("data/notes.jsonl")


@singleton
class NoteTools:
    """Tools to write notes down and to read them again."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

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
        line = json.dumps({"owner": ctx.principal.id, "text": text})
        with self.lock:
            NOTES.parent.mkdir(parents=True, exist_ok=True)
            with NOTES.open("a", encoding="utf-8") as notes:
                notes.write(line + "\n")
                notes.flush()
                os.fsync(notes.fileno())
        return f"Noted: {text}"

    def _read(self) -> list[dict[str, str]]:
        if not NOTES.exists():
            return []
        return [json.loads(line) for line in NOTES.read_text("utf-8").splitlines() if line.endswith("}")]
