"""Reading server-sent events from bytes, as providers stream them (WHATWG HTML, section 9.2.6).

Lines end at LF or CR LF only: text decoders also split at U+2028 and its like, which JSON may hold.
"""

from __future__ import annotations


class SseReader:
    """Makes the data of events of the pieces in which a stream comes; comments and other fields are passed over."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # pieces of the line that is open: a long one has many
        self._data: list[bytes] = []

    def read(self, piece: bytes) -> list[bytes]:
        """Return the data of each event that a piece completes."""
        *lines, rest = piece.split(b"\n")
        if not lines:
            self._rest.append(rest)
            return []
        lines[0] = b"".join((*self._rest, lines[0]))
        self._rest = [rest]
        found: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(_value(line))
            elif self._data and line in (b"", b"\r"):
                found.append(b"\n".join(self._data))
                self._data.clear()
        return found

    def end(self) -> list[bytes]:
        """Return the event that is open at the end of the stream, which counts."""
        return self.read(b"\n\n")


def _value(line: bytes) -> bytes:
    return line[5:].removeprefix(b" ").removesuffix(b"\r")
