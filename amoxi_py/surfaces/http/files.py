"""`/files`: a caller's files, in and out, piece by piece.

What comes out was somebody's to choose, so no browser may take it for a page of this server: only pictures are shown,
everything else is a download, and nothing in it runs.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated, Literal

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.domain.file import File
from amoxi_py.surfaces.downloads import DOWNLOAD_HEADERS, Download, disposition
from amoxi_py.surfaces.http.answers import FileJson, file_json, json_answer
from amoxi_py.surfaces.http.door import Door, caller_of, principal_of
from amoxi_py.surfaces.http.multipart import read_upload
from amoxi_py.surfaces.http.problems import documented
from amoxi_py.surfaces.http.ranges import NoSuchPart, Part, is_known, wanted_part
from amoxi_py.surfaces.http.requests import known_id
from amoxi_py.surfaces.http.schema import FILE_BODY, FILE_BYTES
from amoxi_py.surfaces.problem import problem

FileId = Annotated[str, Path(description="The file's id.")]

_SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"})
_HEADERS = {"accept-ranges": "bytes", **DOWNLOAD_HEADERS}


class FileRoutes:
    """The routes of files."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def add_to(self, router: APIRouter) -> None:
        """Add the routes."""
        self._door.add(
            router,
            "/files",
            self.upload,
            methods=["POST"],
            status_code=201,
            tags=["files"],
            operation_id="upload_file",
            response_model=FileJson,
            responses=documented(401, 403, 413, 415, 422, 503),
            openapi_extra={"requestBody": FILE_BODY},
        )
        self._door.add(
            router,
            "/files/{id}",
            self.download,
            tags=["files"],
            operation_id="download_file",
            response_model=None,
            responses={**documented(401, 404, 416, 503), **FILE_BYTES},
        )
        self._door.add(router, "/files/{id}", self.download, methods=["HEAD"], include_in_schema=False)
        self._door.add(
            router,
            "/files/{id}",
            self.delete,
            methods=["DELETE"],
            status_code=204,
            tags=["files"],
            operation_id="delete_file",
            response_model=None,
            responses=documented(401, 403, 404, 503),
        )

    async def upload(self, request: Request) -> Response:
        """Store one file, sent as the field `file` of a form; messages name it by its id."""
        files, caller = self._door.engine.files, caller_of(request)
        upload = await read_upload(request, files.max_size)
        async with aclosing(upload.parts):
            stored = await files.add(caller.principal, upload.name, upload.media_type, upload.parts)
        location = f"{request.scope.get('root_path', '')}{self._door.settings.prefix}/files/{stored.file.id}"
        answer = json_answer(file_json(stored), 201, {"location": location})
        self._door.authentication.welcome(request, caller, answer)
        return answer

    async def download(self, request: Request, id: FileId) -> Response:
        """Return the bytes of a file, or a part of them; for HEAD what is told of them."""
        files, principal = self._door.engine.files, principal_of(request)
        readable = self._door.engine.readable(principal)
        stored = await files.get(known_id("file", id), principal, readable=readable)
        etag = f'"{stored.digest}"'
        headers = {**_HEADERS, "etag": etag}
        if is_known(request, etag):
            return Response(status_code=304, headers=headers)
        size = stored.file.size
        try:
            part = wanted_part(request, size, etag) if request.method == "GET" else None
        except NoSuchPart:
            unmet = {"content-range": f"bytes */{size}"}
            return problem(416, "range_not_satisfiable", f"the file has {size} bytes", headers=unmet)
        kind: Literal["inline", "attachment"] = "inline" if stored.file.media_type in _SHOWN else "attachment"
        headers["content-disposition"] = disposition(stored.file, kind)
        headers["content-type"] = _content_type(stored.file)
        if part is not None:
            headers["content-range"] = f"bytes {part.start}-{part.end - 1}/{size}"
        whole = part or Part(0, size)
        headers["content-length"] = str(whole.end - whole.start)
        if request.method == "HEAD":
            return Response(headers=headers)
        body = files.read(stored, principal, whole.start, whole.end, readable=readable)
        return Download(body, status_code=200 if part is None else 206, headers=headers)

    async def delete(self, request: Request, id: FileId) -> Response:
        """Delete a file, wherever it is used; messages that name it stay as they are."""
        await self._door.engine.files.delete(known_id("file", id), principal_of(request))
        return Response(status_code=204)


def _content_type(file: File) -> str:
    return f"{file.media_type}; charset=utf-8" if file.media_type.startswith("text/") else file.media_type
