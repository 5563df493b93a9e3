"""The pages: `/` to sign in, `/desk` for the staff, and the framework's `/chat/support-agent` for customers."""

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

from amoxi_py import configure

STATIC = Path(__file__).parent / "static"
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


@configure
def add_pages(app: FastAPI) -> None:
    """Add the pages. They hold nothing secret: what they show comes from routes that ask who it is for."""
    app.mount("/static", StaticFiles(directory=STATIC))

    @app.get("/", include_in_schema=False)
    async def sign_in() -> FileResponse:
        return FileResponse(STATIC / "sign-in.html", headers=HEADERS)

    @app.get("/desk", include_in_schema=False)
    async def desk() -> FileResponse:
        return FileResponse(STATIC / "desk.html", headers=HEADERS)
