"""Putting the application together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from oasis.collection import Collection
from oasis.errors import OasisError
from oasis.service.api import changing, pages, routes, searching
from oasis.service.api.direct import Direct
from oasis.service.api.served import Service
from oasis.service.api.wire import REQUESTS
from oasis.service.http.guard import Guard
from oasis.service.http.problems import Problem, response_to, response_to_error
from oasis.service.settings import Settings

_SUMMARY = """\
A collection over HTTP: it learns from a stream and finds things again.

Vectors may be sent as JSON, or as safetensors (`application/x-safetensors`): a tensor a modality,
the rest of the request as JSON under `request` in the metadata. Errors are problem details
(RFC 9457).
"""


def assemble(collection: Collection, settings: Settings) -> FastAPI:
    """Return the application; see `oasis.service.create_app`."""
    service = Service(collection, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="oasis",
        version=version("oasis-hash"),
        description=_SUMMARY,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    app.include_router(searching.router)
    app.include_router(changing.router)
    app.include_router(routes.router)
    app.include_router(pages.router())
    # each one lies around those before it
    app.add_middleware(
        Direct, service=service, route=searching.search_route(), endpoint=searching.search_directly
    )
    app.add_middleware(Guard, service=service)
    app.add_exception_handler(Problem, _of_problem)
    app.add_exception_handler(OasisError, _of_error)
    app.add_exception_handler(RequestValidationError, _of_parameters)
    app.add_exception_handler(HTTPException, _of_http)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _of_problem(request: Request, error: Exception) -> Response:
    if not isinstance(error, Problem):
        raise error
    return response_to(request, error)


def _of_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, OasisError):
        raise error
    return response_to_error(request, error)


def _of_parameters(request: Request, error: Exception) -> Response:
    """Tell what is wrong with the query of an address, without repeating what was sent."""
    if not isinstance(error, RequestValidationError):
        raise error
    found = [
        (f"/{'/'.join(map(str, each['loc'][1:]))}"[:200], str(each["msg"]))
        for each in error.errors()
    ]
    detail = "; ".join(f"{pointer[1:]}: {reason}" for pointer, reason in found)
    return response_to(request, Problem(422, "input", detail, found))


def _of_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    kinds = {404: "no-route", 405: "method"}
    detail = {404: "there is nothing at this address; /docs lists what there is"}.get(
        error.status_code, str(error.detail)
    )
    kind = kinds.get(error.status_code, "request")
    return response_to(request, Problem(error.status_code, kind, detail, headers=error.headers))


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Return the description of the API, with the bodies that routes decode themselves."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        components = schema["components"]["schemas"]
        for model in REQUESTS:
            own = model.model_json_schema(ref_template="#/components/schemas/{model}")
            components.update(own.pop("$defs", {}))
            components[model.__name__] = own
        app.openapi_schema = schema
    return app.openapi_schema
