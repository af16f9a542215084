"""The API on a real server process: what is answered, what is refused, and how it stops."""

import asyncio
import base64
import io
import json
import os
import re
import struct
import subprocess
import sys
import threading
import zlib

import numpy as np
import pytest
import safetensors.numpy
from PIL import Image
from service_data import ALIKE, N, extractor, fill, fill_alike, item, picture, vectors
from serving import Serving, asgi, asgi_async, form, serving
from threadpoolctl import threadpool_info, threadpool_limits

from oasis.client import Client
from oasis.collection import Collection
from oasis.collection.search.queries import Queries
from oasis.collection.search.question import Question
from oasis.errors import BusyError, InputError
from oasis.service import Limits, Settings, Tokens, create_app
from oasis.service.api import searching
from oasis.service.api.direct import Direct
from oasis.service.api.pictures import original
from oasis.service.api.writing import WriterQueue
from oasis.service.http.counters import Counters
from oasis.service.http.problems import Problem

TENSORS = "application/x-safetensors"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(fill(tmp_path_factory.mktemp("service") / "c"), "--max-body", "4") as running:
        yield running


def search(server, **asked):
    status, found = server.json("POST", "/v1/search", asked)
    assert status == 200, found
    return found["results"]


def problem(server, *request, **options):
    status, headers, content = server.ask(*request, **options)
    assert headers["Content-Type"] == "application/problem+json", content
    found = json.loads(content)
    assert found["status"] == status and found["detail"] and found["title"]
    assert found["instance"] == f"urn:oasis:request:{headers['X-Request-ID']}"
    assert "Traceback" not in content.decode() and ".py" not in content.decode()
    return status, found


# -- searching ---------------------------------------------------------------------------------


def test_search_by_words_text_picture_both_and_like(server):
    assert search(server, words=["cat", "sea"], k=2)[1][0]["labels"] == ["sea"]
    assert search(server, items=[{"text": "anchor"}], k=1)[0][0]["labels"] == ["sea"]
    image = base64.b64encode(picture("sky", 70)).decode()
    assert search(server, items=[{"image": image}], k=1)[0][0]["labels"] == ["sky"]
    both = search(server, items=[{"image": image, "text": "cloud"}], k=1)
    assert both[0][0]["labels"] == ["sky"]
    (near,) = search(server, like="item/1", k=3, where={"$labels": {"has": "sea"}})
    assert len(near) == 3 and all(hit["id"] != "item/1" for hit in near)
    body, kind = form({"items": [{}], "k": 1}, {"image.0": picture("sky", 70)})
    status, found = server.json("POST", "/v1/search", body, kind=kind)
    assert status == 200 and found["results"] == search(server, items=[{"image": image}], k=1)


def test_search_by_kind_and_by_content(server, tmp_path):
    with serving(fill_alike(tmp_path / "c")) as alike:
        for row, word in enumerate(ALIKE[:4]):
            (hits,) = search(alike, items=[{"text": word}], k=1, content=1)
            assert hits[0]["id"] == row
            (hits,) = search(alike, items=[{"text": word}], k=1, content=0.0)
            assert hits[0]["id"] == 0
        (near,) = search(alike, like=5, content=0.7)
        assert [hit["id"] for hit in near] != [
            hit["id"] for hit in search(alike, like=5, content=0)[0]
        ]
        for bad in (-0.1, 1.01, "1", True):
            body = {"like": 5, "content": bad}
            status, found = problem(alike, "POST", "/v1/search", json.dumps(body).encode())
            assert status == 422 and found["errors"][0]["pointer"] == "/content"
        status, found = problem(
            alike, "POST", "/v1/search", json.dumps({"words": ["sea"], "content": 0.5}).encode()
        )
        assert status == 422 and "words ask for the kind alone" in str(found)
    # codes without content bits
    body = {"like": "item/1", "content": 0.5}
    status, found = problem(server, "POST", "/v1/search", json.dumps(body).encode())
    assert status == 422 and "no content bits" in found["detail"]


def test_vectors_as_lists_and_as_tensors_give_the_same(server):
    X, _ = vectors(3)
    lists = search(server, vectors={name: m.tolist() for name, m in X.items()}, k=5, offset=2)
    body = safetensors.numpy.save(X, {"request": json.dumps({"k": 5, "offset": 2})})
    status, found = server.json("POST", "/v1/search", body, kind=TENSORS)
    assert status == 200  # lists are of double precision
    for ours, theirs in zip(found["results"], lists, strict=True):
        assert [hit["id"] for hit in ours] == [hit["id"] for hit in theirs]
        scores = [[hit["score"] for hit in hits] for hits in (ours, theirs)]
        np.testing.assert_allclose(*scores, atol=1e-5)
    assert len(body) <= sum(4 * matrix.size for matrix in X.values()) + 1024


