"""`GET /a2a/files/{id}`: the files that artifacts name by an address, for the caller whose they are."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import NotFound
from amoxi_py.surfaces.downloads import DOWNLOAD_HEADERS, Download, disposition
from amoxi_py.surfaces.problem import problem

FILES = re.compile(r"files/(?P<id>[^/]+)")

_ID = re.compile(r"file_[0-9a-z_]{1,64}")


async def answer_file(engine: Engine, principal: Principal, id: str, request: Request) -> Response:
    """Return the answer with the bytes of a file; somebody else's is answered as one that does not exist."""
    try:
        if not _ID.fullmatch(id):
            raise NotFound("file", id)
        stored = await engine.files.get(id, principal)
    except NotFound:
        return problem(404, "not_found", "there is no such file")
    etag = f'"{stored.digest}"'
    headers = {**DOWNLOAD_HEADERS, "etag": etag, "content-disposition": disposition(stored.file, "attachment")}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    headers |= {"content-length": str(stored.file.size), "content-type": stored.file.media_type}
    if request.method == "HEAD":
        return Response(headers=headers)
    return Download(engine.files.read(stored, principal), headers=headers)
