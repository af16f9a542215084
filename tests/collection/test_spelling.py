"""What a misspelt query may have meant: against all words of all texts, one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis.collection import Collection
from oasis.collection.words import MAX_TEXT_BYTES, one_edit
from oasis.errors import InputError
from oasis.features.extractor import Extractor
from oasis.model import OASIS

TEXTS = [
    "A red bicycle leans on the house",
    "Two bicycles before old houses",
    "A giraffe eats from a tree; the giraffe's friend is riding",
    "Ein Café in Łódź mit Größe",
    "ein Kaffee, zwei Kaffees",
    "быстрая лошадь бежит",
    "黒い猫です",
    "boat",
    "boats and coats",
    "a coat",
    "coats",
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    extractor = Extractor.of(image="none", text="words")
    path = tmp_path_factory.mktemp("spelling") / "c"
    with Collection.open(path, model=OASIS(64, random_state=0), extractor=extractor) as c:
        c.ingest_items(
            [
                {"id": row, "text": text, "labels": [["vehicle", "zebra crossing"][row % 2]]}
                for row, text in enumerate(TEXTS)
            ]
        )
        yield c


def distance(a, b):
    """Edits between two words, a swap of neighbours as one: the whole table."""
    table = np.add.outer(np.arange(len(a) + 1), np.arange(len(b) + 1))
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            table[i, j] = min(
                table[i - 1, j] + 1,
                table[i, j - 1] + 1,
                table[i - 1, j - 1] + (a[i - 1] != b[j - 1]),
            )
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                table[i, j] = min(table[i, j], table[i - 2, j - 2] + 1)
    return table[-1, -1]


@given(st.text("abc", max_size=5), st.text("abc", max_size=5))
def test_one_edit_is_a_distance_of_one(a, b):
    assert (b in one_edit(a)) == (distance(a, b) == 1)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("bicyle", "bicycle"),
        ("A RED bicylce!", "A RED bicycle!"),
        ("girafe eatss", "giraffe eats"),  # a form that stands in a text
        ("housed", None),  # a word of the stem of "house"
        ("housse", "house"),
        ("kafee", "kaffee"),
        ("cafes", None),  # an accent is no edit, nor is a plural
        ("grossr", "grosse"),  # as texts are folded
        ("лошадт", "лошадь"),
        ("zebrra", "zebra"),  # of a label
        ("zebrra crosing", "zebra crossing"),
        ("vehicel", "vehicle"),
        ("eatng", None),  # "eating" is near, but the texts have "eats"
        ("boaf", None),  # a letter of four is much
        ("coast", None),  # a word that word vectors know
        ("boatt", "boat"),
        ("cot", None),  # too short
        ("xqzvkw", None),
        ("withn", None),  # a stop word is no correction
        ("黒い狗", None),
        ("b1cycle", None),
        ("", None),
        ("...", None),
    ],
)
def test_a_known_word_takes_the_place_of_an_unknown_one(filled, text, meant):
    assert filled.suggest(text) == meant


def test_it_takes_texts_and_changes_nothing(filled):
    before = filled.stats().commits
    for wrong in (None, 7, b"boat", ["boat"]):
        with pytest.raises(InputError, match="suggest takes a text"):
            filled.suggest(wrong)
    with pytest.raises(InputError, match="at most 1048576"):
        filled.suggest("x" * (MAX_TEXT_BYTES + 1))
    assert filled.suggest("zebrra " * 20_000) == "zebra " * 20_000
    assert filled.stats().commits == before


def test_it_follows_commits_and_knows_labels_where_no_texts_are_kept(tmp_path):
    extractor = Extractor.of(image="none", text="words")
    with Collection.open(tmp_path / "c", 64, extractor=extractor, keep_text=False) as c:
        assert c.suggest("girafe") is None
        c.ingest_items([{"id": 1, "text": "girafe", "labels": ["animal"]}])
        assert (c.suggest("girafe"), c.suggest("animall")) == (None, "animal")
        c.update(1, labels=["giraffe"])
        assert c.suggest("girafe") == "giraffe"
