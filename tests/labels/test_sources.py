"""Sources of words: splitting names, files in three formats, WordLlama."""

from __future__ import annotations

import json
import logging
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oasis.errors import DataError, FormatError, UnknownWordError
from oasis.labels import LabelSpace
from oasis.labels import sources as words_module
from oasis.labels.files import find_words, fingerprint
from oasis.labels.sources import FileWords, GivenWords, WordLlamaWords, split_name

Table = dict[str, np.ndarray]


def write_glove(path: Path, table: Table) -> None:
    lines = [f"{word} {' '.join(map(repr, vector.tolist()))}\n" for word, vector in table.items()]
    path.write_bytes("".join(lines).encode())


def write_word2vec_text(path: Path, table: Table) -> None:
    width = len(next(iter(table.values())))
    lines = [f"{w} {' '.join(map(repr, v.tolist()))} \n" for w, v in table.items()]
    path.write_bytes((f"{len(table)} {width}\n" + "".join(lines)).encode())


def write_binary(path: Path, table: Table, end: bytes = b"\n") -> None:
    width = len(next(iter(table.values())))
    records = [w.encode() + b" " + struct.pack(f"<{width}f", *v) + end for w, v in table.items()]
    path.write_bytes(f"{len(table)} {width}\n".encode() + b"".join(records))


def write_binary_tight(path: Path, table: Table) -> None:
    write_binary(path, table, end=b"")


WRITERS = [write_glove, write_word2vec_text, write_binary, write_binary_tight]
Writer = Callable[[Path, Table], None]


def table_of(words: list[str], width: int = 5) -> Table:
    rng = np.random.default_rng(3)
    return {word: rng.normal(size=width).astype(np.float32).astype(np.float64) for word in words}


TABLE = table_of(
    ["</s>", "the", "plant", "potted", "Éire", "straße", "日本", "Paris", "don't", "sky"]
)


@pytest.fixture(params=WRITERS, ids=lambda writer: writer.__name__[6:])
def writer(request: pytest.FixtureRequest) -> Writer:
    chosen: Writer = request.param
    return chosen


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sky", ("sky",)),
        ("potted plant", ("potted", "plant")),
        ("food-beverage", ("food", "beverage")),
        ("plant_life", ("plant", "life")),
        ("a/b", ("a", "b")),
        (" T-shirts & co. ", ("T", "shirts", "co")),
        ("don't", ("don't",)),
        ("women\N{RIGHT SINGLE QUOTATION MARK}s", ("women's",)),
        ("'quoted' dogs'", ("quoted", "dogs")),
        ("mp3 2024", ("mp3", "2024")),
        ("cafe\N{COMBINING ACUTE ACCENT}", ("café",)),
        ("हिन्दी शब्द", ("हिन्दी", "शब्द")),
        ("日本/東京", ("日本", "東京")),
        ("!?'", ()),
    ],
)
def test_split_name(name: str, words: tuple[str, ...]) -> None:
    assert split_name(name) == words


def test_given_names_come_before_their_words() -> None:
    source = GivenWords({"hot": [1, 0], "dog": [0, 1], "hot dog": [5, 5]})
    assert source.vectors(["hot dog", "dog, hot!", "dog"]).tolist() == [[5, 5], [0.5, 0.5], [0, 1]]
    with pytest.raises(UnknownWordError, match="the word 'cold' of class 'hot cold dog'"):
        source.vectors(["hot cold dog"])
    with pytest.raises(UnknownWordError, match=r"'Dog'.*2 more: 'Hot', '\?'"):
        source.vectors(["Dog", "hot", "Hot", "?"])


def test_every_word_of_a_file_is_found(tmp_path: Path, writer: Writer) -> None:
    path = tmp_path / "vectors.bin.txt"
    writer(path, TABLE)
    found = find_words(path, TABLE, until=TABLE)
    assert found.keys() == TABLE.keys()
    for word, vector in TABLE.items():
        assert found[word].tobytes() == vector.tobytes()
    assert find_words(path, ["nowhere"], until=["nowhere"]) == {}
    assert find_words(path, [], until=[]) == {}


