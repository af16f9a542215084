"""The extractor of several modalities, and embedders made of callables."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from oasis.errors import InputError
from oasis.features.embedders import Function, Given, Named, embedder_of_name
from oasis.features.extractor import Extractor, Failure
from oasis.features.gradients import Gradients
from oasis.features.image import EfficientNetLite0
from oasis.features.meaning import Meaning
from oasis.features.pictures import DeferredPicture, open_picture
from oasis.features.text import HashedText
from oasis.features.thumbnail import thumbnail
from oasis.items import Item

Image = pytest.importorskip("PIL.Image")


def lengths(raws: list[Any]) -> Any:
    return [[len(raw), 1.0] for raw in raws]


def test_extractor_feeds_fields_to_modalities() -> None:
    extractor = Extractor(
        {"words": ("caption", HashedText(32)), "size": ("blob", Function("lengths@1", lengths, 2))}
    )
    items = [
        {"caption": "a boat", "blob": b"abc"},
        {"caption": None, "blob": b""},
        {"caption": "sea"},
        {},
    ]
    X, failures = extractor.extract(items)
    assert failures == []
    assert X["size"].tolist() == [[3, 1], [0, 1], [0, 0], [0, 0]]
    truth, _ = HashedText(32).embed(["a boat", None, "sea", None])
    assert isinstance(X["words"], sp.csr_array)
    assert np.array_equal(X["words"].toarray(), truth.toarray())
    assert extractor.n_features == {"words": 32, "size": 2}
    as_objects = [
        types.SimpleNamespace(caption=item.get("caption"), blob=item.get("blob")) for item in items
    ]
    again, _ = extractor.extract(as_objects)
    assert np.array_equal(again["size"], X["size"])
    with pytest.raises(InputError, match="no field 'caption'"):
        extractor.extract([object()])


def test_extractor_batches_agree_with_one_by_one_and_report_progress() -> None:
    texts: list[Any] = [f"word{i} and more" if i % 3 else None for i in range(71)]
    texts[50] = 5
    extractor = Extractor({"text": ("text", HashedText(64))})
    done: list[int] = []
    X, failures = extractor.extract([{"text": text} for text in texts], done.append)
    assert done == [32, 32, 7]
    assert failures == [Failure(50, "text", "the text is of type int, expected str")]
    for row, text in enumerate(texts):
        one, _ = HashedText(64).embed([text])
        assert np.array_equal(X["text"][[row]].toarray(), one.toarray())


def test_extractor_of_nothing_gives_empty_matrices_of_the_right_kind() -> None:
    extractor = Extractor(
        {"text": ("text", HashedText(8)), "size": ("blob", Function("lengths@1", lengths, 2))}
    )
    for items in ([], [{}] * 40):
        X, failures = extractor.extract(items)
        assert failures == []
        assert (X["text"].shape, X["size"].shape) == ((len(items), 8), (len(items), 2))
        assert isinstance(X["text"], sp.csr_array)
        assert X["text"].nnz == 0
        assert not np.any(X["size"])


def test_function_that_raises_is_asked_for_each_value() -> None:
    asked: list[int] = []

    def fragile(raws: list[Any]) -> Any:
        asked.append(len(raws))
        return sp.csr_matrix([[1.0 / raw, 0] for raw in raws])

    X, failures = Function("fragile@1", fragile, 2).embed([1, 0, 4])
    assert asked == [3, 1, 1, 1]
    assert X.toarray().tolist() == [[1, 0], [0, 0], [0.25, 0]]
    assert failures == {1: "ZeroDivisionError: float division by zero"}


@pytest.mark.parametrize("sparse", [False, True])
def test_function_rows_that_are_not_finite_are_failures(sparse: bool) -> None:
    values = np.array([[1, 2], [np.nan, 1], [np.inf, -np.inf], [3, 4], [1e99, 0]])
    embedder = Function("x@1", lambda raws: sp.csr_array(values) if sparse else values, 2)
    X, failures = embedder.embed([0] * 5)
    dense = X.toarray() if sparse else X
    assert dense.tolist() == [[1, 2], [0, 0], [0, 0], [3, 4], [0, 0]]
    assert (X.dtype, failures.keys()) == (np.float32, {1, 2, 4})


@pytest.mark.parametrize(
    "values", [[[1.0]], [[1.0, 2.0, 3.0]], [1.0, 2.0], "ab", [["a", "b"]], None]
)
def test_function_of_another_shape_is_an_error(values: Any) -> None:
    with pytest.raises(InputError, match=r"embedder 'x@1' returned"):
        Function("x@1", lambda raws: values, 2).embed([0])


def test_extractor_can_be_described_and_made_again() -> None:
    extractor = Extractor(
        {
            "image": ("photo", EfficientNetLite0()),
            "text": ("text", HashedText(512, stop_words=False)),
            "size": ("blob", Function("lengths@1", lengths, 2)),
        }
    )
    description = json.loads(json.dumps(extractor.describe()))
    again = Extractor.from_description(description, {"lengths@1": lengths})
    assert again.name == extractor.name
    assert again.describe() == extractor.describe()
    again.check_same(description)
    with pytest.raises(InputError, match=r"no embedder is called 'lengths@1'.*callable"):
        Extractor.from_description(description)


def test_a_callable_can_take_the_place_of_an_embedder_by_name() -> None:
    description = Extractor.default().describe()
    name = EfficientNetLite0.name
    extractor = Extractor.from_description(
        description, {name: lambda raws: np.ones((len(raws), 1280))}
    )
    X, _ = extractor.extract([{"image": "anything"}])
    assert X["image"].sum() == 1280
    extractor.check_same(description)


@pytest.mark.parametrize(
    "other",
    [
        {"text": ("text", HashedText(16, stop_words=False))},
        {"text": ("text", HashedText(32))},
        {"words": ("text", HashedText(16))},
        {"text": ("text", HashedText(16)), "more": ("text", HashedText(16))},
    ],
)
def test_another_extractor_is_refused(other: dict[str, Any]) -> None:
    recorded = Extractor({"text": ("text", HashedText(16))}).describe()
    with pytest.raises(InputError, match="recorded"):
        Extractor(other).check_same(recorded)
    # the same features from a field of another name are the same
    Extractor({"text": ("caption", HashedText(16))}).check_same(recorded)


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"text": 5},
        {"text": {"field": "text"}},
        {"text": {"field": "text", "embedder": "hashed-text-16-tf@1", "n_features": 16}},
        {"text": {"field": "text", "embedder": "hashed-text-16-tf@3", "n_features": 17}},
    ],
)
def test_a_wrong_description_is_refused(description: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Extractor.from_description(description)


@pytest.mark.parametrize(
    "sources",
    [{}, {"": ("text", HashedText())}, {"text": HashedText()}, {"text": ("text", lengths)}],
)
def test_extractor_refuses_wrong_sources(sources: Any) -> None:
    with pytest.raises(InputError):
        Extractor(sources)


def test_embedders_are_found_by_name() -> None:
    for embedder in (
        EfficientNetLite0(),
        Gradients(),
        Meaning(),
        HashedText(),
        HashedText(9, stop_words=False),
        Given(768),
    ):
        again = embedder_of_name(embedder.name)
        assert (type(again), again.name) == (type(embedder), embedder.name)
        assert (again.n_features, again.takes) == (embedder.n_features, embedder.takes)
    for name in ("hashed-text-0x10-tf@3", "hashed-text-16-tf@3 ", "efficientnet-lite0@2", ""):
        with pytest.raises(InputError, match="no embedder is called"):
            embedder_of_name(name)


# ---------------------------------------------------------------- vectors that come with items


def test_vectors_of_items_take_the_place_of_what_would_be_made() -> None:
    rng = np.random.default_rng(0)
    extractor = Extractor(
        {
            "text": ("text", HashedText(8)),
            "size": ("blob", Function("lengths@1", lengths, 2)),
            "clip": ("clip", Given(3)),
        }
    )
    truth = {"text": rng.normal(size=(40, 8)), "size": rng.normal(size=(40, 2))}
    clip = rng.normal(size=(40, 3)).astype(np.float16)
    given = rng.random((40, 2)) < 0.5
    items = [
        {
            "text": "a boat",
            "blob": b"abc",
            "clip": clip[row].tolist() if row % 2 else None,
            "vectors": {
                **({"text": truth["text"][row]} if given[row, 0] else {}),
                **({"size": truth["size"][row]} if given[row, 1] else {"size": None}),
                **({} if row % 2 else {"clip": clip[row]}),
            },
        }
        for row in range(40)
    ]
    X, failures = extractor.extract(items)
    assert failures == []
    words = HashedText(8).embed_dense(["a boat"])[0]
    expected = np.where(given[:, :1], truth["text"], words).astype(np.float32)
    assert isinstance(X["text"], sp.csr_array)
    assert np.array_equal(X["text"].toarray(), expected)
    expected = np.where(given[:, 1:], truth["size"], [[3, 1]]).astype(np.float32)
    assert np.array_equal(X["size"], expected)
    assert np.array_equal(X["clip"], clip.astype(np.float32))


def test_vectors_that_do_not_fit_are_failures() -> None:
    extractor = Extractor({"image": ("image", Given(2)), "text": ("text", HashedText(2))})
    items = [
        Item(0, vectors={"image": np.ones(3)}),
        Item(1, vectors={"image": np.array([1, np.nan])}),
        Item(2, vectors={"text": np.array([1e300, 0])}),
        {"id": 3, "image": b"bytes of a picture"},
        {"id": 4, "image": [[1, 2], [3, 4]]},
        Item(5, vectors={"image": np.array([1, 2], dtype=np.int8)}),
    ]
    X, failures = extractor.extract(items)
    assert [(failure.row, failure.reason) for failure in failures] == [
        (0, "the vector has 3 values, expected 2"),
        (1, "the vector holds nan at position 1, expected finite numbers"),
        (2, "the vector holds inf at position 0, expected finite numbers"),
        (
            3,
            "no features are made of pictures or texts here; expected a vector of 2 values, got "
            "bytes",
        ),
        (4, "the vector has shape (2, 2) and type int64, expected a list of numbers"),
    ]
    assert X["image"].tolist() == [[0, 0]] * 5 + [[1, 2]]
    with pytest.raises(InputError, match="vectors of an item are list, expected a mapping"):
        extractor.extract([{"vectors": [1, 2]}])
    with pytest.raises(InputError, match=r"vectors of 'sound', but .* \['image', 'text'\]"):
        extractor.extract([{"vectors": {"sound": [1, 2]}}])


def test_has_anything_sees_fields_and_vectors() -> None:
    extractor = Extractor({"image": ("image", Given(2)), "text": ("text", HashedText(2))})
    for item in ({}, {"text": None}, {"text": " "}, {"vectors": {}}, {"vectors": {"text": None}}):
        assert not extractor.has_anything(item)
    for item in ({"text": "a"}, {"image": b""}, {"vectors": {"image": [1, 2]}}, {"image": [1]}):
        assert extractor.has_anything(item)


@pytest.mark.slow
def test_dense_features_equal_sparse_ones_and_load_no_scipy() -> None:
    extractor = Extractor({"text": ("text", HashedText(64)), "size": ("text", Meaning())})
    items = [{"text": f"boat {n} sea {n % 3}"} if n % 4 else {} for n in range(40)]
    sparse, _ = extractor.extract(items)
    dense, _ = extractor.extract(items, dense=True)
    assert isinstance(dense["text"], np.ndarray)
    assert np.array_equal(dense["text"], sparse["text"].toarray())
    script = """