# -- looking -----------------------------------------------------------------------------------


def test_items_are_told_apart_by_the_kind_of_their_id(server):
    status, found = server.json("GET", "/v1/item?id=4&kind=number")
    assert status == 200 and found["id"] == 4 and found["payload"]["year"] == 2004
    assert server.json("GET", "/v1/item?id=4")[0] == 404
    assert server.json("GET", "/v1/item?id=item%2F1")[1]["labels"] == ["sea"]
    assert server.json("GET", "/v1/item?id=four&kind=number")[0] == 422
    assert server.json("GET", "/v1/item?id=")[0] == 422


def test_thumbnails_come_from_the_collection_with_a_tag(server):
    status, headers, content = server.ask("GET", "/v1/thumbnail?id=item/1")
    assert status == 200 and headers["Content-Type"] == "image/png"
    assert content == item(1)["image"]
    again = server.ask("GET", "/v1/thumbnail?id=item/1", headers={"If-None-Match": headers["ETag"]})
    assert again[0] == 304 and not again[2]
    assert server.ask("GET", "/v1/thumbnail?id=../../etc/passwd")[0] == 404


def test_the_largest_picture_is_kept_as_a_preview(server):
    large = picture("cat", 5, side=700, form="JPEG")
    body, kind = form({"items": [{"id": "large", "labels": ["cat"]}]}, {"image.0": large})
    assert server.json("POST", "/v1/ingest", body, kind=kind)[1]["ingested"] == 1
    sizes = {}
    for route in ("thumbnail", "preview"):
        status, headers, content = server.ask("GET", f"/v1/{route}?id=large")
        assert status == 200 and headers["Content-Type"] == "image/jpeg"
        sizes[route] = Image.open(io.BytesIO(content)).size
    assert sizes == {"thumbnail": (160, 160), "preview": (512, 512)}
    # where there is none, the thumbnail is the largest
    assert server.ask("GET", "/v1/preview?id=item/1")[2] == item(1)["image"]
    assert server.json("GET", "/v1/preview?id=none")[0] == 404
    plain = {"id": "plain", "text": "paw", "labels": ["cat"]}
    assert server.json("POST", "/v1/ingest", {"items": [plain]})[0] == 200
    for route in ("thumbnail", "preview"):
        assert server.json("GET", f"/v1/{route}?id=plain")[0] == 404
        status, _, content = server.ask("GET", f"/v1/{route}?id=plain&none=empty")
        assert status == 204 and not content
    assert [each["id"] for each in server.json("GET", "/v1/latest?k=2")[1]["items"]] == [
        "plain",
        "large",
    ]
    assert server.json("GET", "/v1/latest?k=101")[0] == 422
    assert server.json("POST", "/v1/delete", {"ids": ["plain"]})[0] == 200
    assert server.json("POST", "/v1/delete", {"ids": ["large"]})[0] == 200
    assert server.json("GET", "/v1/preview?id=large")[0] == 404


def test_originals_come_from_one_folder_alone(tmp_path):
    folder, outside = tmp_path / "photos", tmp_path / "secret.png"
    (folder / "sub").mkdir(parents=True)
    png = picture("sky", 3, side=32)
    outside.write_bytes(png)
    (folder / "sub" / "a.png").write_bytes(png)
    (folder / "large.png").write_bytes(png + bytes(200))
    (folder / "script.svg").write_text("<svg onload='x()'/>")
    (folder / "inside.png").symlink_to(folder / "sub" / "a.png")
    (folder / "leak.png").symlink_to(outside)
    (folder / "away").symlink_to(tmp_path)
    (folder / "loop.png").symlink_to(folder / "loop.png")
    found = {"sub/a.png", "inside.png", str(folder / "sub" / "a.png"), "sub/../sub/a.png"}
    refused = {
        "leak.png", "away/secret.png", "../secret.png", str(outside), "/etc/passwd", "script.svg",
        "large.png", "sub", ".", "loop.png", "none.png", "a\0b.png", "x" * 5000,
    }  # fmt: skip
    limit = len(png) + 100
    for name in sorted(found | refused):
        for id_, payload in ((name, {}), (7, {"path": name}), ("other", {"image": name})):
            expected = png if name in found else None
            assert original(folder, id_, payload, limit) == expected, name
    assert original(folder, 7, {"path": 7, "image": None, "file": ["a"]}, limit) is None


