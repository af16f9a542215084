"""The demo: one run, looked at from all sides."""

import io
import json
import re
import sys

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from oasis.cli import main
from oasis.collection import Collection
from oasis.datasets.icons import icons
from oasis.demo import glyphs
from oasis.demo.run import COLLECTION, PAGE, clear, run
from oasis.errors import CollectionError, LockedError
from oasis.features.extractor import Extractor


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    (out / "mine.txt").write_text("foreign")
    printed = io.StringIO()
    run(out, seed=0, console=Console(file=printed, width=80, highlight=False))
    return out, printed.getvalue()


def test_demo_prints_a_line_per_round_with_quality_above_chance(demo):
    pattern = r"^ +(\d+) +([\d,]+) +([\d.]+) +([\d.]+|-) +([\d.]+) +([\d.]+) +[\d.]+  \+(\d+) "
    lines = re.findall(pattern, demo[1], re.MULTILINE)
    assert [int(line[0]) for line in lines] == list(range(1, 13))
    assert sum(int(line[6]) for line in lines) == 68
    assert all(float(line[4]) > float(line[5]) for line in lines)
    assert float(lines[-1][4]) > 4 * float(lines[-1][5])
    # a path is as long as it is
    prose = [line for line in demo[1].splitlines() if demo[0].name not in line]
    assert len(prose) > 40 and max(len(line.rstrip()) for line in prose) <= 80


def test_demo_tells_how_often_a_title_finds_its_icon(demo):
    told = " ".join(demo[1].split())
    first, ten = map(
        int, re.search(r"finds it first in (\d+) % and among ten in (\d+) %", told).groups()
    )
    with Collection.open(demo[0] / COLLECTION, readonly=True) as opened:
        labelled = [each for each in opened.items() if each.labels][::13]
        titles = [each.payload["title"] for each in labelled]
        lists = [opened.find(title) for title in titles]
    places = [
        [hit.id for hit in hits].index(each.id) if each.id in {hit.id for hit in hits} else 99
        for each, hits in zip(labelled, lists, strict=True)
    ]
    # a sample of a hundred, in a collection that has three more items since
    assert np.mean(np.array(places) == 0) == pytest.approx(first / 100, abs=0.12)
    assert np.mean(np.array(places) < 10) == pytest.approx(ten / 100, abs=0.12)
    assert 95 <= first <= ten
    assert int(re.search(r"own picture finds it first in (\d+) %", told)[1]) >= 95


def test_demo_tells_the_story(demo):
    printed = " ".join(demo[1].split())
    for told in ("by kind and by content", "by their pictures", "never a category",
                 "arrived without labels", "predicted"):  # fmt: skip
        assert told in printed
    assert "guitar music, nearly exactly this: Guitar " in printed
    assert (
        len([line for line in demo[1].splitlines() if " search " in line or " serve " in line]) == 3
    )


def test_demo_leaves_a_sound_collection_beside_what_was_there(demo):
    out, printed = demo
    assert sorted(path.name for path in out.iterdir()) == [COLLECTION, PAGE, "mine.txt"]
    assert str(out / PAGE) in printed.replace("\n", "")
    with Collection.open(out / COLLECTION, readonly=True) as opened:
        assert opened.check() == []
        assert len(opened) == 1309 and opened.stats().n_rounds == 13
        assert opened.stats().n_bits == 256 and opened.stats().n_content_bits > 0
        assert sum(not each.labels for each in opened.items()) == 3
        stored = opened.get("cloud-rain")
        assert "weather" in stored.labels and stored.payload["title"] == "Cloud Rain"


