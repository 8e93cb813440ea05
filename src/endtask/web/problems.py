"""Answers to wrong requests: JSON from the API, a page from pages; never a traceback."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from endtask.errors import InputError
from endtask.web.run_index import UnknownRun
from endtask.web.security import refusal


class Problem(BaseModel):
    """Why a request was not answered, in a line."""

    detail: str


PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "not JSON, or for another server"},
    404: {"model": Problem, "description": "no such run"},
    413: {"model": Problem, "description": "too large"},
    422: {"model": Problem, "description": "wrong values"},
}
CONFLICT: dict[int | str, dict[str, Any]] = {409: {"model": Problem, "description": "not in this state of the run"}}


def add_problem_handlers(app: FastAPI) -> None:
    """Register the answers to errors."""

    def wrong_input(request: Request, error: Exception) -> Response:
        return _answer(request, 404 if isinstance(error, UnknownRun) else 422, _without_root(request, str(error)))

    def wrong_values(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _answer(request, 422, _in_words(error))

    def wrong_request(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _answer(request, error.status_code, str(error.detail), dict(error.headers or {}))

    def own_mistake(request: Request, error: Exception) -> Response:
        return _answer(request, 500, "an error of endtask; its terminal has the details")

    app.add_exception_handler(InputError, wrong_input)
    app.add_exception_handler(RequestValidationError, wrong_values)
    app.add_exception_handler(HTTPException, wrong_request)
    app.add_exception_handler(Exception, own_mistake)


def _answer(request: Request, status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    if request.url.path.startswith(("/api/", "/static/")):
        return refusal(status, reason, headers)
    page: Response = request.app.state.site.page("problem.html.jinja", status=status, title="Problem", reason=reason)
    page.headers.update(headers or {})
    return page


def _in_words(error: RequestValidationError) -> str:
    """Return the first mistake, with its key; never the value, which may be anything."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"] if part != "body")
    return f"{key}: {first['msg']}" if key else str(first["msg"])


def _without_root(request: Request, message: str) -> str:
    """Return a message whose paths start at the served folder: clients need not know where it is."""
    root = str(request.app.state.site.root)
    return message.replace(f"{root}/", "").replace(root, "the served folder")