def test_originals_are_served_in_place_of_previews(tmp_path):
    (tmp_path / "item").mkdir()
    large = picture("sea", 1, side=300)
    (tmp_path / "item" / "1").write_bytes(large)
    with Collection.open(fill(tmp_path / "c", 12)) as c:
        app = create_app(c, Settings(pictures=tmp_path))
        status, heads, content = asgi(app, "GET", "/v1/preview?id=item/1")
        assert (status, heads["content-type"], content) == (200, "image/png", large)
        assert asgi(app, "GET", "/v1/preview?id=item/2")[2] == item(2)["image"]
        assert asgi(app, "GET", "/v1/thumbnail?id=item/1")[2] == item(1)["image"]
        app.state.service.close()
    with pytest.raises(InputError, match="no folder"):
        Settings.of("127.0.0.1", Tokens(), pictures=tmp_path / "none")


def test_classes_rounds_stats_and_health(server):
    names = [each["name"] for each in server.json("GET", "/v1/classes")[1]["classes"]]
    assert names[:3] == ["sky", "sea", "cat"]
    first, second, *_ = server.json("GET", "/v1/rounds")[1]["rounds"]
    assert first["new_classes"] == ["sky", "sea", "cat"] and first["precision"] is None
    assert second["precision"] > second["chance"]
    stats = server.json("GET", "/v1/stats")[1]
    assert stats["n_bits"] == 32 and stats["n_content_bits"] == 0
    assert server.json("GET", "/health/live") == (200, {"status": "live"})
    assert server.json("GET", "/health/ready") == (200, {"status": "ready"})


def test_hits_carry_how_their_texts_begin(server):
    (hits,) = search(server, like="item/1", k=5, snippet=6)
    texts = {each["id"]: each["text"] for each in map(item, range(N))}
    assert all(hit["text"] == texts[hit["id"]][:6] for hit in hits)
    (hits,) = search(server, like="item/1", k=5, fields=["score"], snippet=3)
    assert all(set(hit) == {"score", "text"} and len(hit["text"]) == 3 for hit in hits)
    assert "text" not in search(server, like="item/1", k=1)[0][0]
    assert server.json("POST", "/v1/search", {"like": "item/1", "snippet": 5000})[0] == 422


def test_evidence_is_told_where_it_is_asked_for(server):
    asked = {"items": [{"text": "paw whisker"}, {"text": "zzz"}], "k": 2, "evidence": True}
    found = server.json("POST", "/v1/search", asked)[1]
    assert len(found["results"]) == 2 and len(found["evidence"]) == 2
    assert 0 <= found["evidence"][1] < found["evidence"][0] <= 1
    assert "evidence" not in server.json("POST", "/v1/search", {**asked, "evidence": False})[1]
    words = {"words": ["cat"], "evidence": True}
    assert problem(server, "POST", "/v1/search", words)[0] == 422


def test_fields_are_listed_with_examples(server):
    found = {each["name"]: each for each in server.json("GET", "/v1/fields")[1]["fields"]}
    assert found["year"]["kind"] == "number" and found["year"]["min"] == 2000
    assert found["title"]["kind"] == "text" and len(found["title"]["values"]) == 20


def test_the_api_describes_itself(server):
    _, described = server.json("GET", "/openapi.json")
    paths = set(described["paths"])
    assert {"/v1/search", "/v1/ingest", "/v1/item", "/v1/delete", "/metrics"} <= paths
    text = json.dumps(described)
    for name in text.split('"#/components/schemas/')[1:]:
        assert name.split('"')[0] in described["components"]["schemas"]
    assert server.ask("GET", "/docs")[0] == 200


# -- changing ----------------------------------------------------------------------------------


def test_an_item_is_found_at_once_and_can_be_deleted(server):
    new = {"id": "fresh", "text": "paw whisker", "labels": ["cat"], "payload": {"title": "new"}}
    body, kind = form({"items": [new]}, {"image.0": picture("cat", 80, form="JPEG")})
    status, found = server.json("POST", "/v1/ingest", body, kind=kind)
    assert status == 200 and found["ingested"] == 1 and not found["rejected"]
    hits = search(server, items=[{"text": "paw whisker"}], k=N, where={"title": "new"})[0]
    assert [hit["id"] for hit in hits] == ["fresh"]
    status, headers, thumbnail = server.ask("GET", "/v1/thumbnail?id=fresh")
    assert headers["Content-Type"] == "image/jpeg" and len(thumbnail) <= 10 * 1024
    again = server.json("POST", "/v1/ingest", {"items": [new]})[1]
    assert again["ingested"] == 0 and "already" in again["rejected"][0]["reason"]
    assert server.json("POST", "/v1/ingest", {"items": [new], "strict": True})[0] == 422
    assert server.json("POST", "/v1/delete", {"ids": ["fresh"]}) == (200, {"n": 1})
    assert problem(server, "POST", "/v1/delete", {"ids": ["fresh"]})[0] == 404


