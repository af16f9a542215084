"""Any sequence of changes, searches and reopenings agrees with a list and brute force."""

import shutil
import tempfile

import pytest
from collection_truth import (
    Truth,
    assert_hits,
    assert_labels,
    assert_same_model,
    assert_texts,
    toy_model,
)
from collection_writer import texts
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from toy import NAMES, chunk

from oasis.collection import Collection
from oasis.collection import writing as writer
from oasis.errors import InputError

pytestmark = pytest.mark.slow

IDS = st.one_of(st.integers(0, 30), st.sampled_from([f"item {n}" for n in range(30)]))


class CollectionMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.truth = Truth()
        self.reader = None
        self.limits = (writer.INDEX_ROWS, writer.JOURNAL_ENTRIES)
        writer.INDEX_ROWS, writer.JOURNAL_ENTRIES = 8, 3
        self.c = Collection.open(self.folder, model=toy_model())

    def teardown(self):
        writer.INDEX_ROWS, writer.JOURNAL_ENTRIES = self.limits
        if self.reader is not None:
            self.reader.close()
        self.c.close()
        shutil.rmtree(self.folder)

    @initialize(n=st.integers(1, 40))
    def begin(self, n):
        self.add(list(range(100, 100 + n)), 0, 0.0)

    def add(self, ids, seed, bare):
        X, y = chunk(len(ids), seed=seed, bare=bare, classes=NAMES[: 2 + seed % 9])
        payload = [{"n": (seed + row) % 4} if row % 3 else None for row in range(len(ids))]
        kept = texts(seed, len(ids))
        self.c.ingest(X, y, ids, payload, texts=kept)
        self.truth.ingest(X, y, ids, payload, kept)

    @rule(
        ids=st.lists(IDS, min_size=1, max_size=6, unique=True),
        seed=st.integers(0, 50),
        bare=st.sampled_from([0.0, 0.0, 0.5, 1.0]),
    )
    def ingest(self, ids, seed, bare):
        there = {item[0] for item in self.truth.items}
        if ids := [each for each in ids if each not in there]:
            self.add(ids, seed, bare)

    @rule(seed=st.integers(0, 50))
    def ingest_many(self, seed):
        top = max([item[0] for item in self.truth.items if isinstance(item[0], int)], default=0)
        self.add(list(range(top + 1000, top + 1035)), seed, 0.0)

    @precondition(lambda self: self.truth.items)
    @rule(data=st.data())
    def delete(self, data):
        ids = [item[0] for item in self.truth.items]
        gone = data.draw(st.lists(st.sampled_from(ids), max_size=8, unique=True))
        assert self.c.delete(gone) == len(gone)
        self.truth.delete(gone)

    @precondition(lambda self: self.truth.items)
    @rule(
        data=st.data(),
        labels=st.one_of(
            st.just(...),
            st.none(),
            st.lists(st.sampled_from([*NAMES, "never learned", "new"]), max_size=3, unique=True),
        ),
        payload=st.sampled_from([..., None, {}, {"n": 0}, {"n": 3, "m": "text"}]),
    )
    def update(self, data, labels, payload):
        each = data.draw(st.sampled_from([item[0] for item in self.truth.items]))
        if labels is ... and payload is ...:
            return
        self.c.update(each, labels=labels, payload=payload)
        self.truth.update(each, labels=labels, payload=payload)

    @precondition(lambda self: self.truth.items)
    @rule(data=st.data(), seed=st.integers(0, 50), bare=st.sampled_from([0.0, 0.5]))
    def replace(self, data, seed, bare):
        there = [item[0] for item in self.truth.items]
        ids = data.draw(st.lists(st.sampled_from(there), min_size=1, max_size=5, unique=True))
        X, y = chunk(len(ids), seed=seed, bare=bare)
        payload, kept = [{"n": seed % 4}] * len(ids), texts(seed, len(ids))
        self.c.replace(X, y, ids, payload, texts=kept)
        self.truth.replace(X, y, ids, payload, kept)

    @rule(clean=st.booleans())
    def reopen(self, clean):
        if clean:
            self.c.close()
        else:
            self.c._catalog.close()
            self.c._lock.release()
        self.c = Collection.open(self.folder)
        assert_same_model(self.c.model, self.truth.model)
        assert_texts(self.c, self.truth)
        assert_labels(self.c, self.truth)
        assert self.c.check() == []

    @rule()
    def checkpoint(self):
        self.c.checkpoint()

    @rule(
        seed=st.integers(0, 9),
        k=st.integers(1, 60),
        mode=st.sampled_from(["asymmetric", "hamming"]),
        value=st.sampled_from([None, 0, 3]),
        label=st.sampled_from([None, "sky", "horse", "never learned"]),
        by_reader=st.booleans(),
    )
    def search(self, seed, k, mode, value, label, by_reader):
        if by_reader and self.reader is None:
            self.reader = Collection.open(self.folder, readonly=True)
        X, _ = chunk(2, seed=seed)
        where = {} if value is None else {"n": value}
        if label is not None:
            where["$labels"] = {"has": label}

        def passes(payload, labels):
            return (value is None or payload.get("n") == value) and (
                label is None or label in labels
            )

        expected = self.truth.search(self.truth.model.project(X), k, mode, passes)
        asked = self.reader if by_reader else self.c
        fields = {name for item in self.truth.items for name in item[3]}
        unknown = (value is not None and "n" not in fields) or (
            label is not None and label not in {each.name for each in asked.classes()}
        )
        if unknown and self.truth.items:
            with pytest.raises(InputError, match=r"no item has a field|no class is called"):
                asked.search(X, k, mode, where, fuse=False)
        else:
            assert_hits(asked.search(X, k, mode, where, fuse=False), expected)

    @invariant()
    def same_items(self):
        assert len(self.c) == len(self.truth.items)
        assert sum(each.n for each in self.c.classes()) == sum(
            len(item[2]) for item in self.truth.items
        )


TestCollectionMachine = CollectionMachine.TestCase
TestCollectionMachine.settings = settings(
    max_examples=15,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