@settings(
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    data=st.data(),
    words=st.lists(
        st.text(st.characters(categories=["L", "N", "M", "P", "S"]), min_size=1, max_size=6),
        min_size=1,
        max_size=12,
        unique=True,
    ),
    width=st.integers(2, 9),
)
def test_any_words_survive_a_file(
    tmp_path: Path, writer: Writer, data: st.DataObject, words: list[str], width: int
) -> None:
    table = table_of(words, width)
    path = tmp_path / "vectors"
    writer(path, table)
    wanted = data.draw(st.sets(st.sampled_from([*words, "no such word"])))
    found = find_words(path, wanted, until=wanted)
    assert found.keys() == wanted - {"no such word"}
    assert all(found[word].tobytes() == table[word].tobytes() for word in found)


def test_label_space_from_a_file(tmp_path: Path, writer: Writer) -> None:
    path = tmp_path / "vectors"
    writer(path, TABLE)
    names = ["potted_plant", "Sky", "paris", "日本", "éire"]
    space = LabelSpace(path)
    assert space.n_features == 0
    space = space.grown(names)
    assert space.n_features == 5
    means = [
        (TABLE["potted"] + TABLE["plant"]) / 2,
        *(TABLE[w] for w in ("sky", "Paris", "日本", "Éire")),
    ]
    expected = [v / np.linalg.norm(v) for v in means]
    np.testing.assert_allclose(space.represent([[name] for name in names]), expected, rtol=1e-14)
    with pytest.raises(
        UnknownWordError, match=r"'cloud' of class 'sky-cloud'.*vectors.*orthogonal"
    ):
        space.grown(["sky-cloud"])
    with pytest.raises(UnknownWordError, match="class '&', which has no words"):
        space.grown(["&"])


def test_exact_form_wins_over_other_cases_wherever_it_stands(
    tmp_path: Path, writer: Writer
) -> None:
    path = tmp_path / "vectors"
    table = table_of(["apple", "APPLE", "Turkey", "turkey", "Apple", "Polish"])
    writer(path, table)
    source = FileWords(path)
    names = ["Apple", "APPLE", "turkey", "TURKEY", "polish"]
    expected = [table[w] for w in ("Apple", "APPLE", "turkey", "turkey", "Polish")]
    assert source.vectors(names).tobytes() == np.array(expected).tobytes()


def test_first_of_a_repeated_word_counts(tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    path.write_text("sky 1 2\nsea 3 4\nsky 5 6\n")
    assert find_words(path, ["sky", "sand"], until=["sand"])["sky"].tolist() == [1, 2]


def test_glove_words_with_spaces_are_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    path.write_text(", 1 2\nat name@example.com 3 4\n. . . 5 6\nat 7 8\n")
    assert find_words(path, ["at"], until=["at"])["at"].tolist() == [7, 8]
    assert find_words(path, ["name", "at"], until=["name"]).keys() == {"at"}


def test_byte_order_mark_blank_lines_and_crlf_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    path.write_bytes(b"\xef\xbb\xbf2 2\r\nsky 1 2\r\n\r\nsea 3 4")
    assert find_words(path, ["sky", "sea", "sun"], until=["sun"])["sea"].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a file of word vectors"),
        (b"hello\nworld\n", "not a file of word vectors"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR 1 2 3", "not a file of word vectors"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "packed with gzip; unpack it first"),
        (b"PK\x03\x04\0\0\0\0", "packed with zip"),
        (b"3 0\nsky \n", "0 values per word"),
        (b"3 999999999\nsky 1\n", "999999999 values per word"),
        (b"sea 1 2\nsky 1\nsun 1 2\n", "line 2: 1 values, expected 2"),
        (b"sea 1 2\nsky 1 2 3\nsun 1 2\n", "line 2: 3 values, expected 2"),
        (b"sea 1 2\nsky\nsun 1 2\n", "line 2: 0 values, expected 2"),
        (b"sea 1 2\nsky 1 x\nsun 1 2\n", "line 2: not all values are numbers"),
        (b"sea 1 2\nsky 1 nan\nsun 1 2\n", "line 2: holds nan"),
        (b"3 2\nsea 1 2\nsky 1 \nsun 1 2\n", "line 3: 1 values, expected 2"),
        (b"3 2\nsky 1 x\nsea 1 2\nsun 1 2\n", "line 2: not all values are numbers"),
        (b"sea 1 2\nsun 1", r"line 2 \(the last\): 1 values, expected 2"),
        (b"sea 1 2\nsun 1 2\ns", r"line 3 \(the last\): 0 values, expected 2"),
        (b"4 2\nsea 1 2\nsun 1 2\n", "has 2 words, its header says 4"),
        (b"1 2\nsea 1 2\nsun 1 2\n", "has 2 words, its header says 1"),
    ],
)
def test_damaged_text_is_refused_with_its_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "vectors"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message) as error:
        find_words(path, ["sky"], until=["sky"])
    assert str(path) in str(error.value)