def test_vectors_are_ingested_with_ids_and_payload(server):
    X, y = vectors(4, seed=9)
    asked = {"labels": y, "ids": ["v0", 10**18, "v2", "v3"], "payload": [{"a": 1}, None, {}, {}]}
    body = safetensors.numpy.save(X, {"request": json.dumps(asked)})
    assert server.json("POST", "/v1/ingest", body, kind=TENSORS)[1]["ingested"] == 4
    status, found = problem(server, "POST", "/v1/ingest", body, kind=TENSORS)
    assert status == 409 and found["type"].endswith(":duplicate-id")
    assert server.json("GET", f"/v1/item?id={10**18}&kind=number")[0] == 200
    assert server.json("POST", "/v1/delete", {"ids": asked["ids"]})[1]["n"] == 4


def test_an_item_is_changed_in_place(server):
    before = server.json("GET", "/v1/item?id=item/5")[1]
    status, found = server.json("PATCH", "/v1/item?id=item/5", {"labels": ["boat", "sea"]})
    assert (status, found) == (200, {**before, "labels": ["boat", "sea"]})
    hits = search(server, words=["sea"], k=N, where={"$labels": {"has": "boat"}})[0]
    assert [(hit["id"], hit["labels"]) for hit in hits] == [("item/5", ["boat", "sea"])]
    (info,) = [e for e in server.json("GET", "/v1/classes")[1]["classes"] if e["name"] == "boat"]
    assert info == {"name": "boat", "n": 1, "round": 0, "n_predicted": 0}
    status, found = server.json("PATCH", "/v1/item?id=8&kind=number", {"payload": {"year": 1}})
    assert (status, found["payload"], found["labels"]) == (200, {"year": 1}, ["cat"])
    for body, wanted in (
        ({}, 422),
        ({"labels": "sea"}, 422),
        ({"labels": [""]}, 422),
        ({"labels": [3]}, 422),
        ({"payload": [1]}, 422),
        ({"code": "x"}, 422),
    ):
        assert problem(server, "PATCH", "/v1/item?id=item/5", body)[0] == wanted
    assert problem(server, "PATCH", "/v1/item?id=none", {"labels": []})[0] == 404
    assert problem(server, "PATCH", "/v1/item?id=x&kind=number", {"labels": []})[0] == 422
    assert server.json("GET", "/v1/item?id=item/5")[1]["labels"] == ["boat", "sea"]
    restored = {name: before[name] for name in ("labels", "payload")}
    assert server.json("PATCH", "/v1/item?id=item/5", restored) == (200, before)
    assert server.json("POST", "/v1/check", {})[1] == {"findings": []}


def test_items_are_replaced_where_it_is_asked_for(server):
    new = {"id": "swap", "text": "paw whisker", "labels": ["cat"], "payload": {"n": 1}}
    assert server.json("POST", "/v1/ingest", {"items": [new]})[1]["ingested"] == 1
    other = {"id": "swap", "text": "boat anchor"}
    missing = {"id": "nobody", "text": "boat"}
    asked = {"items": [other, missing], "replace": True}
    status, found = server.json("POST", "/v1/ingest", asked)
    assert (status, found["ingested"]) == (200, 1)
    assert found["rejected"] == [
        {"row": 1, "id": "nobody", "reason": "no item has the id 'nobody'"}
    ]
    stored = server.json("GET", "/v1/item?id=swap")[1]
    assert (stored["text"], stored["labels"], stored["payload"]) == ("boat anchor", [], {})
    assert stored["predicted"] == ["sea"]
    X, y = vectors(1, seed=4)
    lists = {name: matrix.tolist() for name, matrix in X.items()}
    asked = {"vectors": lists, "labels": y, "ids": ["swap"], "replace": True}
    assert server.json("POST", "/v1/ingest", asked)[1]["ingested"] == 1
    assert server.json("GET", "/v1/item?id=swap")[1]["labels"] == y[0]
    assert problem(server, "POST", "/v1/ingest", {**asked, "ids": ["nobody"]})[0] == 404
    del asked["ids"]
    assert problem(server, "POST", "/v1/ingest", asked)[0] == 422
    assert server.json("POST", "/v1/delete", {"ids": ["swap"]})[0] == 200


def test_predicted_labels_are_told_and_filtered_by(server):
    assert server.json("POST", "/v1/ingest", {"items": [{"id": "bare", "text": "paw whisker"}]})[0]
    where = {"$labels": {"has": "cat", "predicted": True}}
    hits = search(server, items=[{"text": "paw whisker"}], k=N, where=where)[0]
    (bare,) = [hit for hit in hits if hit["id"] == "bare"]
    assert (bare["labels"], bare["predicted"]) == ([], ["cat"])
    where["$labels"]["predicted"] = False
    hits = search(server, items=[{"text": "paw whisker"}], k=N, where=where)[0]
    assert "bare" not in [hit["id"] for hit in hits]
    (newest,) = server.json("GET", "/v1/latest?k=1")[1]["items"]
    assert (newest["id"], newest["predicted"]) == ("bare", ["cat"])
    found = server.json("PATCH", "/v1/item?id=bare", {"labels": ["sky"]})[1]
    assert (found["labels"], found["predicted"]) == (["sky"], [])
    assert server.json("POST", "/v1/delete", {"ids": ["bare"]})[0] == 200


