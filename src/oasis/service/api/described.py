"""Answers as ``/openapi.json`` describes them; `wire` writes them from the collection's records."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class HitAnswer(BaseModel):
    """A hit, or those of its fields that were asked for."""

    id: str | int
    score: float = Field(ge=-1, le=1)
    distance: int = Field(description="Hamming distance in bits.")
    payload: dict[str, Any]
    labels: list[str]
    tied: bool = Field(description="Whether a neighbour in the ranking has the same score.")
    weak: bool = Field(description="Whether the query is near to nothing here.")
    predicted: list[str] = Field(description="Classes predicted of an item without labels.")
    text: str | None = Field(
        None, description="How its text begins; where snippets are asked for, and it has one."
    )


class SearchAnswer(BaseModel):
    results: list[list[HitAnswer]] = Field(description="Hits of each query, best first.")
    evidence: list[float] | None = Field(
        None,
        description="Of each item, where it was asked for: from 0 to 1, below 0.5 no known class "
        "fits it.",
    )


class SuggestAnswer(BaseModel):
    text: str | None = Field(
        description="The query with known words for unknown ones; null if none is near."
    )


class RejectedAnswer(BaseModel):
    row: int
    id: str | int
    reason: str


class IngestAnswer(BaseModel):
    ingested: int
    rejected: list[RejectedAnswer]
    n_items: int


class StoredAnswer(BaseModel):
    id: str | int
    payload: dict[str, Any]
    labels: list[str]
    round: int
    code: str = Field(description="The packed bits in base64, least significant bit first.")
    text: str | None = Field(description="The text that was kept of it.")
    predicted: list[str] = Field(description="Classes predicted of an item without labels.")


class LatestAnswer(BaseModel):
    items: list[StoredAnswer] = Field(description="The newest first; texts cut to 1,000.")


class CountAnswer(BaseModel):
    n: int


class IdsAnswer(BaseModel):
    ids: list[str | int]


class ClassAnswer(BaseModel):
    name: str
    n: int = Field(description="Items that have it now.")
    round: int = Field(description="In which it came first; 0 if no round brought it.")
    n_predicted: int = Field(description="Items without labels of which it is predicted.")


class ClassesAnswer(BaseModel):
    classes: list[ClassAnswer]


class FieldAnswer(BaseModel):
    name: str
    kind: Literal["number", "text", "boolean", "list", "object", "mixed"]
    n: int = Field(description="Items of the sample that have it.")
    values: list[Any] = Field(description="Texts or booleans, the most frequent first.")
    complete: bool = Field(description="Whether the sample has no other values.")
    min: float | None
    max: float | None


class FieldsAnswer(BaseModel):
    fields: list[FieldAnswer] = Field(description="Those of most items first.")


class NormsAnswer(BaseModel):
    norms: dict[str, float]


class LimitsAnswer(BaseModel):
    body_bytes: int = Field(description="Of a request.")
    json_bytes: int = Field(description="Of its JSON, in an ingest or an update.")
    search_json_bytes: int = Field(description="Of its JSON, in a search.")
    ids_bytes: int = Field(description="Of a list of ids.")
    batch: int = Field(description="Samples of an ingest, or queries of a search.")
    raw_batch: int = Field(description="Of them, when features have to be made first.")
    k: int = Field(description="Hits of a query.")
    hits: int = Field(description="Hits of all queries of a request, those skipped included.")
    pixels: int = Field(description="Width x height of a picture.")


class RoundAnswer(BaseModel):
    number: int
    time: float = Field(description="Seconds since 1970.")
    n: int
    n_labelled: int
    new_classes: list[str]
    precision: float | None = Field(description="Precision among the ten best hits.")
    chance: float | None
    seconds: float
    bytes: int


class RoundsAnswer(BaseModel):
    rounds: list[RoundAnswer]


class StatsAnswer(BaseModel):
    n_items: int
    n_seen: int
    n_rounds: int
    n_classes: int
    n_bits: int
    modalities: dict[str, int]
    commits: int
    journal_entries: int
    extractor: dict[str, Any] | None
    bytes: dict[str, int]
    index: Literal["local", "milvus"] = Field(description="Where the codes are searched.")
    n_content_bits: int = Field(description="Bits that say what the item is beside its labels.")
    keep_text: bool = Field(description="Whether texts of items are kept.")
    readonly: bool


class FindingsAnswer(BaseModel):
    findings: list[str] = Field(description="What is wrong, in words; empty if nothing is.")


class HealthAnswer(BaseModel):
    status: Literal["live", "ready"]


class ProblemAnswer(BaseModel):
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[dict[str, str]] | None = Field(
        None, description="Where in the body (a JSON pointer), and what is wrong there."
    )