@pytest.mark.parametrize("end", [b"\n", b""])
def test_damaged_binary_is_refused_with_its_record(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "vectors"
    write_binary(path, TABLE, end)
    whole = path.read_bytes()
    path.write_bytes(whole[: -len(end) - 3])
    assert find_words(path, ["don't"], until=["don't"])  # before the damage
    for wanted in ("sky", "nowhere"):
        with pytest.raises(FormatError, match="record 10 of 10 is cut off"):
            find_words(path, [wanted], until=[wanted])
    path.write_bytes(whole + b"more")
    with pytest.raises(FormatError, match="has more than the 10 words"):
        find_words(path, ["nowhere"], until=["nowhere"])
    write_binary(path, {**TABLE, "sky": np.full(5, np.inf)}, end)
    with pytest.raises(FormatError, match="record 10: holds inf"):
        find_words(path, ["sky"], until=["sky"])
    path.write_bytes(whole[: whole.index(b"potted")] + bytes(3 << 20))
    with pytest.raises(FormatError, match="record 4: no word"):
        find_words(path, ["sky"], until=["sky"])


@pytest.mark.parametrize("text", [False, True])
def test_a_huge_file_is_neither_read_nor_held_whole(tmp_path: Path, text: bool) -> None:
    # what follows the first records is a hole of 3.6 GB: whoever read on would meet bytes that are
    # no record, and raise
    path = tmp_path / "huge"
    table = table_of([f"word{i}" for i in range(100)], width=300)
    (write_glove if text else write_binary)(path, table)
    content = path.read_bytes()
    if not text:
        content = content.replace(b"100 300\n", b"3000000 300\n", 1)
    with path.open("wb") as file:
        file.write(content)
        file.truncate(3_600_000_000)
    space = LabelSpace(path)
    tracemalloc.start()
    try:
        space = space.grown(["word7", "word99 word3"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert space.n_features == 300
    assert peak < 16e6
    with pytest.raises(FormatError):
        space.grown(["word100"])


def test_one_growth_is_one_scan_and_found_words_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans: list[set[str]] = []

    def counted(path: Path, wanted: set[str], until: set[str]) -> Table:
        scans.append(set(until))
        return find_words(path, wanted, until)

    monkeypatch.setattr(words_module, "find_words", counted)
    path = tmp_path / "vectors"
    write_glove(path, TABLE)
    space = LabelSpace(path).grown(["sky", "potted plant"])
    space.grown(["plant", "sky plant"]).query_vectors(["potted"])
    assert scans == [{"sky", "potted", "plant"}]
    for _ in range(2):
        with pytest.raises(UnknownWordError):
            space.grown(["moon"])
    assert scans[1:] == [{"moon"}]


def test_a_missing_word_may_be_added_to_the_file_as_long_as_nothing_came_from_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "vectors"
    write_glove(path, TABLE)
    space = LabelSpace(path)
    with pytest.raises(UnknownWordError):
        space.grown(["sky", "moon"])
    write_glove(path, {"moon": np.ones(5), **TABLE})
    space = space.grown(["sky", "moon"])
    write_glove(path, {"moon": np.zeros(5), **TABLE})
    with pytest.raises(DataError, match="is not the file with which"):
        space.grown(["the"])


def test_saved_space_needs_the_same_file_for_new_classes_only(
    tmp_path: Path, writer: Writer
) -> None:
    path, moved = tmp_path / "vectors", tmp_path / "moved"
    writer(path, TABLE)
    space = LabelSpace(path, axes=0.5).grown(["sky", "Potted plant"])
    expected = space.grown(["paris"]).represent([["paris", "sky"]])
    meta, arrays = space.state()
    meta = json.loads(json.dumps(meta))
    assert meta["source"] == {"kind": "file", "path": str(path), "checksum": fingerprint(path)}
    assert arrays.keys() == {"rows"}

    again = LabelSpace.from_state(meta, arrays)
    assert again.grown(["paris"]).represent([["paris", "sky"]]).tobytes() == expected.tobytes()

    path.rename(moved)
    lost = LabelSpace.from_state(meta, arrays)
    assert lost.represent([["sky"]]).tobytes() == space.represent([["sky"]]).tobytes()
    with pytest.raises(DataError, match=r"cannot read .*vectors.*has moved"):
        lost.grown(["paris"])
    found = LabelSpace.from_state(meta, arrays, words=moved)
    assert found.grown(["paris"]).represent([["paris", "sky"]]).tobytes() == expected.tobytes()

    writer(moved, {**TABLE, "paris": np.ones(5)})
    other = LabelSpace.from_state(meta, arrays, words=str(moved))
    assert other.query_vectors(["sky"]).shape == (1, 7)
    for call in (other.grown, other.query_vectors):
        with pytest.raises(DataError, match="is not the file with which"):
            call(["paris"])


def test_fingerprint_sees_size_ends_and_samples_between(tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = bytearray(np.random.default_rng(0).bytes(5 << 20))
    path.write_bytes(content)
    seen = {fingerprint(path)}
    for at in (0, len(content) - 1, 8 * len(content) // 17):
        content[at] ^= 1
        path.write_bytes(content)
        seen.add(fingerprint(path))
    path.write_bytes(content + b"\0")
    seen.add(fingerprint(path))
    assert len(seen) == 5
    assert fingerprint(path) in seen


def test_wordllama_knows_near_and_far() -> None:
    source = WordLlamaWords()
    vectors = source.vectors(["cat", "dog", "kitten", "economics", "potted plant"])
    assert vectors.shape == (5, 256)
    assert vectors.dtype == np.float64
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cos = unit @ unit.T
    assert 0.05 < cos[0, 1] < 0.4
    assert cos[0, 2] > cos[0, 3]
    assert cos[0, 1] > cos[0, 3]


def test_wordllama_gives_a_name_the_same_vector_in_any_company() -> None:
    alone = WordLlamaWords().vectors(["dog"])
    company = WordLlamaWords().vectors(["a very long name of a class of things", "dog"])
    assert alone[0].tobytes() == company[1].tobytes()
    glued = WordLlamaWords().vectors(["potted_plant", "potted plant"])
    assert glued[0].tobytes() == glued[1].tobytes()


def test_wordllama_needs_a_word() -> None:
    space = LabelSpace("wordllama").grown(["Zxqj", "日本"])
    assert space.n_features == 256
    with pytest.raises(UnknownWordError, match=r"class '\?\?', which has no words"):
        space.grown(["??"])


def test_wordllama_state_round_trip_and_checksum() -> None:
    space = LabelSpace.of(None).grown(["cat", "dog"])
    meta, arrays = space.state()
    meta = json.loads(json.dumps(meta))
    assert meta["source"]["version"]
    loaded = LabelSpace.from_state(meta, arrays).grown(["bird"])
    expected = space.grown(["bird"])
    sets = [["bird", "cat"], ["dog"]]
    assert loaded.represent(sets).tobytes() == expected.represent(sets).tobytes()
    assert expected.n_features == 259
    meta["source"] |= {"checksum": "0" * 64, "version": "0.0.1"}
    other = LabelSpace.from_state(meta, arrays)
    assert other.represent([["dog"]]).tobytes() == space.represent([["dog"]]).tobytes()
    with pytest.raises(
        DataError, match=r"made with wordllama 0\.0\.1, .* install wordllama==0\.0\.1"
    ):
        other.grown(["bird"])


@pytest.mark.slow
def test_wordllama_works_offline_and_leaves_logging_alone() -> None:
    # a process of its own: here wordllama may be imported, and pytest handles the log
    script = """
import logging, socket, warnings
warnings.simplefilter("error")
def refuse(*args, **kwargs):
    raise OSError("no network")
socket.socket.connect = socket.getaddrinfo = refuse
from oasis.labels import LabelSpace
space = LabelSpace.of(None)
import sys
assert "tokenizers" not in sys.modules, "loaded before it is needed"
assert space.grown(["cat"]).n_features == 257
assert logging.getLogger().handlers == [], logging.getLogger().handlers
assert logging.getLogger().level == logging.WARNING
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert logging.getLogger("wordllama").handlers == []