# -- refusals ----------------------------------------------------------------------------------


def test_problems_say_what_is_wrong_and_where(server):
    status, found = problem(server, "POST", "/v1/search", {"words": ["cat"], "k": 0, "mode": "x"})
    assert status == 422
    assert {each["pointer"] for each in found["errors"]} == {"/k", "/mode"}
    status, found = problem(server, "POST", "/v1/search", {"items": [{}, {"text": 3}]})
    assert found["errors"][0]["pointer"] == "/items/1/text"
    cases = [
        ({}, 422),
        ({"words": ["cat"], "like": 1}, 422),
        ({"like": 1.5}, 422),
        ({"like": True}, 422),
        ({"like": "none"}, 404),
        ({"words": ["unheard"]}, 422),
        ({"words": ["cat"], "k": 1001}, 422),
        ({"words": ["cat"], "offset": 10**9}, 422),
        ({"words": ["cat"], "where": {"year": {"near": 1}}}, 422),
        ({"vectors": {"image": [[1, 2], [1]]}}, 422),
        ({"vectors": {"image": []}, "k": 1}, 422),
        ({"items": [{}]}, 422),
    ]
    for asked, wanted in cases:
        assert problem(server, "POST", "/v1/search", asked)[0] == wanted, asked
    assert problem(server, "GET", "/nothing")[0] == 404
    assert problem(server, "GET", "/static/../app.py")[0] == 404
    assert problem(server, "DELETE", "/v1/stats")[0] == 405
    assert problem(server, "POST", "/v1/search", b"{}", kind="text/plain")[0] == 415


def test_a_string_is_never_a_path(server, tmp_path):
    path = tmp_path / "abcd"  # a path that could be base64
    path.write_bytes(picture("sea", 1))
    for text in (str(path), "/etc/hostname", "abcd"):
        status, found = problem(server, "POST", "/v1/search", {"items": [{"image": text}]})
        assert status == 422 and "hostname" not in found["detail"]


def huge_png(side):
    """A PNG that only claims to be large."""

    def part(kind, content):
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    data = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", data) + part(b"IEND", b"")


def test_limits_on_sizes(server):
    for side in (7_000, 12_000, 60_000):
        body, kind = form({"items": [{}]}, {"image.0": huge_png(side)})
        status, found = problem(server, "POST", "/v1/search", body, kind=kind)
        assert status == 422 and "pixels" in found["detail"]
        asked = {"items": [{"id": "x", "labels": ["sky"]}]}
        body, kind = form(asked, {"image.0": huge_png(side)})
        status, found = server.json("POST", "/v1/ingest", body, kind=kind)
        assert status == 200 and "pixels" in found["rejected"][0]["reason"]
        body, kind = form({**asked, "strict": True}, {"image.0": huge_png(side)})
        assert problem(server, "POST", "/v1/ingest", body, kind=kind)[0] == 422
    asked = {"items": [{"text": "a"}] * 257}
    assert problem(server, "POST", "/v1/search", asked)[0] == 413
    asked = {"words": ["cat"] * 200, "k": 600}
    assert problem(server, "POST", "/v1/search", asked)[0] == 413
    large = b" " * ((4 << 20) + 1)
    assert problem(server, "POST", "/v1/search", large)[0] == 413
    chunked = (large[: 1 << 20] for _ in range(5))
    assert problem(server, "POST", "/v1/search", chunked)[0] == 413
    assert server.json("GET", "/health/ready")[0] == 200


def test_hosts_and_origins_of_others_are_refused(server):
    assert problem(server, "GET", "/v1/stats", headers={"Host": "evil.example"})[0] == 421
    assert server.ask("GET", "/v1/stats", headers={"Host": "LOCALHOST:80"})[0] == 200
    own = f"http://127.0.0.1:{server.port}"
    asked = {"ids": ["none"]}
    for headers, wanted in (
        ({"Origin": own}, 404),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": own, "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 404),
    ):
        assert problem(server, "POST", "/v1/delete", asked, headers=headers)[0] == wanted
        status = problem(server, "PATCH", "/v1/item?id=none", {"labels": ["a"]}, headers=headers)[0]
        assert status == wanted


