"""What a collection must answer, by brute force over plain lists."""

from __future__ import annotations

import copy
import json

import numpy as np
import scipy.sparse as sp
from toy import class_vectors

from oasis.codes import pack, unpack
from oasis.collection.filters import Filter
from oasis.collection.kept_features import halved
from oasis.collection.setup import label_space, with_labels, with_seen
from oasis.collection.words import Phrase
from oasis.model import OASIS


def toy_model(n_bits=16, n_classes=10, **parameters):
    make = OASIS.for_search if n_bits > 80 else OASIS
    return make(n_bits, labels=class_vectors(n_classes), random_state=0, **parameters)


class Lost(AssertionError):
    """Something that was acknowledged is not there."""


def assert_nothing_lost(acknowledged, there):
    """Raise `Lost` where something that was acknowledged is not there."""
    lost = set(acknowledged) - set(there)
    if lost:
        raise Lost(
            f"{len(lost)} of {len(set(acknowledged))} are lost, such as {min(lost, key=str)}"
        )


def recoded(model, names, code):
    """Return a code whose label bits are the signs of the sum of the classes' codewords."""
    known = [model.classes_.index(name) for name in names if name in model.classes_]
    if not known:
        return code
    sums = np.sum([model.state_.codewords[number] for number in known], axis=0)
    return pack(sums[None]).tobytes() + code[model.n_label_bits // 8 :]


def stacked(rows):
    return sp.vstack(rows, format="csr") if sp.issparse(rows[0]) else np.vstack(rows)


class Truth:
    """The same stream, learned by a model of its own; items in a list, oldest first."""

    def __init__(self, model=None, *, keeps=False):
        self.model = model or toy_model()
        self.kept = {} if keeps else None  # by id, the features of an item, in half precision
        self.items = []  # [id, code, labels, payload]
        self.texts = {}  # by id
        self.predicted = {}  # by id, of items without labels
        self.keep_text = True

    def copied(self):
        """Return the same state, to go on from by itself."""
        other = Truth(self.model)
        other.kept = None if self.kept is None else dict(self.kept)
        other.items, other.texts = list(self.items), dict(self.texts)
        other.predicted = dict(self.predicted)
        return other

    def ingest(self, X, y, ids, payload=None, texts=None):
        if self.kept is not None:
            X = halved(X)
            for row, each in enumerate(ids):
                self.kept[each] = {k: m[[row]].astype(np.float32) for k, m in X.items()}
        model = copy.copy(self.model).partial_fit(X, y)
        payload = payload or [{}] * len(ids)
        for each in zip(ids, model.codes_, y, payload, strict=True):
            self.items.append((each[0], each[1].tobytes(), tuple(each[2] or ()), each[3] or {}))
        self.model = model
        kept = zip(ids, texts or [None] * len(ids), strict=True)
        self.texts.update({each: text for each, text in kept if text is not None})
        bare = [row for row, names in enumerate(y) if not names]
        if bare and model.classes_:
            sure = model.predict_proba({name: matrix[bare] for name, matrix in X.items()})
            for row, values in zip(bare, sure.tolist(), strict=True):
                ranked = sorted(zip(values, model.classes_, strict=True), key=lambda pair: -pair[0])
                self.predicted[ids[row]] = tuple(name for value, name in ranked if value >= 0.5)

    def replace(self, X, y, ids, payload=None, texts=None):
        self.delete(ids)
        self.ingest(X, y, ids, payload, texts)

    def update(self, each, *, payload=..., labels=...):
        """Without kept features the label bits follow the labels, and the model does not learn."""
        (at,) = [at for at, item in enumerate(self.items) if item[0] == each]
        _, old_code, old_labels, old_payload = self.items[at]
        names, code = old_labels if labels is ... else tuple(labels or ()), old_code
        moves = names != old_labels or (labels is not ... and bool(self.predicted.get(each)))
        if moves:
            self.predicted.pop(each, None)
            if self.kept is None:
                code = recoded(self.model, names, code)
            else:
                seen = self.model.n_seen_
                self._forget([each])
                self.model = self.model.partial_fit(self.kept[each], [names])
                code = self.model.codes_[0].tobytes()
                self.model = with_seen(self.model, seen)
        item = (each, code, names, old_payload if payload is ... else payload or {})
        if not moves:
            self.items[at] = item
        else:  # a new version, which is the youngest item
            self.items[at : at + 1] = []
            self.items.append(item)

    def add_words(self, vectors):
        self.model = with_labels(self.model, label_space(self.model).with_words(vectors))

    def _forget(self, ids):
        items = [item for item in self.items if item[0] in set(ids)]
        rows = [self.kept[item[0]] for item in items]
        X = {name: stacked([row[name] for row in rows]) for name in rows[0]}
        codes = np.array([np.frombuffer(item[1], np.uint8) for item in items])
        self.model = copy.copy(self.model).forget(X, [item[2] for item in items], codes)

    def delete(self, ids):
        if self.kept is not None and ids:
            seen = self.model.n_seen_
            self._forget(ids)
            self.model = with_seen(self.model, seen)
        for each in ids:
            self.texts.pop(each, None)
            self.predicted.pop(each, None)
        self.items = [item for item in self.items if item[0] not in set(ids)]

    def search(self, projections, k, mode, passes=lambda payload, labels: True, offset=0):
        """Return lists of (id, agreement, distance); agreements to compare with a tolerance."""
        items = [item for item in self.items if passes(item[3], item[2])]
        if not items:
            return [[] for _ in projections]
        codes = np.frombuffer(b"".join(item[1] for item in items), dtype=np.uint8)
        signs = unpack(codes.reshape(len(items), -1)).astype(np.float64)
        n_bits = signs.shape[1]
        answers = []
        for projection in projections.astype(np.float64):
            coded = projection[None].astype(np.float32)
            if mode == "hamming" and isinstance(self.model, OASIS):
                coded = self.model.for_hamming(coded)
            own = unpack(pack(coded))[0]
            distances = ((n_bits - signs @ own) / 2).astype(int)
            if mode == "hamming":
                keys, scores = distances, 1 - 2 * distances / n_bits
            else:
                sums = signs @ projection
                keys = -sums.astype(np.float32)
                total = np.abs(projection).sum()
                scores = sums / total if total else 0 * sums
            order = np.argsort(keys, kind="stable")[offset : offset + k]
            answers.append([(items[i][0], scores[i], int(distances[i])) for i in order])
        return answers


def contents(c):
    """Return all that is stored of the items, as `Truth.items` has them, oldest first."""
    with c._catalog.reading() as connection:
        rows = connection.execute("SELECT id, code, labels, payload FROM items ORDER BY key")
        names = c._catalog.class_names(connection)
        return [
            (
                each,
                code,
                tuple(names[int(n)] for n in labels.split(",")) if labels else (),
                json.loads(payload) if payload else {},
            )
            for each, code, labels, payload in rows
        ]


def assert_texts(c, truth):
    """Every text is there, no other one, and phrases find what a pass over all texts does."""
    assert {item.id: item.text for item in c.items() if item.text is not None} == truth.texts
    for phrase in ("dog", "double decker", "猫", "the who", "no", "い"):
        passed = {each for each, text in truth.texts.items() if Phrase.of(phrase).stands_in(text)}
        allowed = c._queries.allow_lists.of(Filter.of({"$text": {"contains": phrase}})).keys
        with c._catalog.reading() as connection:
            rows = c._catalog.rows(connection, "id", allowed.tolist())
            assert {each for (each,) in rows} == passed


def assert_labels(c, truth):
    """Predictions, counts of classes and filters by label are what a pass over all items says."""
    predicted = {each: names for each, names in truth.predicted.items() if names}
    assert {item.id: item.predicted for item in c.items() if item.predicted} == predicted
    for info in c.classes():
        given = {item[0] for item in truth.items if info.name in item[2]}
        guessed = {each for each, names in predicted.items() if info.name in names}
        assert (info.n, info.n_predicted) == (len(given), len(guessed))
        for also, passed in ((False, given), (True, given | guessed)):
            condition = {"$labels": {"has": info.name, "predicted": also}}
            allowed = c._queries.allow_lists.of(Filter.of(condition)).keys
            assert (np.diff(allowed) > 0).all()
            with c._catalog.reading() as connection:
                rows = c._catalog.rows(connection, "id", allowed.tolist())
                assert {each for (each,) in rows} == passed


def assert_hits(hits, expected):
    assert [[hit.id for hit in row] for row in hits] == [[e[0] for e in row] for row in expected]
    assert [[hit.distance for hit in row] for row in hits] == [
        [e[2] for e in row] for row in expected
    ]
    for row, wanted in zip(hits, expected, strict=True):
        assert_scores([hit.score for hit in row], [each[1] for each in wanted])


def assert_scores(scores, agreements):
    """Scores are 0.99 evidence sqrt(agreement): one evidence, or the agreement in its place."""
    scores, agreements = np.array(scores), np.clip(agreements, 0, 1)
    least = agreements > 1e-4
    evidence = np.max(scores[least] / np.sqrt(agreements[least]), initial=0)
    assert evidence <= 0.99 + 1e-6
    shown = evidence * np.sqrt(agreements)
    if not np.allclose(scores, shown, atol=1e-3):
        shown = 0.99 * agreements**1.5
    np.testing.assert_allclose(scores, shown, atol=1e-3)


def assert_same_model(a, b):
    """Bit for bit: everything that the next round uses, but not the codes of the last one."""
    (left, left_arrays), (right, right_arrays) = a.described(), b.described()
    # a label space that was loaded records a source that was given in the same way
    for key in left.keys() | right.keys():
        assert json.dumps(left[key]) == json.dumps(right[key]), key
    assert left_arrays.keys() == right_arrays.keys()
    for name, array in left_arrays.items():
        if name != "codes":
            np.testing.assert_array_equal(array, right_arrays[name], err_msg=name)
