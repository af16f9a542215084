"""Conversion between Milvus's messages and arrays, column by column."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from oasis.codes import Codes
from oasis.index import Ids
from oasis.scale.milvus.engine import protocol
from oasis.scale.milvus.hits import Hits
from oasis.scale.milvus.schema import CODE, EXTRA, ID


def upsert_request(name: str, ids: Ids, codes: Codes, extras: Sequence[bytes] | None) -> Any:
    """Return the request that writes items; ``extras`` are JSON objects, one per item."""
    wire = protocol()
    request = wire.milvus.UpsertRequest(collection_name=name, num_rows=len(ids))
    column = request.fields_data.add(field_name=ID, type=wire.schema.Int64)
    column.scalars.long_data.data.extend(ids.tolist())
    column = request.fields_data.add(field_name=CODE, type=wire.schema.BinaryVector)
    column.vectors.dim = 8 * codes.shape[1]
    column.vectors.binary_vector = codes.tobytes()
    if extras is not None:
        column = request.fields_data.add(field_name=EXTRA, type=wire.schema.JSON, is_dynamic=True)
        column.scalars.json_data.data.extend(extras)
    return request


def delete_request(name: str, expression: str) -> Any:
    wire = protocol()
    return wire.milvus.DeleteRequest(
        collection_name=name, expr=expression, consistency_level=wire.common.Strong
    )


def query_request(name: str, expression: str, fields: Sequence[str], limit: int | None) -> Any:
    """Return the request for the rows that satisfy an expression, the lowest ids first."""
    wire = protocol()
    request = wire.milvus.QueryRequest(
        collection_name=name,
        expr=expression,
        output_fields=fields,
        consistency_level=wire.common.Strong,
    )
    if limit is not None:
        request.query_params.add(key="limit", value=str(limit))
    return request


def search_request(
    name: str,
    codes: Codes,
    k: int,
    expression: str,
    *,
    params: dict[str, float],
    with_codes: bool,
    consistency: str,
    guarantee: int,
) -> Any:
    """Return the request for the k nearest items of each query."""
    wire = protocol()
    group = wire.common.PlaceholderGroup()
    group.placeholders.add(
        tag="$0", type=wire.common.PlaceholderType.BinaryVector, values=[bytes(c) for c in codes]
    )
    request = wire.milvus.SearchRequest(
        collection_name=name,
        dsl=expression,
        dsl_type=wire.common.DslType.BoolExprV1,
        placeholder_group=group.SerializeToString(),
        output_fields=[CODE] if with_codes else [],
        nq=len(codes),
        consistency_level=wire.common.ConsistencyLevel.Value(consistency),
        guarantee_timestamp=guarantee,
    )
    settings = {
        "anns_field": CODE,
        "metric_type": "HAMMING",
        "topk": str(k),
        "round_decimal": "-1",
        "ignore_growing": "False",
        "params": json.dumps(params),
    }
    for key, value in settings.items():
        request.search_params.add(key=key, value=value)
    return request


def read_hits(answer: Any, n_bytes: int, copies: int) -> Hits:
    """Return the hits of a search, per query by distance, then id; codes without copies."""
    results = answer.results
    counts = np.array(results.topks, dtype=np.int64)
    query = np.repeat(np.arange(len(counts)), counts)
    ids = np.array(results.ids.int_id.data, dtype=np.int64)
    distances = np.array(results.scores, dtype=np.float32).astype(np.int32)
    codes = None
    for column in results.fields_data:
        if column.field_name == CODE:
            codes = _codes_in(column, n_bytes, copies)
    return Hits(query, ids, distances, codes).ordered()


def read_rows(answer: Any, n_bytes: int, copies: int) -> tuple[Ids, Codes]:
    """Return the ids and codes of a query, by id; no codes if they were not requested."""
    ids = np.empty(0, dtype=np.int64)
    codes = np.empty((0, n_bytes), dtype=np.uint8)
    for column in answer.fields_data:
        if column.field_name == ID:
            ids = np.array(column.scalars.long_data.data, dtype=np.int64)
        elif column.field_name == CODE:
            codes = _codes_in(column, n_bytes, copies)
    order = np.argsort(ids, kind="stable")
    return ids[order], codes[order] if len(codes) else codes


def read_count(answer: Any) -> int:
    """Return the answer to a query for ``count(*)``."""
    return int(answer.fields_data[0].scalars.long_data.data[0])


def _codes_in(column: Any, n_bytes: int, copies: int) -> Codes:
    stored = np.frombuffer(column.vectors.binary_vector, dtype=np.uint8)
    return stored.reshape(-1, copies * n_bytes)[:, :n_bytes]