def test_answers_carry_security_headers_and_a_request_id(server):
    for path in ("/", "/v1/stats", "/nothing", "/static/main.js"):
        _, headers, _ = server.ask("GET", path, headers={"X-Request-ID": "mine-1"})
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Frame-Options"] == "DENY" and headers["X-Request-ID"] == "mine-1"
        assert "server" not in headers
    _, headers, _ = server.ask("GET", "/", headers={"X-Request-ID": 'bad"id'})
    assert headers["X-Request-ID"] != 'bad"id'
    told = [each for each in server.entries() if each.get("request_id") == "mine-1"]
    assert [each["path"] for each in told] == ["/", "/v1/stats", "/nothing", "/static/main.js"]
    assert all(each["level"] == "info" and each["ms"] > 0 for each in told)


def test_metrics_are_prometheus_text(server):
    search(server, words=["cat"])
    status, headers, content = server.ask("GET", "/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = content.decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(values['oasis_requests_total{method="POST",route="/v1/search",status="200"}']) > 0
    assert float(values["oasis_items"]) == server.json("GET", "/v1/stats")[1]["n_items"]
    assert float(values['oasis_request_seconds_bucket{route="/v1/search",le="+Inf"}']) == float(
        values['oasis_request_seconds_count{route="/v1/search"}']
    )


def test_histograms_count_every_duration_once():
    counters = Counters()
    for seconds in (0.001, 0.0011, 0.3, 31.0):
        counters.observe("t", "Time.", seconds)
    text = counters.text([("g", "Gauge.", 2.0)])
    for line in ('t_bucket{le="0.001"} 1', 't_bucket{le="0.0025"} 2', 't_bucket{le="30.0"} 3',
                 't_bucket{le="+Inf"} 4', "t_count 4", "g 2"):  # fmt: skip
        assert line in text.splitlines()


# -- tokens ------------------------------------------------------------------------------------

READ, WRITE = "a-token-for-reading", "a-token-for-writing"


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ({}, {None: (200, 404)}),
        ({"read": READ}, {None: (401, 401), READ: (200, 403), "x": (401, 401)}),
        ({"write": WRITE}, {None: (401, 401), WRITE: (200, 404)}),
        (
            {"read": READ, "write": WRITE},
            {None: (401, 401), READ: (200, 403), WRITE: (200, 404), READ[:-1]: (401, 401)},
        ),
    ],
)
def test_tokens_say_who_may_read_and_write(folder, tokens, expected):
    with Collection.open(fill(folder / "c", 6), extractor=extractor()) as c:
        app = create_app(c, Settings(tokens=Tokens(**tokens)))
        for token, wanted in expected.items():
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            found = (
                asgi(app, "GET", "/v1/stats", None, headers)[0],
                asgi(app, "POST", "/v1/delete", {"ids": ["none"]}, headers)[0],
            )
            assert found == wanted, token
        assert asgi(app, "GET", "/")[0] == asgi(app, "GET", "/health/ready")[0] == 200


def test_tokens_and_limits_that_make_no_sense_are_refused():
    for wrong in ({"read": "short"}, {"read": READ, "write": READ}, {"write": "é" * 20}):
        with pytest.raises(InputError):
            Tokens(**wrong)
    with pytest.raises(InputError, match="ingests"):
        Limits(ingests=0)
    assert READ not in repr(Settings(tokens=Tokens(read=READ)))
    assert Settings.of("0.0.0.0", Tokens(read=READ)).hosts is None


@pytest.mark.slow
def test_other_addresses_need_a_token(folder):
    ran = subprocess.run(
        [sys.executable, "-m", "oasis", "serve", str(folder / "c"), "--host", "0.0.0.0"],
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if not k.endswith("_TOKEN")},
    )
    assert ran.returncode == 1 and "token is needed" in ran.stderr
    assert not (folder / "c").exists()


# -- the short way -----------------------------------------------------------------------------

SEARCHES = [
    {"like": "item/1", "k": 3},
    {"like": "item/1", "k": 3, "where": {"$labels": {"has": "cat"}}},
    {"like": "nobody"},
    {"words": ["cat"], "k": 2, "mode": "hamming"},
    {"words": ["cat"], "k": 0},
    {"vectors": {"image": [[1.0]]}},
    {"items": [{"text": "cat"}], "k": 2, "offset": 1},
    {},
]


@pytest.mark.parametrize("token", [None, "r" * 16, "wrong"])
def test_the_short_way_answers_as_the_route_does(folder, monkeypatch, token):
    settings = Settings(tokens=Tokens(read="r" * 16) if token else Tokens())
    head = {"authorization": f"Bearer {token}"} if token else {}
    head["x-request-id"] = "the-same"
    with Collection.open(fill(folder / "c", 6), extractor=extractor()) as c:
        app = create_app(c, settings)

        def answers():
            return [asgi(app, "POST", "/v1/search", asked, head) for asked in SEARCHES]

        directly = answers()
        monkeypatch.setattr(Direct, "__call__", lambda self, *given: self.app(*given))
        assert directly == answers()
        statuses = [status for status, _, _ in directly]
        if token != "wrong":
            assert statuses == [200, 200, 404, 200, 422, 422, 200, 422]
        else:
            assert set(statuses) == {401}
        counted = re.findall(
            r'requests_total{method="POST",route="/v1/search".*} (\d+)',
            app.state.service.counters.text(),
        )
        assert sum(map(int, counted)) == 2 * len(SEARCHES)
        app.state.service.close()


