"""Which fields payloads have: from a sample of bounded size."""

import numpy as np
from toy import class_vectors

from oasis.collection import Collection, fields
from oasis.model import OASIS


def by_name(found):
    return {each.name: each for each in found}


def test_kinds_values_and_ranges():
    payloads = [
        {"year": 2000 + n, "kind": "ab"[n % 2], "ok": n < 3, "tags": ["x"], "long": "y" * n * 20}
        for n in range(10)
    ] + [{"kind": "a", "mix": 1, "at": {}, "none": None}, {"mix": "1"}]
    found = by_name(fields.described(payloads))
    assert next(iter(found)) == "kind" and found["kind"].n == 11
    assert found["kind"].values == ("a", "b") and found["kind"].complete
    assert (found["year"].kind, found["year"].min, found["year"].max) == ("number", 2000, 2009)
    assert found["ok"].kind == "boolean" and set(found["ok"].values) == {True, False}
    assert found["tags"].kind == "list" and found["at"].kind == "object"
    assert found["mix"].kind == "mixed" and found["none"].kind == "mixed"
    # the empty text and those of more than 100 characters are no examples
    assert not found["long"].complete and len(found["long"].values) == 5


def test_examples_and_fields_are_few():
    found = by_name(fields.described([{"a": str(n)} for n in range(50)]))
    assert len(found["a"].values) == fields.MAX_VALUES and not found["a"].complete
    found = fields.described([{str(n): n for n in range(5000)}, {"7": 1}])
    assert len(found) == fields.MAX_FIELDS and found[0].name == "7"


def test_a_collection_tells_its_fields_from_its_ends(folder, monkeypatch):
    monkeypatch.setattr(fields, "SAMPLE", 3)
    rng = np.random.default_rng(0)
    with Collection.open(folder / "c", model=OASIS(16, labels=class_vectors())) as c:
        assert c.fields() == []
        payload = [{"n": n, f"only{n}": 1} for n in range(10)]
        c.ingest({"a": rng.random((10, 5))}, [["sky"], ["sea"]] * 5, payload=payload)
        found = by_name(c.fields())
        assert found["n"].n == 6 and (found["n"].min, found["n"].max) == (0, 9)
        assert set(found) == {"n", *(f"only{n}" for n in (0, 1, 2, 7, 8, 9))}
        monkeypatch.setattr(fields, "SAMPLE_BYTES", 90)
        assert by_name(c.fields())["n"].n == 4


def test_the_latest_come_newest_first_and_within_their_bytes(folder):
    rng = np.random.default_rng(0)
    with Collection.open(folder / "c", model=OASIS(16, labels=class_vectors())) as c:
        assert c.latest() == []
        payload = [{"n": n} for n in range(9)] + [{"long": "x" * 100}]
        texts = [f"text {n}" for n in range(10)]
        c.ingest(
            {"a": rng.random((10, 5))}, [["sky"], ["sea"]] * 5, range(10), payload, texts=texts
        )
        assert [each.id for each in c.latest(3)] == [9, 8, 7]
        assert c.latest(2)[1] == c.get(8)
        assert [each.id for each in c.latest(5, max_bytes=50)] == [9]
        assert [each.id for each in c.latest(5, max_bytes=115 + 7)] == [9, 8]
        c.delete([9])
        assert [each.id for each in c.latest(1)] == [8]
        assert c.snippets([0, 3, "none"], 4) == {0: "text", 3: "text"}
