"""One file out of a body of `multipart/form-data` (RFC 7578), piece by piece as the body comes."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator

from msgspec import Struct
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.exceptions import HTTPException
from starlette.requests import Request

from amoxi_py.errors import InvalidRequest

ROOM_FOR_FRAME = 64 * 1024
"""How much longer than its file a body may be: boundaries and headers."""
_FIELD = "file"


class Upload(Struct, frozen=True, kw_only=True):
    """A file as a client sends it: what it says of it, and the bytes as they come."""

    name: str
    media_type: str | None
    parts: AsyncGenerator[bytes, None]


async def read_upload(request: Request, limit: int) -> Upload:
    """Return the one file of a body, when its headers have come.

    Raises:
        HTTPException: 413 for a file longer than `limit` bytes, or a body much longer than its file, also while its
            parts are read; 415 for another body.
        InvalidRequest: the body holds something else than one file named `file`; also while its parts are read.
    """
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if kind != b"multipart/form-data":
        raise HTTPException(415, "the file must come as multipart/form-data, in a field named 'file'")
    told = request.headers.get("content-length", "")
    if told.isdecimal() and (len(told) > 18 or int(told) > limit + ROOM_FOR_FRAME):
        raise _too_large(limit)
    boundary = options.get(b"boundary")
    if not boundary:
        raise InvalidRequest("the body is no multipart/form-data: its boundary is not told", code="invalid_multipart")
    reader = _Reader(boundary, request.stream(), limit)
    await reader.read_headers()
    return Upload(name=reader.name, media_type=reader.media_type, parts=reader.content())


class _Reader:
    """Follows the parser's callbacks; what they find waits in `_found` until it is asked for."""

    def __init__(self, boundary: bytes, stream: AsyncIterator[bytes], limit: int) -> None:
        self.name = ""
        self.media_type: str | None = None
        self._stream = stream
        self._limit = limit
        self._size = 0
        self._body_size = 0
        self._fields = 0
        self._headers: dict[bytes, bytes] = {}
        self._header_name = b""
        self._header_value = b""
        self._header_bytes = 0
        self._begun = False
        self._ended = False
        self._found: deque[bytes] = deque()
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._take_header_name,
                "on_header_value": self._take_header_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._take_bytes,
                "on_end": self._end,
            },
        )

    async def read_headers(self) -> None:
        """Read until the file's headers are known."""
        while not self._begun:
            if not await self._read():
                raise _broken("it has no field named 'file'")

    async def content(self) -> AsyncGenerator[bytes, None]:
        """Give the file's bytes, and look that nothing else comes."""
        while True:
            while self._found:
                yield self._found.popleft()
            if not await self._read():
                break
        if not self._ended:
            raise _broken("it ends in the middle")

    async def _read(self) -> bool:
        chunk = await anext(self._stream, None)
        if chunk is None:
            return False
        if chunk:
            try:
                self._parser.write(chunk)
            except MultipartParseError as error:
                raise _broken(str(error)) from None
        self._body_size += len(chunk)
        if self._body_size - self._size > ROOM_FOR_FRAME:  # such as before the first boundary, or after the last
            raise HTTPException(413, f"the body is more than {ROOM_FOR_FRAME // 1024} KB longer than its file")
        return True

    def _begin(self) -> None:
        self._fields += 1
        if self._fields > 1:
            raise InvalidRequest(
                "one request brings one file; send the others in requests of their own",
                errors=({"field": "", "message": "only one field is known, 'file'"},),
            )

    def _take_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]
        self._count(end - start)

    def _take_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]
        self._count(end - start)

    def _count(self, length: int) -> None:
        self._header_bytes += length
        if self._header_bytes > ROOM_FOR_FRAME:
            raise _broken("the headers of its field are too long")

    def _end_header(self) -> None:
        self._headers[self._header_name.lower()] = self._header_value
        self._header_name = self._header_value = b""

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        field = options.get(b"name", b"").decode("utf-8", "replace")
        if field != _FIELD:
            raise InvalidRequest("the body does not fit", errors=({"field": field[:100], "message": "unknown field"},))
        if b"filename" not in options:
            raise InvalidRequest(
                "the body does not fit", errors=({"field": _FIELD, "message": "it must be a file with a name"},)
            )
        self.name = options[b"filename"].decode("utf-8", "replace")
        told = self._headers.get(b"content-type")
        self.media_type = None if told is None else told.decode("latin-1")
        self._begun = True

    def _take_bytes(self, data: bytes, start: int, end: int) -> None:
        self._size += end - start
        if self._size > self._limit:
            raise _too_large(self._limit)
        self._found.append(data[start:end])

    def _end(self) -> None:
        self._ended = True


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"the file is larger than {limit / (1024 * 1024):g} MB, the most that this server takes")


def _broken(what: str) -> InvalidRequest:
    return InvalidRequest(f"the body is no multipart/form-data: {what}", code="invalid_multipart")
