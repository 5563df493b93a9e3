"""Reading server-sent events from bytes, as providers stream them (WHATWG HTML, section 9.2.6).

Lines end at LF or CR LF only: text decoders also split at U+2028 and its like, which JSON may hold.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator


async def read_sse(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the data of each event; comments and other fields are passed over, an open event at the end counts."""
    rest = b""
    data: list[bytes] = []
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                data.append(_value(line))
            elif data and line in (b"", b"\r"):
                yield b"\n".join(data)
                data = []
    if rest.startswith(b"data:"):
        data.append(_value(rest))
    if data:
        yield b"\n".join(data)


def _value(line: bytes) -> bytes:
    return line[5:].removeprefix(b" ").removesuffix(b"\r")
