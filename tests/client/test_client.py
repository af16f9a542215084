"""The client answers what the collection answers, and fails as it fails."""

import io
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from PIL import Image
from service_data import ALIKE, extractor, fill, fill_alike, item, picture, vectors
from serving import serving
from toy import class_vectors

from oasis.client import Client
from oasis.collection import Collection
from oasis.errors import (
    CollectionError,
    DuplicateIdError,
    InputError,
    NotFittedError,
    RefusedError,
    UnknownIdError,
    UnknownWordError,
    UnreachableError,
)
from oasis.features.extractor import Extractor
from oasis.items import Item
from oasis.model import OASIS

pytestmark = pytest.mark.slow  # every test asks a service in another process


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Twins: a client of a served collection, and the same collection opened here."""
    folder = tmp_path_factory.mktemp("client")
    here, there = fill(folder / "here"), fill(folder / "there")
    with (
        serving(there) as server,
        Client(server.url) as client,
        Collection.open(here, extractor=extractor()) as collection,
    ):
        yield client, collection


def same(pair, call):
    """Call both, and see that they answer or fail alike."""
    found = []
    for each in pair:
        try:
            found.append(call(each))
        except Exception as error:  # noqa: BLE001 - whatever it is, it must be the same
            found.append((type(error), str(error)))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("mode", ["asymmetric", "hamming"])
def test_searches_are_the_collections(pair, mode):
    X, _ = vectors(5)
    sparse = {**X, "text": sp.csr_array(X["text"])}
    wide = {name: matrix.astype(np.float64) for name, matrix in X.items()}
    half = {name: matrix.astype(np.float16) for name, matrix in X.items()}
    for queries in (X, sparse, wide, half, {"text": X["text"]}, {"image": X["image"].tolist()}):
        assert len(same(pair, lambda c, q=queries: c.search(q, 7, mode))) == 5
    where = {"year": {"gte": 2010}, "$labels": {"has": "sea"}}
    found = same(pair, lambda c: c.search(X, 4, mode, where, 2))
    assert all(hit.labels == ("sea",) and hit.payload["year"] >= 2010 for hit in found[0])
    raw = [{"text": "boat"}, {"image": picture("sky", 99)}, {"text": "fur", "image": None}]
    assert same(pair, lambda c: c.search_items(raw, 3, mode))[0][0].labels == ("sea",)
    assert same(pair, lambda c: c.search_words(["cat", "dog"], 3, mode))[0][0].labels == ("cat",)
    assert same(pair, lambda c: c.more_like("item/1", 3, mode, None, 1))
    assert same(pair, lambda c: c.more_like(4, 3, mode))


def test_searches_by_kind_and_by_content_are_the_collections(tmp_path):
    here, there = fill_alike(tmp_path / "here"), fill_alike(tmp_path / "there")
    queries = [{"text": word} for word in ALIKE]
    with serving(there) as server, Client(server.url) as client, Collection.open(here) as c:
        pair = client, c
        found = same(pair, lambda c: c.search_items(queries, 2, content=1.0))
        assert [hits[0].id for hits in found] == list(range(len(ALIKE)))
        found = same(pair, lambda c: c.search_items(queries, 2, content=0))
        assert [hits[0].id for hits in found] == [0] * len(ALIKE)
        X = {"text": np.eye(3, c.stats().modalities["text"])}
        assert same(pair, lambda c: c.search(X, 5, content=np.float32(0.25)))
        assert same(pair, lambda c: c.more_like(3, 5)) != same(
            pair, lambda c: c.more_like(3, 5, content=0)
        )
        stored, _ = c.extractor.extract(queries[:1])
        (again,) = same(pair, lambda c: c.search(stored, 2))
        assert again[0].id == 0 and again[0].score == 1
        (by_codes,) = same(pair, lambda c: c.search(stored, 2, fuse=False))
        assert by_codes[0].score < 1
        kind, said = same(pair, lambda c: c.search(X, 5, "hamming", content=0.5))
        assert kind is InputError and "counts all bits alike" in said


def test_items_may_bring_vectors_and_samples_texts(tmp_path):
    rng = np.random.default_rng(3)
    embedders = Extractor.of(image="none", text="words", vectors={"clip": 4})
    items = [
        {"id": n, "vectors": {"clip": rng.random(4)}, "text": f"boat{n}", "labels": ["sea"]}
        for n in range(6)
    ]
    model = OASIS.for_search(128, labels=class_vectors(), random_state=0)
    with Collection.open(tmp_path / "c", model=model, extractor=embedders) as c:
        assert not c.ingest_items(items[:3])
    with serving(tmp_path / "c") as running, Client(running.url) as client:
        sparse = sp.csr_array(items[4]["vectors"]["clip"][None])
        items[4] = Item(4, text="boat4", labels=["sea"], vectors={"clip": sparse})
        assert not client.ingest_items(items[3:])
        assert client.get(4).text == "boat4"
        X = {name: rng.random((1, width)) for name, width in client.stats().modalities.items()}
        client.ingest(X, [["sky"]], ["kept"], texts=["a red boat"])
        where = {"$text": {"contains": "red boat"}}
        assert [hit.id for hit in client.search(X, where=where)[0]] == ["kept"]
        query = {"vectors": {"clip": items[5]["vectors"]["clip"]}}
        found = client.search_items([query], 7, content=1.0)[0]
        with pytest.raises(InputError, match="expected a mapping"):
            client.search_items([{"vectors": [1, 2]}])
        with pytest.raises(InputError, match="clip"):
            client.search_items([{"vectors": {"clip": [1, 2]}}])
    with Collection.open(tmp_path / "c", readonly=True) as c:
        c_found = c.search_items([query], 7, content=1.0)[0]
        assert [hit.id for hit in c_found] == [hit.id for hit in found]
        assert found[0].id == 5 and len(found) == 7


def test_pictures_of_a_path_are_sent_as_files(pair, tmp_path):
    path = tmp_path / "query.png"
    path.write_bytes(picture("sea", 5))
    assert same(pair, lambda c: c.search_items([Item("q", image=path)], 2))
    assert same(pair, lambda c: c.search_items([{"image": str(path)}], 2))


def test_pictures_may_be_pil_images_and_arrays(pair):
    with Image.open(io.BytesIO(picture("sea", 5))) as image:
        truth = same(pair, lambda c: c.search_items([{"image": picture("sea", 5)}], 2))
        assert same(pair, lambda c: c.search_items([{"image": image}], 2)) == truth
        rgb = image.convert("RGB")
    for form in (rgb, np.asarray(rgb), rgb.convert("CMYK"), rgb.convert("F")):
        assert same(pair, lambda c, form=form: c.search_items([{"image": form}], 2))
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    rgb.save(file, "JPEG", exif=exif)
    with Image.open(file) as turned:
        assert same(pair, lambda c: c.search_items([{"image": turned}], 2))
    client, _ = pair
    with pytest.raises(InputError, match="a path, bytes, a PIL image or an array, got int"):
        client.search_items([{"image": 5}])
    with pytest.raises(InputError, match=r"array of shape \(2, 2, 7\)"):
        client.search_items([{"image": np.zeros((2, 2, 7), np.uint8)}])


def test_help_with_labels_is_the_collections(pair):
    why = same(pair, lambda c: c.explain("item/1", "boat wave"))
    assert why.base + sum(each.log_odds for each in why.parts) == pytest.approx(why.log_odds)
    scores = {hit.id: hit.score for hit in same(pair, lambda c: c.find("boat wave", k=48))}
    assert why.score == pytest.approx(scores["item/1"])
    assert same(pair, lambda c: c.explain("item/2", {"image": picture("cat", 5)})).parts
    assert same(pair, lambda c: c.explain("none", "boat"))[0] is UnknownIdError
    assert same(pair, lambda c: c.next_to_label(5)) == []  # all have labels
    found = same(pair, lambda c: c.plane())
    assert len(found.points) == found.n_items == len(pair[1])
    assert len(same(pair, lambda c: c.plane(7, 3)).points) == 7


def test_looks_are_the_collections(pair):
    client, collection = pair
    assert len(client) == len(collection)
    assert client.n_bits == collection.n_bits and not client.readonly
    assert same(pair, lambda c: c.get("item/1")).labels == ("sea",)
    assert same(pair, lambda c: c.get(4)).id == 4
    assert same(pair, lambda c: c.thumbnail(4)).startswith(b"\x89PNG")
    assert same(pair, lambda c: c.classes())
    assert same(pair, lambda c: c.fields())
    assert set(same(pair, lambda c: c.norms())) == {"W image", "W text", "codewords"}
    assert client.limits()["raw_batch"] == 256
    assert same(pair, lambda c: c.duplicates())
    (first, *_) = same(pair, lambda c: c.find("boat wave", k=3))
    assert first.text and "boat" in first.text
    how = {"where": {"$labels": {"has": "cat"}}, "offset": 1, "k": 2}
    assert len(same(pair, lambda c: c.find("fur", image=picture("cat", 5), **how))) == 2
    assert same(pair, lambda c: c.find())[0] is InputError
    both = same(pair, lambda c: c.search_items([{"text": "boat anchor"}], 5))
    codes = same(pair, lambda c: c.search_items([{"text": "boat anchor"}], 5, fuse=False))
    assert both[0][0].score > codes[0][0].score
    sure, unsure = same(pair, lambda c: c.evidence_items([{"text": "paw"}, {"text": "zzz"}]))
    assert unsure < sure
    assert same(pair, lambda c: [c.suggest("anchr"), c.suggest("zzz")]) == ["anchor", None]
    assert same(pair, lambda c: c.suggest(7))[0] is InputError
    for asked in (client.suggest, lambda text: client.search_items([{"text": text}])):
        with pytest.raises(InputError, match="may have 65536 bytes"):
            asked("x" * 100_000)
    assert [each.id for each in same(pair, lambda c: c.latest(3))] == [
        "item/47",
        "item/46",
        "item/45",
    ]
    assert same(pair, lambda c: c.latest(0))[0] is InputError
    assert same(pair, lambda c: c.known(["item/1", 4, "4", "none"])) == {"item/1", 4}
    assert same(pair, lambda c: ["item/1" in c, 4 in c, "4" in c, None in c])[:2] == [True, True]
    assert same(pair, lambda c: c.check()) == []
    for ours, theirs in zip(client.rounds(), collection.rounds(), strict=True):
        assert type(ours) is type(theirs)
        assert ours.new_classes == theirs.new_classes and ours.precision == theirs.precision
    ours, theirs = client.stats(), collection.stats()
    assert (ours.n_items, ours.modalities, ours.extractor) == (
        theirs.n_items,
        theirs.modalities,
        theirs.extractor,
    )


def test_changes_are_the_collections(pair):
    X, y = vectors(40, seed=1)
    ids = [f"new {row}" for row in range(40)]
    facts = [{"row": row, "nested": {"a": [1, None, "ä"]}} for row in range(40)]
    small = [picture("cat", 1) if row == 3 else None for row in range(40)]
    y[5] = None
    same(pair, lambda c: c.ingest(X, y, ids, facts, small))
    assert same(pair, lambda c: c.get("new 7")).payload == facts[7]
    assert same(pair, lambda c: c.thumbnail("new 3")) == small[3]
    assert same(pair, lambda c: c.thumbnail("new 4")) is None
    sparse = {"image": X["image"][:2], "text": sp.csr_array(X["text"][:2])}
    same(pair, lambda c: c.ingest(sparse, y[:2], ["s1", 2**62]))
    assert same(pair, lambda c: c.get(2**62)).code
    more = [{**item(100), "id": "raw"}, {**item(101), "id": "raw"}, {"id": 9, "image": b"no"}]
    assert [each.row for each in same(pair, lambda c: c.ingest_items(more))] == [1, 2]
    assert same(pair, lambda c: c.thumbnail("raw")) is None
    same(pair, lambda c: c.update("raw", labels=["dog", "cat"], payload={"year": 3}))
    assert same(pair, lambda c: c.get("raw")).labels == ("dog", "cat")
    same(pair, lambda c: c.update("raw", payload=None))
    assert same(pair, lambda c: c.get("raw")).payload == {}
    same(pair, lambda c: c.update(2**62, labels=None))
    done = same(pair, lambda c: c.update([2**62, "raw"], labels=[["tree"], None]))
    assert done.changed == 2
    same(pair, lambda c: c.update([2**62, "raw"], labels=["tree"], payload={"year": 4}))
    assert same(pair, lambda c: c.rename_label("tree", "cat")).changed == 2
    assert same(pair, lambda c: c.get("raw")).labels == ("cat",)
    same(pair, lambda c: c.update(["raw", 2**62], labels=[None, []], payload=None))
    assert same(pair, lambda c: c.get(2**62)).labels == ()
    same(pair, lambda c: c.replace(sparse, [["sea"], None], ["s1", 2**62], texts=["t", None]))
    assert same(pair, lambda c: c.get("s1")).text == "t"
    again = [{**item(102), "id": "raw"}, {**item(103), "id": "nobody"}]
    refused = same(pair, lambda c: c.replace_items(again, thumbnails=True))
    assert [each.row for each in refused] == [1]
    assert same(pair, lambda c: c.thumbnail("raw"))
    assert same(pair, lambda c: c.get("raw")).labels == ("sky",)
    assert same(pair, lambda c: c.classes())
    assert same(pair, lambda c: c.delete(["raw", 2**62, "raw"])) == 2
    same(pair, lambda c: c.add_words({"tundra": np.arange(12.0)}))
    assert same(pair, lambda c: c.search_words(["tundra"], 2))
    same(pair, lambda c: c.checkpoint())
    assert pair[0].stats().journal_entries == 0
    assert same(pair, lambda c: c.search(X, 10))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda c: c.get("none"), UnknownIdError),
        (lambda c: c.thumbnail("none"), UnknownIdError),
        (lambda c: c.more_like(12345), UnknownIdError),
        (lambda c: c.delete(["none"]), UnknownIdError),
        (lambda c: c.delete("none"), InputError),
        (lambda c: c.update("none", labels=["sky"]), UnknownIdError),
        (lambda c: c.update("item/1"), InputError),
        (lambda c: c.update(["item/1", "none"], labels=["sky"]), UnknownIdError),
        (lambda c: c.update(["item/1"], labels=[["sky"], ["sky"]]), InputError),
        (lambda c: c.rename_label("dig", "cat"), InputError),
        (lambda c: c.update("item/1", labels=[""]), InputError),
        (lambda c: c.replace(*vectors(2), ["item/1", "none"]), UnknownIdError),
        (lambda c: c.replace(*vectors(2), None), InputError),
        (lambda c: c.search_words(["unheard"]), UnknownWordError),
        (lambda c: c.search({"sound": np.ones((1, 3))}), InputError),
        (lambda c: c.search({"image": np.full((1, 900), np.nan)}), InputError),
        (lambda c: c.search({"image": np.ones((1, 3))}), InputError),
        (lambda c: c.search({"image": np.ones((1, 900))}, where={"a": {"like": 1}}), InputError),
        (lambda c: c.search_words(["cat"], where={"titel": "x"}), InputError),
        (lambda c: c.search_words(["cat"], where={"$labels": {"has": "cats"}}), InputError),
        (lambda c: c.search_words(["cat"], where={"$not": [1]}), InputError),
        (lambda c: c.ingest(*vectors(2), ["item/1", "x"]), DuplicateIdError),
        (lambda c: c.ingest(*vectors(2), ["x", "x"]), DuplicateIdError),
        (lambda c: c.ingest(*vectors(2), ["x"]), InputError),
    ],
)
def test_errors_are_the_collections(pair, call, error):
    kind, message = same(pair, call)
    assert kind is error and message


def test_what_json_cannot_say_is_refused_here(pair):
    client, _ = pair
    with pytest.raises(InputError, match="no JSON"):
        client.search_words(["cat"], where={"year": float("nan")})
    with pytest.raises(InputError, match="write"):
        client.ingest({"image": np.ones((1, 3))}, ["cat"])
    with pytest.raises(InputError):
        client.search([1, 2])
    with pytest.raises(InputError):
        client.search({"image": np.array([["a"]])})


def test_many_threads_share_a_client(pair):
    client, collection = pair
    X, _ = vectors(8, seed=3)
    wanted, found = collection.search(X, 3), [None] * 8

    def ask(row):
        for _ in range(5):
            found[row] = client.search({name: m[row : row + 1] for name, m in X.items()}, 3)[0]

    threads = [threading.Thread(target=ask, args=(row,)) for row in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [[hit.id for hit in hits] for hits in found] == [
        [hit.id for hit in hits] for hits in wanted
    ]


def test_changes_do_not_leave_connections_behind(folder):
    X, y = vectors(1)
    with serving(fill(folder / "c")) as server, Client(server.url) as client:
        files = Path(f"/proc/{server.process.pid}/fd")
        client.ingest(X, y, ["first"])
        before = len(list(files.iterdir()))
        for number in range(30):
            client.ingest(X, y, [f"one of many {number}"])
        # the service closes its ends when it hears of it
        for _ in range(200):
            if len(list(files.iterdir())) < before + 15:
                break
            time.sleep(0.05)
        assert len(list(files.iterdir())) < before + 15


def test_an_empty_collection_a_token_and_no_service(folder):
    tokens = {"OASIS_READ_TOKEN": "read-token-0123456", "OASIS_WRITE_TOKEN": "write-token-012345"}
    with serving(folder / "empty", "--bits", "16", env=tokens) as server:
        with Client(server.url, tokens["OASIS_READ_TOKEN"]) as reader:
            assert len(reader) == 0 and reader.n_bits == 16
            with pytest.raises(NotFittedError):
                reader.search({"image": np.ones((1, 3))})
            with pytest.raises(RefusedError, match="may read"):
                reader.delete(["x"])
        with Client(server.url) as nobody, pytest.raises(RefusedError, match="token"):
            nobody.stats()
        with Client(server.url, tokens["OASIS_WRITE_TOKEN"]) as writer:
            writer.ingest({"image": np.eye(3)}, [["a"], ["b"], ["a"]])
            assert len(writer) == 3
            writer.close()
            with pytest.raises(CollectionError, match="closed"):
                writer.stats()
        url = server.url
    with Client(url, timeout=5) as client, pytest.raises(UnreachableError, match="does not answer"):
        client.delete(["x"])