import sys
from oasis.features.extractor import Extractor
X, _ = Extractor.of(image="none").extract([{"text": "a red boat"}], dense=True)
assert X["text"].any() and X["meaning"].any()
loaded = {name.partition(".")[0] for name in sys.modules} & {"scipy", "sklearn", "wordllama", "PIL"}
assert not loaded, loaded
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---------------------------------------------------------------- choices


def test_choices_by_name() -> None:
    def made(**choices: Any) -> str:
        return Extractor.of(**choices).name

    both = "meaning<-text:wordllama-256@1 text<-text:hashed-text-2048-tf@3"
    assert made() == f"image<-image:efficientnet-lite0@1 {both}" == Extractor.default().name
    assert made(image="none") == both
    assert made(image="none", text="words") == "text<-text:hashed-text-2048-tf@3"
    assert made(image="gradients", text="meaning") == (
        "image<-image:glyph-gradients-48@1 meaning<-text:wordllama-256@1"
    )
    assert made(image="none", text="hashed-text-64-tf@3") == "text<-text:hashed-text-64-tf@3"
    assert made(vectors={"image": 3, "sound": 2}) == "image<-image:given-3 sound<-sound:given-2"
    assert made(vectors={"image": 1280}, image="efficientnet", text="words") == (
        "image<-image:efficientnet-lite0@1 text<-text:hashed-text-2048-tf@3"
    )
    with pytest.raises(InputError, match="have 3 values, 'efficientnet-lite0@1' makes 1280"):
        made(vectors={"image": 3}, image="efficientnet")
    with pytest.raises(InputError, match="neither pictures nor texts"):
        made(image="none", text="none")
    with pytest.raises(InputError, match=r"no embedder is called 'wrods'; did you mean 'words'\?"):
        made(text="wrods")
    with pytest.raises(InputError, match="did you mean 'efficientnet'"):
        made(image="efficentnet")
    with pytest.raises(InputError, match="no embedder is called 'clip'; known are"):
        made(image="clip")


