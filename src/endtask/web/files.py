"""The files of pages: style sheet and scripts."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import FileResponse, Response
from starlette.exceptions import HTTPException

from endtask.web.site import static_file, style_sheet

router = APIRouter(include_in_schema=False)
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#0b62a3"/>'
    '<path d="M4 5h8M4 8h8M4 11h5" stroke="#fff" stroke-width="1.6"/></svg>'
)


@router.get("/static/pages.css")
def style() -> Response:
    """Return the style sheet."""
    return Response(style_sheet(), media_type="text/css")


@router.get("/static/icon.svg")
@router.get("/favicon.ico")
async def icon() -> Response:
    """Return the icon of the pages."""
    return Response(_ICON, media_type="image/svg+xml")


@router.get("/static/{name}")
def script(name: str) -> Response:
    """Return a script."""
    file = static_file(name)
    if file is None or file.suffix != ".js":
        raise HTTPException(404, "no such file")
    return FileResponse(file, media_type="text/javascript")
