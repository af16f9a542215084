"""Common to all operations: their routes and descriptions, permissions, limits, and ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, create_model

from oasis.service.bodies import FORM, JSON, TENSORS, read_body
from oasis.service.problems import MEDIA_TYPE, Problem, at_pointer
from oasis.service.settings import Scope
from oasis.service.shapes import IdsRequest, ProblemAnswer
from oasis.service.work import Asked, Call

bearer = HTTPBearer(auto_error=False, description="A read token, or the write token.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
_STATUSES = (400, 401, 403, 404, 408, 409, 413, 415, 421, 422, 429, 503)
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemAnswer, "content": {MEDIA_TYPE: {}}} for status in _STATUSES
}

router = APIRouter()
"""All operations; the modules that import it add theirs."""


async def reading(call: Asked, credentials: Credentials) -> None:
    """Refuse callers that may not read."""
    _check(call, credentials, Scope.READ)


async def writing(call: Asked, credentials: Credentials) -> None:
    """Refuse callers that may not write."""
    _check(call, credentials, Scope.WRITE)
    if call.collection.readonly:
        raise Problem(403, "readonly", "this service only reads; another process writes")


def _check(call: Call, credentials: Credentials, wanted: Scope) -> None:
    tokens = call.service.settings.tokens
    scope = tokens.scope(credentials.credentials if credentials else None)
    if scope >= wanted:
        call.charge(1.0)
        return
    if scope > Scope.NOTHING:
        raise Problem(403, "scope", "this token may read, but not write")
    found = "it is not a known one" if credentials else "there is none"
    raise Problem(
        401,
        "token",
        f"a token is needed, and {found}; send it as: Authorization: Bearer TOKEN (commands take "
        "it from OASIS_TOKEN or --token-file)",
        headers={"WWW-Authenticate": "Bearer"},
    )


def get(path: str, **gives: Any) -> Callable[[Any], Any]:
    """Return what makes a function the route of a read; ``gives`` are the fields of its answer."""
    return router.get(path, dependencies=[Depends(reading)], responses=described(path, gives))


def post(
    path: str,
    takes: type[BaseModel] | None = None,
    *kinds: str,
    writes: bool = False,
    method: str = "POST",
    **gives: Any,
) -> Callable[[Any], Any]:
    """Return what makes a function the route of an operation with a body.

    The body is decoded by `read_body`: as JSON, or as one of the ``kinds``.
    """
    return router.api_route(
        path,
        methods=[method],
        dependencies=[Depends(writing if writes else reading)],
        responses=described(path, gives),
        openapi_extra=None if takes is None else _body(takes, kinds),
    )


def described(path: str, fields: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    """Describe the answers of an operation: a record (``of``), or an object with some fields."""
    if "of" in fields:
        return {200: {"model": fields["of"]}, **PROBLEMS}
    name = f"{path.rsplit('/', 1)[-1].title()}Answer"
    return {200: {"model": create_model(name, **fields)}, **PROBLEMS}


def _body(form: type[BaseModel], kinds: tuple[str, ...]) -> dict[str, Any]:
    own = {"$ref": f"#/components/schemas/{form.__name__}"}
    content: dict[str, Any] = {JSON: {"schema": own}}
    if FORM in kinds:
        file = {"type": "string", "format": "binary"}
        properties = {"request": own, "image.0": file, "image.1": file}
        content[FORM] = {"schema": {"type": "object", "properties": properties}}
    if TENSORS in kinds:
        content[TENSORS] = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": content}}


# -- limits and ids ----------------------------------------------------------------------------


def n_rows(X: dict[str, Any]) -> int:
    """Return how many rows the longest of the matrices has."""
    return max((matrix.shape[0] for matrix in X.values()), default=0)


def check_batch(call: Call, n: int) -> None:
    """Refuse more samples, queries or ids than are taken at once."""
    if n > call.limits.batch:
        raise _too_many(f"at most {call.limits.batch} rows are taken at once, got {n}")


def check_raw(call: Call, n: int) -> None:
    """Refuse more raw items than are taken at once."""
    if n > call.limits.raw_batch:
        raise _too_many(f"at most {call.limits.raw_batch} raw items are taken at once, got {n}")


def check_hits(call: Call, n: int, each: int) -> None:
    """Refuse queries with more hits together than one answer has."""
    if n * each > call.limits.hits:
        raise _too_many(
            f"{n} queries with {each} hits each are too many: at most {call.limits.hits} hits are "
            "found at once"
        )


def _too_many(detail: str) -> Problem:
    return Problem(413, "too-large", detail)


ItemId = Annotated[str, Query(min_length=1, max_length=1024, description="The id of an item.")]
IdKind = Annotated[
    Literal["text", "number"], Query(description="Whether the id is a text or a whole number.")
]


def item_id(text: str, kind: str) -> str | int:
    """Return the id that is given in the query string."""
    if kind == "text":
        return text
    try:
        return int(text)
    except ValueError:
        raise at_pointer("/id", f"the id {text[:100]!r} is no whole number") from None


async def read_ids(request: Request, call: Call) -> list[str | int]:
    """Return the ids that the body of a request lists."""
    body = await read_body(request, call, IdsRequest, call.limits.ids_bytes)
    check_batch(call, len(body.request.ids))
    return body.request.ids
