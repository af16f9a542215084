"""Errors as problem details (RFC 9457): what was wrong, and where in the request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Response

from oasis.errors import (
    CollectionError,
    DataError,
    DuplicateIdError,
    EngineError,
    FormatError,
    InputError,
    LockedError,
    MissingExtraError,
    NotFittedError,
    OasisError,
    StorageError,
    TooLargeError,
    UnknownIdError,
    UnknownWordError,
)

MEDIA_TYPE = "application/problem+json"

_MAX_DETAIL = 2_000

_STATUS: tuple[tuple[type[OasisError], int, str], ...] = (
    (UnknownIdError, 404, "unknown-id"),
    (DuplicateIdError, 409, "duplicate-id"),
    (UnknownWordError, 422, "unknown-word"),
    (TooLargeError, 413, "answer-too-large"),
    (InputError, 422, "input"),
    (NotFittedError, 409, "not-fitted"),
    (DataError, 422, "data"),
    (MissingExtraError, 501, "missing-extra"),
    (LockedError, 503, "locked"),
    (EngineError, 503, "engine"),
    (StorageError, 507, "storage"),
    (CollectionError, 503, "collection"),
    (FormatError, 500, "format"),
)
"""Error -> status and kind, the first that fits. The client turns kinds into the same errors."""

_LOGGED = "The log of the service says what happened, under the id of this request"
_TOLD = {
    "locked": "another process writes to the collection; try again later",
    "engine": "the engine that searches the codes failed, or gave no answer in time; try again "
    f"later. {_LOGGED}",
    "storage": "the disk of the service is full, read-only or failing; what was acknowledged is "
    f"unchanged. {_LOGGED}",
    "collection": f"the collection cannot be used so now. {_LOGGED}",
    "format": f"a file of the collection is damaged, or was written by another version. {_LOGGED}",
}
"""Sent instead of the error's text, which may contain hosts and paths of the service."""

_TITLES = {
    400: "The request cannot be read",
    401: "A token is needed",
    403: "This is not allowed",
    404: "There is no such thing",
    405: "This method is not known here",
    408: "The request came too slowly",
    409: "This does not fit the collection as it is",
    413: "The request, or its answer, is too large",
    415: "This form of body is not known",
    421: "Unknown Host header",
    422: "What was sent cannot be used",
    429: "Too much at once",
    431: "The head of the request is too large",
    500: "Something went wrong in the service",
    501: "This service lacks something for that",
    503: "The service cannot do that now",
    507: "The disk refused",
}


class Problem(Exception):
    """A request that is refused.

    Parameters
    ----------
    status : int
    kind : str
        A short name of the kind of problem, for programs.
    detail : str
        For people: what was found, what was expected, the way out.
    errors : sequence of (pointer, detail)
        Where in the body, as a JSON pointer.
    headers : mapping
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.errors = errors
        self.headers = dict(headers or {})

    @classmethod
    def of(cls, error: OasisError) -> Problem:
        """Return the problem that stands for an error of the collection."""
        for known, status, kind in _STATUS:
            if isinstance(error, known):
                return cls(status, kind, _TOLD.get(kind, str(error)))
        return cls(500, "internal", "the service has logged what happened")

    def document(self, request_id: str) -> dict[str, Any]:
        """Return the problem details as JSON has them."""
        found: dict[str, Any] = {
            "type": f"urn:oasis:problem:{self.kind}",
            "title": _TITLES.get(self.status, "The request is refused"),
            "status": self.status,
            "detail": self.detail[:_MAX_DETAIL],
            "instance": f"urn:oasis:request:{request_id}",
        }
        if self.errors:
            found["errors"] = [
                {"pointer": pointer, "detail": detail} for pointer, detail in self.errors
            ]
        return found

    def response(self, request_id: str) -> Response:
        """Return the problem as an answer."""
        return Response(
            json.dumps(self.document(request_id)),
            self.status,
            headers=self.headers,
            media_type=MEDIA_TYPE,
        )


def busy(detail: str, seconds: float = 1.0, status: int = 503) -> Problem:
    """Return the problem of an overloaded service, with a Retry-After header."""
    return Problem(status, "busy", detail, headers={"Retry-After": str(max(1, round(seconds)))})


def at_pointer(pointer: str, detail: str) -> Problem:
    """Return the problem of one place in the body."""
    return Problem(422, "input", detail, [(pointer, detail)])
