"""Texts kept word for word: found by phrases, checked, repaired, deleted, and never obeyed."""

import sqlite3
from contextlib import closing

import pytest
from collection_toy import open_toy
from collection_truth import Truth, assert_texts
from collection_writer import apply
from toy import NAMES, chunk

from oasis.collection import Collection
from oasis.collection.catalog import NAME
from oasis.collection.words import MAX_TEXT_BYTES
from oasis.errors import InputError
from oasis.features.extractor import Extractor

CAPTIONS = [
    "A red double-decker bus in London",
    "Two decker boats; double trouble",
    "Ein Café in Łódź",
    "黒い猫です",
    "The Who",
    "C",
    'He said "NEAR OR NOT" AND left*',
    None,
    "ねこ と いぬ",
]


def filled(folder, texts=None, **options):
    texts = CAPTIONS if texts is None else texts
    c = open_toy(folder / "c", **options)
    X, y = chunk(len(texts), seed=1, classes=NAMES[:4])
    c.ingest(X, y, list(range(len(texts))), texts=texts if c.keep_text else None)
    return c


def found(c, phrase, k=50):
    X, _ = chunk(1, seed=9)
    return sorted(hit.id for hit in c.search(X, k, where={"$text": {"contains": phrase}})[0])


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [
        ("double decker", [0]),
        ("DOUBLE  Decker!", [0]),
        ("decker double", []),
        ("deck", []),
        ("decker", [0, 1]),
        ("cafe", [2]),
        ("lodz", [2]),
        ("猫", [3]),
        ("い猫", [3]),
        ("猫い", []),
        ("the who", [4]),
        ("who", [4]),
        ("c", [5]),
        ("a", [0]),
        ("near or not", [6]),
        ('"NEAR', [6]),
        ("left*", [6]),
        ("ねこ", [8]),
        ("い", [3, 8]),
    ],
)
def test_a_phrase_finds_the_texts_in_which_its_words_follow_each_other(folder, phrase, expected):
    with filled(folder) as c:
        assert found(c, phrase) == expected


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ({"$text": "boat"}, "takes one operator"),
        ({"$text": {"has": "boat"}}, "takes one operator"),
        ({"$text": {"contains": 3}}, "takes a text, got 3"),
        ({"$text": {"contains": " ... "}}, "needs a word"),
        ({"$text": {"contains": "\x00"}}, "needs a word"),
        ({"$text": {"contains": "\ud800"}}, "half a surrogate"),
        ({"$text": {"contains": "x " * 5_000_000}}, "at most 1048576"),
        ({"$text": {"contains": "x " * 500_000}}, "at most 1000 words"),
    ],
)
def test_a_filter_that_cannot_be_meant_gets_one_line(folder, where, line):
    with filled(folder) as c:
        with pytest.raises(InputError, match=line) as caught:
            c.search(chunk(1, seed=9)[0], where=where)
        assert len(str(caught.value)) < 300
        assert "\n" not in str(caught.value)


def test_filters_by_text_go_with_the_others(folder):
    with filled(folder) as c:
        X, _ = chunk(1, seed=9)
        labels = {0: c.get(0).labels[0]}
        where = {"$text": {"contains": "decker"}, "$labels": {"has": labels[0]}}
        passed = {hit.id for hit in c.search(X, 50, where=where)[0]}
        assert passed == {each for each in (0, 1) if labels[0] in c.get(each).labels}
        # a list that is kept is extended by what comes later
        c.ingest(*chunk(2, seed=3), ["new", "other"], texts=["a decker", "a boat"])
        assert "new" in {
            hit.id for hit in c.search(X, 50, where={"$text": {"contains": "decker"}})[0]
        }


