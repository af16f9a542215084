"""`oasis ingest`: what is read, what is refused, and how it goes on after an end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cli_data
import numpy as np
import pytest
from cli_data import TEXT_ONLY, WORDS, row, write_jsonl
from PIL import Image, ImageDraw

from oasis.collection import Collection, feeding
from oasis.errors import OasisError
from oasis.features.thumbnail import MAX_BYTES

ingested = cli_data.ingested
filled = cli_data.filled
TOLD = "items.jsonl: texts from 'text', labels from 'labels', ids from 'id'; kept: payload\n"


def test_ingest_skips_bad_items_lists_them_and_goes_on(tmp_path, oasis):
    source = write_jsonl(
        tmp_path / "items.jsonl",
        [
            row(0),
            "no json\n",
            row(1),
            row(0),
            {"id": "x", "text": "a", "labels": 7},
            {"id": "y", "image": "missing.png"},
            {"id": "z" * 2000, "text": "an id that is too long"},
            row(2),
        ],
    )
    target = tmp_path / "c.oasis"
    code, out, err = oasis("ingest", target, source, *TEXT_ONLY, "--json")
    summary = json.loads(out)
    assert (code, err) == (0, "")
    assert (summary["read"], summary["ingested"], summary["rejected"]) == (8, 3, 5)
    lines = Path(summary["rejects"]).read_text().splitlines()
    assert summary["rejects"] == f"{target}.rejects.jsonl"
    rejected = [json.loads(line) for line in lines]
    assert [each["where"].split(":")[1] for each in rejected] == ["2", "4", "5", "6", "7"]
    assert "no JSON" in rejected[0]["reason"] and "earlier" in rejected[1]["reason"]
    with Collection.open(target, readonly=True) as opened:
        assert opened.check() == []
        assert opened.get("item-2").payload == {"year": 2002}


def test_ingest_may_say_how_many_bits_are_owned_and_says_so_again(tmp_path, oasis):
    source = write_jsonl(tmp_path / "items.jsonl", [row(number) for number in range(30)])
    target, options = tmp_path / "c.oasis", ("--bits", 32, "--owned", 32)
    code, out, _ = oasis("ingest", target, source, *TEXT_ONLY, *options, "--json")
    assert (code, json.loads(out)["ingested"]) == (0, 30)
    code, out, _ = oasis("ingest", target, source, *options, "--json")
    assert (code, json.loads(out)["skipped"]) == (0, 30)
    with Collection.open(target, readonly=True) as c:
        codes, _ = c.index.items()
        assert len(np.unique(codes, axis=0)) == len(WORDS)
        assert np.bitwise_count(codes).sum(axis=1).tolist() == [1] * 30  # one bit for each class


def test_a_warning_is_a_note_without_a_source_line(tmp_path, oasis):
    rows = [row(0), row(1), row(3) | {"labels": ["Sea"]}]
    source = write_jsonl(tmp_path / "items.jsonl", rows)
    code, _, err = oasis("ingest", tmp_path / "c.oasis", source, *TEXT_ONLY, "--json")
    said = "note: class names that differ by case alone are different classes: 'sea' and 'Sea'\n"
    assert (code, err) == (0, said)


def test_ingest_again_skips_what_is_there_and_drops_an_empty_rejects_file(filled, tmp_path, oasis):
    source = write_jsonl(tmp_path / "more.jsonl", [row(number) for number in range(50, 70)])
    code, out, _ = oasis("ingest", filled, source, "--json")
    summary = json.loads(out)
    assert code == 0
    assert (summary["skipped"], summary["ingested"], summary["items"]) == (10, 10, 70)
    assert summary["rejects"] is None
    assert not list(tmp_path.glob("*.rejects.jsonl"))


def test_ingest_replace_replaces_what_is_there_and_takes_the_rest(filled, tmp_path, oasis):
    rows = [row(number) | {"text": f"changed text {number}"} for number in range(50, 70)]
    source = write_jsonl(tmp_path / "more.jsonl", [*rows, {"id": "item-3", "text": " "}])
    with Collection.open(filled, readonly=True) as opened:
        before = [opened.get(f"item-{number}") for number in (3, 40)]
    counts = []
    for strict in ((), ("--batch", 7)):
        code, out, _ = oasis("ingest", filled, source, "--replace", "--json", *strict)
        summary = json.loads(out)
        counts.append([summary[each] for each in ("ingested", "replaced", "skipped", "rejected")])
        assert (code, summary["items"]) == (0, 70)
    assert counts == [[10, 10, 0, 1], [0, 20, 0, 1]]
    with Collection.open(filled, readonly=True) as opened:
        assert [opened.get(f"item-{number}") for number in (3, 40)] == before
        for number in (50, 69):
            assert opened.get(f"item-{number}").text == f"changed text {number}"
        assert opened.check() == []
    code, out, _ = oasis("ingest", filled, source, "--replace")
    assert code == 0 and "0 items ingested, 20 replaced in 1 round" in out
    assert oasis("ingest", filled, source, "--replace", "--strict")[0] == 1


@pytest.mark.parametrize(
    "refused", ['{"id": 3}\n', {**row(2), "text": "boat " * 300_000}, {**row(1), "text": "a sea"}]
)
def test_strict_stops_before_anything_is_written(tmp_path, oasis, refused):
    source = write_jsonl(tmp_path / "items.jsonl", [row(0), row(1), refused])
    target = tmp_path / "c.oasis"
    code, out, err = oasis("ingest", target, source, *TEXT_ONLY, "--strict")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1 and "items.jsonl:3" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["items.jsonl"]
    write_jsonl(source, [row(0), row(1)])
    assert oasis("ingest", target, source, *TEXT_ONLY, "--strict")[0] == 0


def test_labels_may_come_after_the_first_chunks(tmp_path, oasis):
    rows = [{**row(number), "labels": [] if number < 30 else ["sea"]} for number in range(40)]
    source = write_jsonl(tmp_path / "items.jsonl", rows)
    code, out, _ = oasis("ingest", tmp_path / "c.oasis", source, *TEXT_ONLY, "--batch", 9, "--json")
    assert code == 0
    assert (json.loads(out)["ingested"], json.loads(out)["rounds"]) == (40, 5)


def test_csv_fields_have_names_and_separators(tmp_path, oasis):
    source = tmp_path / "items.csv"
    source.write_text("no,name,kinds,year,x\n7,a boat,sea|sky,1999,1\n8,a street,town,2001,2\n")
    code, _, err = oasis(
        *("ingest", tmp_path / "c.oasis", source, *TEXT_ONLY, "--id-field", "no"),
        *("--text-field", "name", "--labels-field", "kinds", "--labels-separator", "|"),
        *("--keep", "year"),
    )
    assert (code, err) == (0, "")
    with Collection.open(tmp_path / "c.oasis", readonly=True) as opened:
        assert opened.get("7").labels == ("sea", "sky")
        assert opened.get("8").payload == {"year": 2001}


def test_a_label_that_looks_like_several_is_noted(tmp_path, oasis):
    source = tmp_path / "items.csv"
    for name, cell, noted in (("a", "sea,sky", True), ("b", "sea", False), ("c", "a,b;sky", False)):
        source.write_text(f'id,text,labels\n1,a boat,"{cell}"\n2,a car,town\n')
        code, _, err = oasis("ingest", tmp_path / name, source, *TEXT_ONLY)
        assert (code, "'sea,sky' is one label" in err, err == "") == (0, noted, not noted)


def test_a_table_with_usual_names_needs_no_options(tmp_path, oasis):
    for name in ("a.png", "b.png"):
        Image.new("L", (64, 64), 9).save(tmp_path / name)
    source = tmp_path / "items.csv"
    source.write_text("file,caption,labels,year\na.png,a boat,sea;sky,1999\nb.png,a car,,2001\n")
    target = tmp_path / "deep" / "c.oasis"
    code, out, err = oasis("ingest", target, source, "--image-extractor", "gradients")
    assert (code, err) == (0, "")
    told, done = out.splitlines()
    taken = "pictures and ids from 'file', texts from 'caption', labels from 'labels'; kept: year"
    assert told == f"items.csv: {taken}" and done.startswith("2 items ingested")
    with Collection.open(target, readonly=True) as opened:
        item = opened.get("a.png")
        assert (item.labels, item.text) == (("sea", "sky"), "a boat")
        assert item.payload == {"year": 1999} and opened.thumbnail("a.png") is not None


@pytest.mark.slow
def test_killed_ingest_goes_on_where_it_was(tmp_path):
    source = write_jsonl(tmp_path / "items.jsonl", [row(number) for number in range(1200)])
    target = tmp_path / "c.oasis"
    command = [sys.executable, "-m", "oasis", "ingest", target, source, *TEXT_ONLY]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen([*command, "--batch", "10"], env=environment) as writer:
        while writer.poll() is None and _n_rounds(target) < 3:
            time.sleep(0.02)
        writer.send_signal(signal.SIGKILL)
    assert writer.returncode == -signal.SIGKILL
    done = subprocess.run([*command, "--json"], env=environment, capture_output=True, check=True)
    summary = json.loads(done.stdout)
    assert summary["skipped"] >= 30
    assert summary["skipped"] + summary["ingested"] == 1200 == summary["items"]
    with Collection.open(target, readonly=True) as opened:
        assert opened.check() == []


def test_interrupted_ingest_says_how_to_go_on(filled, tmp_path, oasis, monkeypatch):
    def interrupt(*_, summary, **__):
        summary.ingested = 7
        raise KeyboardInterrupt

    monkeypatch.setattr(feeding, "feed", interrupt)
    code, out, err = oasis("ingest", filled, tmp_path / "items.jsonl")
    assert (code, out) == (1, TOLD)
    assert "7 items are stored" in err and "again" in err


def _n_rounds(target):
    if not (target / "catalog.sqlite").exists():
        return 0
    try:
        with Collection.open(target, readonly=True) as opened:
            return opened.stats().n_rounds
    except OasisError:  # it is only just being made
        return 0


def test_folder_without_labels_is_ingested_and_searched(tmp_path, oasis):
    folder, target = tmp_path / "photos", tmp_path / "c.oasis"
    folder.mkdir()
    for number in range(12):
        picture = Image.new("L", (64, 64))
        ImageDraw.Draw(picture).rectangle((5 * number, 8, 63, 20 + 3 * number), fill=255)
        picture.save(folder / f"{number:02}.png")
    code, out, err = oasis("ingest", target, folder, "--image-extractor", "gradients", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["ingested"] == 12
    code, out, _ = oasis("search", target, "--image", folder / "07.png", "-k", 3, "--json")
    assert code == 0
    assert "07.png" in [hit["id"] for hit in json.loads(out)["results"][0]["hits"]]
    code, out, err = oasis("search", target, "--word", "boat")  # no class is there to be near
    assert (code, err) == (0, "")
    assert "nothing like this here: all scores are 0" in out and ".png" not in out
    (folder / "sun").mkdir()
    Image.new("L", (64, 64), 9).save(folder / "sun" / "new.png")
    code, out, _ = oasis("ingest", target, folder, "--labels-from-folders", "--json")
    assert (code, json.loads(out)["ingested"], json.loads(out)["skipped"]) == (0, 1, 12)
    with Collection.open(target, readonly=True) as opened:
        assert opened.get("sun/new.png").labels == ("sun",)
    assert oasis("ingest", tmp_path / "shown.oasis", folder)[2] == ""
    _, _, err = oasis("ingest", tmp_path / "plain.oasis", folder, "--no-picture-meaning")
    assert "note: no picture has a caption" in err and "--text-from-names" in err
    named = ("ingest", tmp_path / "named.oasis", folder, "--text-from-names")
    assert oasis(*named)[::2] == (0, "")
    hits = json.loads(oasis("search", tmp_path / "named.oasis", "new", "--json")[1])["results"][0]
    assert hits["hits"][0]["id"] == "sun/new.png" and not hits["hits"][0]["weak"]


def test_ingest_says_that_there_was_nothing_to_ingest(filled, tmp_path, oasis):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.jsonl").touch()
    for target in (filled, tmp_path / "new.oasis"):
        for name, nothing in (("empty", "picture"), ("empty.jsonl", "item")):
            code, out, err = oasis("ingest", target, tmp_path / name)
            said = f"error: {tmp_path / name} holds no {nothing}\n"
            assert (code, out, err) == (1, "", said)
    assert not (tmp_path / "new.oasis").exists()
    code, _, err = oasis("ingest", filled, tmp_path / "nowhere")
    assert (code, err) == (1, f"error: there is no file or folder {tmp_path / 'nowhere'}\n")


def test_ingest_of_rejects_alone_is_an_error_that_leaves_their_list(filled, tmp_path, oasis):
    source = write_jsonl(tmp_path / "bad.jsonl", ["no json\n", {"id": 1, "text": ""}])
    for target in (filled, tmp_path / "new.oasis"):
        code, out, err = oasis("ingest", target, source, "--json")
        listed = Path(f"{target}.rejects.jsonl")
        said = f"error: none of 2 items could be ingested; {listed} says why; the first: "
        assert (code, out) == (1, "") and err.count("\n") == 1
        assert err.startswith(f"{said}bad.jsonl:1: the line is no JSON: ")
        assert len(listed.read_text().splitlines()) == 2
    assert filled.exists() and not (tmp_path / "new.oasis").exists()
    # what is there already is no reject
    write_jsonl(source, ["no json\n", row(0)])
    code, out, _ = oasis("ingest", filled, source)
    assert code == 0 and "1 left out: " in out and "; the first: bad.jsonl:1: the line " in out


def test_embedder_that_returns_nan_is_an_error(tmp_path, oasis, monkeypatch):
    (tmp_path / "nan_embedder_of_the_cli_test.py").write_text(
        "def nan():\n    return lambda texts: [[float('nan')] * 3 for _ in texts]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    source = write_jsonl(tmp_path / "items.jsonl", [row(number) for number in range(9)])
    named = ("--image-extractor", "none", "--text-extractor", "nan_embedder_of_the_cli_test:nan")
    code, _, err = oasis("ingest", tmp_path / "c.oasis", source, *named)
    assert (code, "none of 9 items" in err) == (1, True)
    assert not (tmp_path / "c.oasis").exists()


def test_misspelt_field_is_noted_once(tmp_path, oasis):
    rows = [{"lables": ["sea"], "id": number, "text": "a boat"} for number in range(600)]
    source = write_jsonl(tmp_path / "items.jsonl", rows)
    code, _, err = oasis("ingest", tmp_path / "c.oasis", source, *TEXT_ONLY, "--strict")
    said = f"note: {source}: the field 'lables' is not used; did you mean 'labels'?\n"
    assert (code, err) == (0, said)


def test_failed_ingest_leaves_nothing_behind(tmp_path, oasis):
    source = tmp_path / "items.csv"
    source.write_text("no,text\n1,a boat\n")
    target = tmp_path / "deep" / "c.oasis"
    target.parent.mkdir()
    code, _, err = oasis("ingest", target, source, *TEXT_ONLY)
    assert (code, "no column 'id'" in err) == (1, True)
    assert not list(target.parent.iterdir())
    # a collection that is there, and an empty directory of the user's, stay
    oasis("ingest", target, write_jsonl(tmp_path / "i.jsonl", [row(0)]), *TEXT_ONLY)
    assert oasis("ingest", target, source)[0] == 1
    with Collection.open(target, readonly=True) as opened:
        assert len(opened) == 1
    (tmp_path / "own").mkdir()
    assert oasis("ingest", tmp_path / "own", source, *TEXT_ONLY)[0] == 1
    assert (tmp_path / "own").is_dir()


def test_field_that_no_line_of_a_jsonl_file_has_is_refused(tmp_path, oasis):
    source = write_jsonl(tmp_path / "items.jsonl", [row(number) for number in range(6)])
    for option in ("--text-field", "--image-field", "--labels-field", "--keep"):
        code, out, err = oasis("ingest", tmp_path / "c.oasis", source, *TEXT_ONLY, option, "tag")
        assert (code, out) == (1, "")
        assert "no field 'tag'; its fields are ['id', 'text', 'labels', 'payload']" in err
    # one line that has it is enough
    write_jsonl(source, [row(0), {**row(1), "tag": 3}])
    assert oasis("ingest", tmp_path / "c.oasis", source, *TEXT_ONLY, "--keep", "tag")[0] == 0


@pytest.mark.slow
def test_pictures_from_a_folder_to_a_contact_sheet(tmp_path, oasis):
    folder = tmp_path / "photos"
    rng = np.random.default_rng(0)
    for kind, colour in (("circle", "red"), ("square", "blue")):
        (folder / kind).mkdir(parents=True)
        for number in range(6):
            image = Image.new("RGB", (120, 90), tuple(rng.integers(150, 255, 3).tolist()))
            draw = ImageDraw.Draw(image)
            corner = rng.integers(5, 40, 2).tolist()
            box = (*corner, corner[0] + 45, corner[1] + 45)
            (draw.ellipse if kind == "circle" else draw.rectangle)(box, fill=colour)
            image.save(folder / kind / f"{number}.png")
            (folder / kind / f"{number}.txt").write_text(f"a {colour} {kind}")
    (folder / "circle" / "broken.png").write_bytes(b"no picture")
    target = tmp_path / "p.oasis"
    common = ("ingest", target, folder, "--labels-from-folders")
    assert oasis(*common, "--strict")[0] == 1
    assert not target.exists()
    code, out, err = oasis(*common)
    assert (code, err) == (0, "")
    assert "12 items ingested" in out and "1 left out" in out
    query = folder / "square" / "0.png"
    sheet = tmp_path / "hits.png"
    code, out, _ = oasis("search", target, "--image", query, "-k", 6, "--save", sheet, "--json")
    assert code == 0
    hits = json.loads(out)["results"][0]["hits"]
    assert [hit["labels"] for hit in hits] == [["square"]] * 6
    with Image.open(sheet) as drawn, Collection.open(target, readonly=True) as opened:
        assert drawn.format == "PNG" and drawn.width > 5 * 160
        blue = np.asarray(drawn.convert("RGB"), dtype=int)
        assert ((blue[..., 2] > 200) & (blue[..., :2].max(axis=2) < 60)).sum() > 6 * 1000
        thumbnail = opened.thumbnail("square/0.png")
        assert thumbnail is not None and len(thumbnail) <= MAX_BYTES
    code, out, _ = oasis("search", target, "--image", query, "--text", "red circle", "--json")
    assert (code, json.loads(out)["results"][0]["query"]["text"]) == (0, "red circle")


def test_features_that_are_there_already(tmp_path, oasis):
    rng = np.random.default_rng(0)
    clip, words = rng.normal(size=(12, 5)).astype(np.float16), rng.normal(size=(12, 3))
    labels = np.array(["sky" if number % 2 else "sea;boat" for number in range(12)])
    np.savez(tmp_path / "e.npz", clip=clip, words=words, labels=labels)
    target = tmp_path / "c.oasis"
    both = ("--feature", "image=clip", "--feature", "words")
    code, out, err = oasis("ingest", target, tmp_path / "e.npz", *both, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["ingested"] == 12
    with Collection.open(target, readonly=True) as opened:
        assert opened.stats().modalities == {"image": 5, "words": 3}
        truth = [hit.id for hit in opened.search({"image": clip[4:5]}, k=3)[0]]
    np.save(tmp_path / "query.npy", clip[4:5])
    listed = json.dumps(clip[4].tolist())
    for value in (tmp_path / "query.npy", listed):
        code, out, _ = oasis("search", target, "--vector", f"image={value}", "-k", 3, "--json")
        assert code == 0
        assert [hit["id"] for hit in json.loads(out)["results"][0]["hits"]] == truth
    np.savez(tmp_path / "narrow.npz", clip=clip[:, :4], words=words, id=np.arange(50, 62))
    np.save(tmp_path / "nan.npy", np.full(5, np.nan))
    for arguments, said in (
        (("ingest", target, tmp_path / "narrow.npz", *both), "have 4 values, expected 5"),
        (("ingest", target, tmp_path / "e.npz", "--feature", "image=clop"), "no column 'clop'"),
        (("ingest", target, tmp_path / "e.npz"), "add --feature image=clip"),
        (("search", target, "--vector", "image=[1, 2]"), "2 features"),
        (("search", target, "--vector", "image=[1, "), "cannot be read"),
        (("search", target, "--vector", f"image={tmp_path / 'nan.npy'}"), "holds nan"),
        (("search", target, "--vector", "image=none.npy"), "cannot be read as npy"),
        (("search", target, "--vector", "sound=[1]"), "sound"),
        (
            ("search", target, "--image", "a.png"),
            "of pictures; use --vector image=FILE or --vector",
        ),
        (("search", target, "--text", "sky", "--no-fuse"), "no features of texts; use --vector"),
    ):
        code, out, err = oasis(*arguments)
        assert (code, out) == (1, "")
        assert err.startswith("error: ") and err.count("\n") == 1
        assert said in err
    assert oasis("ingest", target, tmp_path / "e.npz", "--feature", "=x")[0] == 2


def test_an_embedder_by_name_is_found_again(tmp_path, oasis, monkeypatch):
    (tmp_path / "embedder_of_the_cli_test.py").write_text(
        "def letters():\n    return lambda texts: [[t.count(c) for c in 'abc'] for t in texts]\n"
    )
    rows = [{**row(number), "text": "a b b" if number % 2 else "c a"} for number in range(9)]
    source = write_jsonl(tmp_path / "items.jsonl", rows)
    target = tmp_path / "c.oasis"
    named = ("--image-extractor", "none", "--text-extractor", "embedder_of_the_cli_test:letters")
    code, _, err = oasis("ingest", target, source, *named)
    assert code == 1
    assert "No module named 'embedder_of_the_cli_test'; install its package" in err
    assert err.count("\n") == 1 and not target.exists()
    monkeypatch.syspath_prepend(tmp_path)
    assert oasis("ingest", target, source, *named)[0] == 0
    sys.modules.pop("embedder_of_the_cli_test")
    assert "embedder_of_the_cli_test:letters" in oasis("info", target)[1]
    assert oasis("search", target, "--like", "item-1")[0] == 0
    assert oasis("check", target)[0] == 0
    more = write_jsonl(tmp_path / "more.jsonl", [{"id": "more", "text": "a b"}])
    for command in (("search", target, "--text", "b b"), ("ingest", target, more)):
        code, _, err = oasis(*command)
        assert code == 1 and err.count("\n") == 1
        assert "--trust-embedders" in err
        assert "--text-extractor embedder_of_the_cli_test:letters" in err
    assert "embedder_of_the_cli_test" not in sys.modules
    assert oasis("search", target, "--text", "b b", "--json", "--trust-embedders")[0] == 0
    assert oasis("ingest", target, more, "--trust-embedders")[0] == 0
    more.write_text(more.read_text().replace("more", "most"))
    assert oasis("ingest", target, more, *named[2:])[0] == 0
    code, _, err = oasis("search", "http://127.0.0.1:9", "--text", "b", "--trust-embedders")
    assert code == 1 and "oasis serve --trust-embedders" in err


def test_texts_are_kept_unless_asked_otherwise(tmp_path, oasis):
    source = write_jsonl(tmp_path / "items.jsonl", [row(number) for number in range(40)])
    for name, option in (("a", ()), ("b", ("--no-keep-text",))):
        assert oasis("ingest", tmp_path / name, source, *TEXT_ONLY, *option)[0] == 0
        with Collection.open(tmp_path / name, readonly=True) as opened:
            assert (opened.get("item-0").text is None) == bool(option)
    code, _, err = oasis("ingest", tmp_path / "b", source, *TEXT_ONLY, "--keep-text")
    assert code == 1
    assert "begun with keep_text=False" in err


def test_a_collection_of_texts_takes_pictures_later(tmp_path, oasis):
    source = write_jsonl(tmp_path / "items.jsonl", [row(number) for number in range(40)])
    target = tmp_path / "c"
    made = ("--image-extractor", "gradients", "--text-extractor", "hashed-text-64-tf@3")
    code, out, err = oasis("ingest", target, source, *made)
    assert (code, err) == (0, "") and "40 items ingested" in out
    Image.linear_gradient("L").save(tmp_path / "a.png")
    code, _, err = oasis("search", target, "--image", tmp_path / "a.png")
    assert (code, err.count("\n")) == (1, 1) and "makes no features of pictures; use --text" in err
    code, _, err = oasis("ingest", target, source, "--text-extractor", "meaning")
    assert code == 1 and "this extractor makes ['image', 'meaning'], the one recorded" in err
    picture = {"image": "a.png", "labels": ["sea"]}
    write_jsonl(source, [{"id": "p", **picture}, {"id": "q", "text": "a boat", **picture}])
    code, out, err = oasis("ingest", target, source)
    assert (code, err) == (0, "") and "2 items ingested" in out
    code, out, _ = oasis("search", target, "--image", tmp_path / "a.png", "--json")
    assert code == 0 and {hit["id"] for hit in json.loads(out)["results"][0]["hits"][:2]} == {
        "p",
        "q",
    }