def test_an_item_that_is_a_text_is_refused_with_the_item_to_write() -> None:
    extractor = Extractor.of(image="none", text="words")
    with pytest.raises(InputError, match=r"""got the text 'dog'; write \[{"text": "dog"}\]"""):
        extractor.extract(["dog"])
    with pytest.raises(InputError, match=r"""write \[{"text": "dog"}\]"""):
        extractor.has_anything("dog")


def test_given_vectors_and_an_embedder_of_their_width_are_the_same() -> None:
    given = Extractor.of(vectors={"text": 256})
    embedder = Extractor({"text": ("text", Meaning())})
    embedder.check_same(given.describe())
    given.check_same(embedder.describe())
    with pytest.raises(InputError, match="recorded"):
        Extractor.of(vectors={"text": 255}).check_same(embedder.describe())


# ---------------------------------------------------------------- embedders by name

MODULE = """
import numpy as np

def texts():
    def embed(values):
        return np.array([[len(value), value.count("a")] for value in values], dtype=np.float16)
    return embed

class Pictures:
    n_features = 3
    def __call__(self, values):
        assert all(value.mode == "RGB" for value in values)
        return [np.asarray(value).mean(axis=(0, 1)) for value in values]

def nothing():
    return 5

def one_row():
    return lambda values: np.ones(4)

def broken():
    raise RuntimeError("no weights")

def raising():
    def embed(values):
        raise ValueError("bad weights")
    return embed
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An importable module of embedders, with a name of its own."""
    name = f"embedders_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def picture(colour: Any, size: tuple[int, int] = (40, 30)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, "PNG")
    return file.getvalue()