def test_texts_come_back_as_they_were_given(folder):
    texts = ["a\x00b  c", "  spaces ", "", " \n", None, "é", 'q" OR 1=1; --']
    with filled(folder, texts) as c:
        assert [c.get(row).text for row in range(7)] == [*texts[:2], None, None, None, *texts[5:]]
        assert [item.text for item in c.items()] == [c.get(row).text for row in range(7)]
        assert found(c, "b c") == [0]
        assert c.check() == []


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        ([3], "must be a text or None, got int"),
        (["\ud800"], "half a surrogate"),
        (["x" * (MAX_TEXT_BYTES + 1)], "at most 1048576"),
        (["é" * (MAX_TEXT_BYTES // 2 + 1)], "at most 1048576"),
        (["a", "b"], "for 2 samples"),
        ("ab", "one entry per sample"),
    ],
)
def test_texts_that_cannot_be_kept_change_nothing(folder, texts, line):
    with filled(folder) as c:
        before = c.stats()
        with pytest.raises(InputError, match=line):
            c.ingest(*chunk(1, seed=3), ["new"], texts=texts)
        assert c.stats() == before


def test_keep_text_is_recorded_when_the_collection_is_begun(folder):
    with filled(folder, keep_text=False) as c:
        assert not c.keep_text
        assert not c.stats().keep_text
        assert c.get(0).text is None
        assert found(c, "decker") == []
        with pytest.raises(InputError, match="begun with keep_text=False"):
            c.ingest(*chunk(1, seed=3), ["new"], texts=["a boat"])
    with pytest.raises(InputError, match="keep_text=False, got True; leave it out"):
        Collection.open(folder / "c", keep_text=True)
    with pytest.raises(InputError, match="must be True or False, got 1"):
        Collection.open(folder / "c", keep_text=1)
    with Collection.open(folder / "c", keep_text=False) as c:
        assert not c.keep_text


@pytest.mark.parametrize("keep_text", [True, False])
def test_raw_items_bring_their_texts(folder, keep_text):
    extractor = Extractor.of(image="none", text="words")
    items = [
        {"id": row, "text": text, "labels": ["a" if row % 2 else "b"]}
        for row, text in enumerate(CAPTIONS)
        if text
    ]
    items.append({"id": "long", "text": "x" * (MAX_TEXT_BYTES + 1), "labels": ["a"]})
    with Collection.open(folder / "c", 64, extractor=extractor, keep_text=keep_text) as c:
        (rejected,) = c.ingest_items(items)
        assert rejected.id == "long"
        assert "at most 1048576" in rejected.reason
        for item in items[:-1]:
            assert c.get(item["id"]).text == (item["text"] if keep_text else None)
        assert c.check() == []


def test_a_deletion_leaves_no_word_of_a_text_in_the_files(folder):
    secret = "xylophonist zugzwang"
    with filled(folder, [*CAPTIONS, secret]) as c:
        c.delete([len(CAPTIONS)])
        assert found(c, "zugzwang") == []
        assert c.check() == []
    for path in (folder / "c").iterdir():
        content = path.read_bytes()
        assert b"zugzwang" not in content, path
        assert b"xylophonist" not in content, path


def damage(folder, statement, *values):
    with closing(sqlite3.connect(folder / "c" / NAME, isolation_level=None)) as connection:
        connection.execute(statement, values)


def test_check_finds_a_changed_text_and_nothing_but_a_backup_has_it(folder):
    filled(folder).close()
    damage(folder, "UPDATE texts SET text = 'a green bus' WHERE key = 1")
    with Collection.open(folder / "c") as c:
        assert any("checksum in texts" in text for text in c.check())
        assert any("texts" in text for text in c.repair())
        with pytest.raises(Exception, match="text of the item with key 1 is damaged"):
            c.get(0)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM vocabulary WHERE word = 'bus'",
        "UPDATE vocabulary SET n = 7 WHERE word = 'bus'",
        "DELETE FROM lines",
        "DELETE FROM words_data WHERE id > 10",
        "DELETE FROM words_docsize WHERE id = 1",
        "INSERT INTO words (rowid, text) VALUES (77, 'boat')",
    ],
)
def test_check_finds_damaged_words_and_repair_makes_them_anew(folder, statement):
    filled(folder).close()
    damage(folder, statement)
    with Collection.open(folder / "c") as c:
        assert any("words" in text for text in c.check())
        assert c.repair() == []
        assert found(c, "bus") == [0]


def test_a_stream_of_changes_agrees_with_the_truth_and_with_a_reader(folder):
    truth = Truth()
    with open_toy(folder / "c") as c:
        apply(c, 0)
        apply(truth, 0)
        with Collection.open(folder / "c", readonly=True) as reader:
            for number in range(1, 12):
                apply(c, number)
                apply(truth, number)
                assert_texts(c, truth)
                assert_texts(reader, truth)
        assert c.check() == []
