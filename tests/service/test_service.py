"""The API on a real server process: what is answered, what is refused, and how it stops."""

import base64
import io
import json
import os

import numpy as np
import pytest
import safetensors.numpy
import service_running
from PIL import Image
from service_data import ALIKE, N, fill, fill_alike, item, picture, vectors
from service_running import TENSORS, problem, search
from serving import asgi, form, serving
from toy import chunk, class_vectors

from oasis.client import Client
from oasis.collection import Collection
from oasis.errors import InputError
from oasis.model import OASIS
from oasis.service import Settings, Tokens, create_app, reading
from oasis.service.reading import original
from oasis.service.telemetry import Counters

server = service_running.server


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
        # a word with content is searched as a text
        (hits,) = search(alike, words=["sea"], k=3, content=0.5)
        assert len(hits) == 3
    # codes without content bits
    for asked in ({"like": "item/1"}, {"words": ["sea"]}):
        status, found = problem(server, "POST", "/v1/search", {**asked, "content": 0.5})
        assert status == 422 and "no content bits" in found["detail"]
        assert len(found["detail"].splitlines()) == 1


def test_words_with_content_need_features_of_texts(tmp_path):
    X, y = chunk(40)
    with Collection.open(tmp_path / "c", model=OASIS.for_search(128, labels=class_vectors())) as c:
        c.ingest(X, y)
        app = create_app(c)
        for content, wanted in ((None, 200), (0, 200), (0.5, 422)):
            asked = {"words": ["sky"], "k": 3, "content": content}
            status, _, found = asgi(app, "POST", "/v1/search", asked)
            assert status == wanted, found
        assert len(found["detail"].splitlines()) == 1
        app.state.service.close()


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
    assert found["results"] == search(server, items=asked["items"], k=2)
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


def test_an_unknown_key_is_told_with_the_known_ones(server):
    status, problem = server.json("POST", "/v1/search", {"text": "boat"})
    assert status == 422
    assert "the key 'text' is not known; known are vectors, items, words" in problem["detail"]


def test_a_query_may_be_misspelt(server):
    assert server.json("POST", "/v1/suggest", {"text": "Anchr!"}) == (200, {"text": "anchor!"})
    assert server.json("POST", "/v1/suggest", {"text": "zzz"}) == (200, {"text": None})
    for wrong in ({}, {"text": None}, {"text": 7}, {"text": "boat", "k": 1}):
        assert server.json("POST", "/v1/suggest", wrong)[0] == 422


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
    status, found = server.json("PATCH", "/v1/item?id=item/5", {"labels": ["tree", "sea"]})
    code = found["code"]  # made anew, as the model learns from the labels
    assert (status, found) == (200, {**before, "labels": ["tree", "sea"], "code": code})
    hits = search(server, words=["sea"], k=N, where={"$labels": {"has": "tree"}})[0]
    assert [(hit["id"], hit["labels"]) for hit in hits] == [("item/5", ["tree", "sea"])]
    (info,) = [e for e in server.json("GET", "/v1/classes")[1]["classes"] if e["name"] == "tree"]
    assert info == {"name": "tree", "n": 1, "round": 0, "n_predicted": 0}
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
    assert server.json("GET", "/v1/item?id=item/5")[1]["labels"] == ["tree", "sea"]
    restored = {name: before[name] for name in ("labels", "payload")}
    status, found = server.json("PATCH", "/v1/item?id=item/5", restored)
    assert (status, found) == (200, {**before, "code": found["code"]})
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


def test_resident_memory_is_counted_in_pages_of_this_machine(tmp_path, monkeypatch):
    (tmp_path / "statm").write_text("900 7 5 1 0 3 0\n")
    monkeypatch.setattr(reading, "Path", lambda _: tmp_path / "statm")
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 65536}.__getitem__)
    assert reading._resident() == 7 * 65536


def test_histograms_count_every_duration_once():
    counters = Counters()
    for seconds in (0.001, 0.0011, 0.3, 31.0):
        counters.observe("t", "Time.", seconds)
    text = counters.text([("g", "Gauge.", 2.0)])
    for line in ('t_bucket{le="0.001"} 1', 't_bucket{le="0.0025"} 2', 't_bucket{le="30.0"} 3',
                 't_bucket{le="+Inf"} 4', "t_count 4", "g 2"):  # fmt: skip
        assert line in text.splitlines()


def test_numbers_arrive_as_they_were_sent(server):
    X, _ = vectors(2, seed=8)
    with Client(server.url) as client:
        exact = client.search({"image": X["image"].astype(np.float64)}, 4)
        assert exact == client.search({"image": X["image"].astype(np.float64).tolist()}, 4)