SHORT = [
    {"like": "item/1"},
    {"like": "item/1", "k": 90, "offset": 10, "where": {}},
    {"vectors": {"image": [[0.5] * 900] * 7}, "k": 1},
]
LONG = [
    {"like": "item/1", "k": 101},
    {"like": "item/1", "offset": 91},
    {"like": "item/1", "where": {"$labels": {"has": "cat"}}},
    {"words": ["cat"]},
    {"items": [{"text": "cat"}]},
    {"vectors": {"image": [[0.5] * 900] * 11}},
    {"vectors": {"image": [[0.5] * 900] * 8}, "k": 1},
]


@pytest.mark.parametrize("readonly", [False, True])
def test_only_short_searches_are_made_without_a_thread(folder, monkeypatch, readonly):
    of, threads = Question.of, []

    def noted(*given):
        threads.append(threading.current_thread())
        return of(*given)

    monkeypatch.setattr(Question, "of", noted)
    monkeypatch.setattr(searching, "_FEW_NUMBERS", 7 * 900)
    path = fill(folder / "c", 6)
    with Collection.open(path, readonly=readonly, extractor=extractor()) as c:
        app = create_app(c)
        for asked in SHORT + LONG:
            assert asgi(app, "POST", "/v1/search", asked)[0] == 200
        X, _ = vectors(8)
        for rows in (7, 8):
            body = safetensors.numpy.save({"image": X["image"][:rows]}, {"request": '{"k": 1}'})
            assert asgi(app, "POST", "/v1/search", body, {"content-type": TENSORS})[0] == 200
        here = [each is threading.current_thread() for each in threads]
        short = [True] * len(SHORT) + [False] * len(LONG) + [True, False]
        assert here == [each and not readonly for each in short]
        monkeypatch.setattr(searching, "_FEW_CODES", c.index.n_codes - 1)
        assert asgi(app, "POST", "/v1/search", SHORT[0])[0] == 200
        assert threads[-1] is not threading.current_thread()
        app.state.service.close()


def test_a_reader_looks_for_commits_in_threads_only(folder, monkeypatch):
    commits, threads = Queries._commits, []

    def noted(reader):
        threads.append(threading.current_thread())
        return commits(reader)

    with Collection.open(fill(folder / "c", 6), readonly=True, extractor=extractor()) as c:
        app = create_app(c)
        monkeypatch.setattr(Queries, "_commits", noted)
        for asked in SHORT + LONG:
            assert asgi(app, "POST", "/v1/search", asked)[0] == 200
        for path in ("/v1/stats", "/health/ready", "/v1/item?id=item/1"):
            assert asgi(app, "GET", path)[0] == 200
        assert threads and threading.current_thread() not in threads
        app.state.service.close()


# -- one writer --------------------------------------------------------------------------------


def test_searches_do_not_wait_and_changes_queue(folder, monkeypatch):
    entered, leave = threading.Event(), threading.Event()
    with Collection.open(fill(folder / "c", 6), extractor=extractor()) as c:
        app = create_app(c, Settings(limits=Limits(ingests=2)))
        delete = c.delete

        def slow(ids):
            entered.set()
            assert leave.wait(60)
            return delete(ids)

        monkeypatch.setattr(c, "delete", slow)

        async def story():
            def change(name):
                return asyncio.create_task(
                    asgi_async(app, "POST", "/v1/delete", {"ids": [f"item/{name}"]})
                )

            first = change(1)
            await asyncio.to_thread(entered.wait, 60)
            second = change(2)
            await asyncio.sleep(0)
            while len(app.state.service.queue) < 2:
                await asyncio.sleep(0)
            third = await change(3)
            asked = {"words": ["cat"], "k": 1}
            searched = await asgi_async(app, "POST", "/v1/search", asked)
            leave.set()
            return third, searched, await first, await second

        third, searched, first, second = asyncio.run(story())
        assert third[0] == 429 and int(third[1]["retry-after"]) >= 1
        assert searched[0] == first[0] == second[0] == 200
        assert c.known(["item/1", "item/2", "item/3"]) == {"item/3"}
        app.state.service.close()