def test_named_embedders_are_found_again(module: str) -> None:
    extractor = Extractor.of(image=f"{module}:Pictures", text=f"{module}:texts")
    assert extractor.n_features == {"image": 3, "text": 2}
    items = [{"image": picture((10, 20, 30)), "text": "banana"}, {"text": "sky"}, {"image": b"no"}]
    X, failures = extractor.extract(items)
    assert X["text"].tolist() == [[6, 3], [3, 0], [0, 0]]
    assert X["image"].tolist() == [[10, 20, 30], [0, 0, 0], [0, 0, 0]]
    assert [(failure.row, failure.modality) for failure in failures] == [(2, "image")]
    description = json.loads(json.dumps(extractor.describe()))
    assert description["image"] == {
        "field": "image",
        "embedder": f"{module}:Pictures",
        "n_features": 3,
        "takes": "picture",
    }
    again = Extractor.from_description(description, trust_embedders=True)
    assert again.name == extractor.name
    assert module not in sys.modules or isinstance(again.sources["text"][1], Named)
    for name, matrix in again.extract(items)[0].items():
        assert np.array_equal(matrix, X[name])


def test_named_embedders_are_imported_when_features_are_needed(module: str) -> None:
    entry = {"field": "text", "embedder": f"{module}:texts", "n_features": 2, "takes": "text"}
    for trusts in (False, True):
        extractor = Extractor.from_description({"text": entry}, trust_embedders=trusts)
        assert extractor.n_features == {"text": 2}
        assert extractor.describe() == {"text": entry}
        assert module not in sys.modules
        if not trusts:
            with pytest.raises(InputError, match=r"--trust-embedders .* or name it yourself"):
                extractor.extract([{"text": "a"}])
            assert module not in sys.modules
    extractor.extract([{"text": "a"}])
    assert module in sys.modules


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_package.clip:make", "No module named 'no_such_package'; install its package"),
        ("MODULE:none", "AttributeError: .* has no attribute 'none'"),
        ("MODULE:nothing", r"nothing\(\) returned int, expected a callable"),
        ("MODULE:broken", "cannot be loaded: RuntimeError: no weights"),
        ("MODULE:raising", "raised ValueError: bad weights"),
        ("MODULE:one_row", r"returned shape \(4,\) for one value, expected \(1, d\)"),
    ],
)
def test_named_embedders_that_cannot_be_used_are_said_in_one_line(
    module: str, name: str, message: str
) -> None:
    extractor = Extractor.of(image="none", text=name.replace("MODULE", module))
    with pytest.raises(InputError, match=message) as caught:
        extractor.describe()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["os.system", "a:b()", "a b:c", ":c", "a:", "a:b:c", "../a:b"])