def test_page_needs_nothing_else_and_records_what_the_collection_answers(demo):
    text = (demo[0] / PAGE).read_text("utf-8")
    assert not re.search(r'(src|href)="(?!data:|\?|#)', text.replace('href="?', ""))
    assert not re.search(r"https?://(?!www.w3.org)|@import|url\(", text)
    assert len(text) < 4_000_000
    found = re.search(r'<script id="recorded" type="application/json">(.*?)</script>', text, re.S)
    kept = json.loads(found[1])
    with Collection.open(demo[0] / COLLECTION, readonly=True) as opened:
        ids = [each.id for each in opened.items()]
        assert [each["id"] for each in kept["items"]] == ids
        for asked in ("winter", str(opened.get(ids[9]).payload["title"])):
            hits = opened.find(asked, k=12)
            assert [ids[hit[0]] for hit in kept["texts"][asked]] == [hit.id for hit in hits]
        (hits,) = opened.search_words(["weather"], 48)
        assert [ids[hit[0]] for hit in kept["words"]["weather"]] == [hit.id for hit in hits]
        hits = opened.more_like(ids[7], 12)
        assert [ids[hit[0]] for hit in kept["like"][7]] == [hit.id for hit in hits]


def test_demo_collection_is_searched_by_words_and_by_picture(demo, tmp_path, monkeypatch, capsys):
    (found,) = [icon for icon in icons() if icon.name == "cloud-rain"]
    (item,) = glyphs.items([found])
    picture = tmp_path / "query.png"
    picture.write_bytes(item.image)
    common = ["oasis", "search", str(demo[0] / COLLECTION), "--json", "-k", "5"]
    monkeypatch.setattr(sys, "argv", [*common, "--image", str(picture), "--text", "rain cloud"])
    with pytest.raises(SystemExit, match="0"):
        main()
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert all("weather" in hit["labels"] for hit in result["hits"])


def test_demo_collection_names_embedders_that_anyone_has(demo):
    (item,) = glyphs.items([icon for icon in icons() if icon.name == "cloud-rain"])
    query = {"text": item.text, "image": item.image}
    with Collection.open(demo[0] / COLLECTION, readonly=True) as opened:
        (hits,) = opened.search_items([query], 5)
    assert all("weather" in hit.labels for hit in hits)


def test_demo_replaces_its_own_and_refuses_what_is_foreign(demo, tmp_path):
    quiet = Console(file=io.StringIO())
    out = tmp_path / "out"
    with Collection.open(out / COLLECTION, extractor=glyphs.extractor()) as mine:
        with pytest.raises(LockedError):
            clear(out, quiet)
        assert mine.check() == []
    (out / PAGE).write_text("a page of my own")
    with pytest.raises(CollectionError, match="not written by the demo"):
        clear(out, quiet)
    assert (out / COLLECTION).exists()
    (out / PAGE).unlink()
    clear(out, quiet)
    assert list(out.iterdir()) == []
    with Collection.open(out / COLLECTION, extractor=Extractor.default()):
        pass
    with pytest.raises(CollectionError, match="not made by the demo"):
        clear(out, quiet)
    with Collection.open(out / COLLECTION, readonly=True) as opened:
        assert opened.check() == []
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(CollectionError, match="is a file"):
        clear(file, quiet)


def test_extractor_is_found_again_by_its_description():
    made = glyphs.extractor()
    again = Extractor.from_description(made.describe())
    assert again.name == made.name
    drawn = glyphs.items(icons()[:3])
    first, second = made.extract(drawn)[0], again.extract(drawn)[0]
    np.testing.assert_array_equal(first["image"], second["image"])
    assert np.linalg.norm(first["image"], axis=1) == pytest.approx(1)
    _, failures = made.extract([{"image": b"no picture"}])
    assert [failure.modality for failure in failures] == ["image"]


def test_drawings_keep_the_ink():
    square = np.zeros((1, 96, 96), dtype=np.uint8)
    square[0, 30:50, 20:40] = 255
    (png,) = glyphs.pngs(square)
    with Image.open(io.BytesIO(png)) as image:
        assert image.mode == "LA" and image.size == (96, 96)
        np.testing.assert_array_equal(np.asarray(image)[..., 1], square[0])