def test_a_stopped_queue_finishes_one_change_and_refuses_the_rest():
    queue, entered, leave, made = WriterQueue(4), threading.Event(), threading.Event(), []

    def change():
        entered.set()
        assert leave.wait(60)
        made.append(1)
        return "done"

    async def story():
        first = asyncio.create_task(queue.run(change))
        await asyncio.to_thread(entered.wait, 60)
        second = asyncio.create_task(queue.run(change))
        await asyncio.sleep(0)
        queue.stop()
        leave.set()
        with pytest.raises(Problem, match="stopped"):
            await queue.run(change)
        return await asyncio.gather(first, second, return_exceptions=True)

    first, second = asyncio.run(story())
    queue.close()
    assert first == "done" and isinstance(second, Problem) and made == [1] and not len(queue)


def test_a_failure_of_ours_is_logged_and_not_told(folder, monkeypatch, caplog):
    with Collection.open(fill(folder / "c", 6), extractor=extractor()) as c:
        app = create_app(c)

        def broken(*_, **__):
            raise RuntimeError("a secret of the inside")

        monkeypatch.setattr(Question, "of", broken)
        status, _, found = asgi(app, "POST", "/v1/search", {"words": ["cat"]})
        assert status == 500 and found["title"] and "secret" not in json.dumps(found)
        assert "a secret of the inside" in caplog.text
        monkeypatch.setattr(c, "stats", lambda: threading.Event().wait(0.2))
        app.state.service.settings = Settings(limits=Limits(answer_seconds=0.01))
        status, heads, found = asgi(app, "GET", "/v1/stats")
        assert status == 503 and heads["retry-after"] and "0.01 seconds" in found["detail"]
        app.state.service.close()


# -- starting and stopping ---------------------------------------------------------------------


@pytest.mark.slow
def test_a_stop_leaves_a_chunk_whole_or_refused(folder):
    fill(folder / "c")
    server = Serving(folder / "c")
    X, y = vectors(400, seed=4)
    answers = []

    def ingest():
        with Client(server.url, patience=0) as client:
            try:
                client.ingest(X, y, [f"last {row}" for row in range(400)])
                answers.append(400)
            except BusyError:  # the stop came between its arrival and its turn
                answers.append(0)

    thread = threading.Thread(target=ingest)
    thread.start()
    while b"oasis_writer_queue 1" not in server.ask("GET", "/metrics")[2] and not answers:
        pass
    assert server.stop() == 0
    thread.join()
    assert [each["event"] for each in server.entries() if each["event"] != "request"][-2:] == [
        "stopping",
        "stopped",
    ]
    with Collection.open(folder / "c") as c:
        assert len(c) == N + answers[0] and c.check() == []
        assert c.stats().journal_entries == 0


@pytest.mark.slow
def test_readers_beside_a_writer_follow_it_and_change_nothing(folder):
    fill(folder / "c")
    with Collection.open(folder / "c") as c, serving(folder / "c", "--readonly") as server:
        assert server.json("GET", "/v1/stats")[1]["readonly"] is True
        assert problem(server, "POST", "/v1/delete", {"ids": ["item/1"]})[0] == 403
        c.ingest(*vectors(3), ["n1", "n2", "n3"])
        assert server.json("GET", "/v1/item?id=n2")[0] == 200
        assert server.json("GET", "/v1/stats")[1]["n_items"] == N + 3
        X, _ = vectors(1)
        body = safetensors.numpy.save(X, {"request": '{"k": 3}'})
        found = server.json("POST", "/v1/search", body, kind=TENSORS)[1]["results"]
        assert [hit["id"] for hit in found[0]] == [hit.id for hit in c.search(X, 3)[0]]
        ran = subprocess.run(
            [sys.executable, "-m", "oasis", "serve", str(folder / "c"), "--port", "0"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 1 and "another writer" in ran.stderr


def test_numbers_arrive_as_they_were_sent(server):
    X, _ = vectors(2, seed=8)
    with Client(server.url) as client:
        exact = client.search({"image": X["image"].astype(np.float64)}, 4)
        assert exact == client.search({"image": X["image"].astype(np.float64).tolist()}, 4)


def test_a_change_leaves_blas_as_it_was(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    queue = WriterQueue(1)

    def blas():
        return {
            each["num_threads"]
            for each in threadpool_info()
            if (each["user_api"], each.get("threading_layer")) == ("blas", "pthreads")
        }

    def set_blas(n):  # in a thread that ends: one that lives would keep the right to set it
        thread = threading.Thread(target=threadpool_limits, args=(n, "blas"))
        thread.start()
        thread.join()

    (before,) = blas()
    try:
        set_blas(4)
        assert blas() == {4}
        assert asyncio.run(queue.run(blas)) == {3}
        assert blas() == {4}
        with pytest.raises(ZeroDivisionError):
            asyncio.run(queue.run(lambda: 1 // 0))
        queue.close()
        assert blas() == {4}
    finally:
        queue.close()
        set_blas(before)