def test_names_that_are_no_path_to_a_factory_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="no embedder is called"):
        Extractor.of(text=name)
    with pytest.raises(InputError, match=r"named package\.module:factory"):
        Named(name, "text")
    with pytest.raises(InputError, match="'text' or 'picture'"):
        Named("a:b", "sound")


# ---------------------------------------------------------------- pictures


def test_pictures_are_taken_in_any_form(tmp_path: Path, module: str) -> None:
    array = np.random.default_rng(0).integers(0, 256, (50, 60, 3), dtype=np.uint8)
    image = Image.fromarray(array)
    file = io.BytesIO()
    image.save(file, "PNG")
    (tmp_path / "a.png").write_bytes(file.getvalue())
    forms = [tmp_path / "a.png", str(tmp_path / "a.png"), file.getvalue(), image, array]
    extractor = Extractor(
        {"edges": ("image", Gradients()), "mean": ("image", Named(f"{module}:Pictures", "picture"))}
    )
    X, failures = extractor.extract([{"image": form} for form in forms])
    assert failures == []
    for matrix in X.values():
        assert np.array_equal(matrix, np.repeat(matrix[:1], len(forms), axis=0))
    np.testing.assert_allclose(X["mean"][0], array.mean(axis=(0, 1)), rtol=1e-6)
    assert image.size == (60, 50)


def test_a_picture_is_decoded_once_for_all_uses() -> None:
    decoded: list[bytes] = []

    def counted(content: bytes, max_pixels: int) -> Any:
        decoded.append(content)
        return open_picture(bytes(content), max_pixels)

    extractor = Extractor({"edges": ("image", Gradients()), "more": ("image", Gradients())})
    pictures: list[Any] = [picture((n, 255 - n, 7), (90 + n, 100)) for n in range(70)]
    pictures[9], pictures[40] = None, b"broken"
    deferred = [raw and DeferredPicture.of(raw, counted) for raw in pictures]
    items = [Item(n, image=raw) for n, raw in enumerate(deferred)]
    done: list[int] = []
    X, failures, thumbnails = extractor.extract_with_thumbnails(items, done.append)
    assert sorted(decoded) == sorted(raw for raw in pictures if raw is not None)
    assert done == [32, 32, 6]
    assert [(failure.row, failure.modality) for failure in failures] == [
        (40, "edges"),
        (40, "more"),
    ]
    truth, _ = Gradients().embed([raw for raw in pictures if raw is not None])
    assert np.array_equal(np.delete(X["edges"], 9, axis=0), truth)
    assert thumbnails == [None if raw in (None, b"broken") else thumbnail(raw) for raw in pictures]


def test_thumbnails_are_made_where_vectors_come_with_the_items() -> None:
    extractor = Extractor.of(vectors={"clip": 2})
    items = [Item(0, image=picture("red"), vectors={"clip": np.ones(2)}), Item(1, image=b"no")]
    X, failures, thumbnails = extractor.extract_with_thumbnails(items)
    assert X["clip"].tolist() == [[1, 1], [0, 0]]
    assert failures == []
    assert thumbnails == [thumbnail(picture("red")), None]
