"""The formula of words beside codes (`oasis.collection.texts.fusion`), item by item."""

import math

import numpy as np

from oasis.arrays import unit_rows
from oasis.codes import unpack
from oasis.collection.texts import fusion
from oasis.collection.texts.phrases import kept_words
from oasis.features.words import tokens_of


def truth(c, text, k, allowed=lambda item: True):
    """Return ids and scores by the formula in the docstring, item by item."""
    stored = list(c.items())
    words = kept_words(text)
    own = {item.id: set(kept_words(item.text or "")) for item in stored}
    named = {
        item.id: {word for label in item.labels for word in kept_words(label)} for item in stored
    }
    n_having = {w: sum(w in own[i.id] or w in named[i.id] for i in stored) for w in words}
    asked, words = words, [word for word in words if n_having[word]]
    n_having = {word: n_having[word] for word in words}
    idf = {
        word: math.log(1 + len(stored) / (n + 0.5)) / (10 if len(word) == 1 else 1)
        for word, n in n_having.items()
    }
    sizes = [len(own[i.id]) for i in stored for word in words if word in own[i.id]]
    length_of_texts = max(6, sum(sizes) / max(1, len(sizes)))
    X, _ = c.extractor.extract([{"text": text}], dense=True)  # as a few queries are
    model = c.model
    projection = model.project(X)[0]
    classes = [n for n in model.classes_ if set(kept_words(n)) <= set(asked)]
    trust = min(np.float32(1), (4 * model.evidence(X)[0]) ** 3)
    names, near = model.project_words(classes or ["dog"]).sum(axis=0), 1.0 if classes else 0.0
    if not classes and asked and trust < 1:  # by the classes that mean nearly the same
        told, nearness = model.project_words_with_evidence([" ".join(tokens_of(text))])
        names, near = told[0], float(nearness[0])
    if near >= 0.55:  # projections are float32, and different codes may be next to tied
        both = unit_rows(np.stack([projection, names]))
        projection = trust * both[0] + np.float32(near) * both[1]
        trust = max(float(trust), near)
    all_words = [len(own[i.id]) - len(words) for i in stored if words and set(words) <= own[i.id]]
    fewer = min(all_words) * min(1, 10 / len(all_words)) if all_words and not classes else 0
    projection = projection.astype(np.float64)
    length = np.linalg.norm(projection) * math.sqrt(model.n_bits) or 1
    just = [set(words), set(asked)]
    rows = []
    for age, item in enumerate(stored):
        signs = unpack(np.frombuffer(item.code, dtype=np.uint8)[None])[0].astype(np.float64)
        cosine = trust * float(signs @ projection / length)
        weight = sum(
            idf[word] * (1.0 if word in own[item.id] else 0.9 * (word in named[item.id]))
            for word in words
        )
        found = own[item.id] & set(words)
        # the text of an item counts only where it has a word of the query
        other = len(own[item.id] - found) if found else 0
        other = max(other - fewer, min(other, 0.5))
        part = weight / (sum(idf.values()) or 1)
        whole = [item.text or "", *(item.text or "").splitlines()]
        if any(kept_words(each) and set(kept_words(each)) in just for each in whole):
            part, other = 1.0, 0.5
            if any(tokens_of(each) == tokens_of(text) for each in whole):
                other = 0
        share = part**8 / (1 + 6 / length_of_texts * other / (10 * max(1, len(words))))
        score = 1 - (1 - cosine) * (1 - min(share, 1)) ** fusion.WORDS
        if allowed(item):
            rows.append((-round(score, 12), -round(cosine, 12), age, item.id))
    return [(row[-1], -row[0]) for row in sorted(rows)[:k]]
