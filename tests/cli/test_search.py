"""`oasis search`: queries, filters, and what is printed of hits."""

import io
import json
import os
import subprocess
import sys

import cli_data
import pytest
from cli_data import TEXT_ONLY, row, write_jsonl
from rich.console import Console

from oasis.cli.conditions import parse_where
from oasis.cli.console import table
from oasis.collection import Collection
from oasis.errors import InputError
from oasis.features.extractor import Extractor, Function

ingested = cli_data.ingested
filled = cli_data.filled


def test_search_by_text_word_and_item_agree_with_the_collection(filled, oasis):
    with Collection.open(filled, readonly=True) as opened:
        by_text = opened.search_items([{"text": "boat anchor"}], k=5)[0]
        by_word = opened.search_words(["sea", "ship"], k=4, mode="hamming")
        by_item = opened.more_like("item-3", k=3)
    _, out, _ = oasis("search", filled, "--text", "boat anchor", "-k", 5, "--json")
    assert _ids(out) == [[hit.id for hit in by_text]]
    assert json.loads(out)["results"][0]["query"] == {"text": "boat anchor"}
    assert all(hit["labels"] == ["sea"] for hit in json.loads(out)["results"][0]["hits"])
    _, out, _ = oasis(
        *("search", filled, "--word", "sea", "--word", "ship", "-k", 4),
        *("--mode", "hamming", "--json"),
    )
    assert _ids(out) == [[hit.id for hit in hits] for hits in by_word]
    _, out, _ = oasis("search", filled, "--like", "item-3", "-k", 3, "--json")
    assert _ids(out) == [[hit.id for hit in by_item]]


def test_search_by_kind_and_by_content(tmp_path, oasis):
    rows = [{**row(number), "labels": ["thing"]} for number in range(40)]
    source, target = write_jsonl(tmp_path / "items.jsonl", rows), tmp_path / "c.oasis"
    assert oasis("ingest", target, source, *TEXT_ONLY)[0] == 0
    query = ("search", target, "--text", rows[31]["text"], "-k", 1, "--json")
    assert _ids(oasis(*query, "--content", 0)[1]) == [["item-0"]]
    with Collection.open(target, readonly=True) as opened:
        by_word = opened.search_words(["fur"], k=3, content=1)
    _, out, _ = oasis("search", target, "--word", "fur", "--content", 1, "-k", 3, "--json")
    assert _ids(out) == [[hit.id for hit in by_word[0]]] and json.loads(out)["content"] == 1
    _, out, _ = oasis(*query, "--content", 1)
    assert _ids(out) == [["item-31"]] and json.loads(out)["content"] == 1.0
    with Collection.open(target, readonly=True) as opened:
        like = [hit.id for hit in opened.more_like("item-3", 5, content=0.9)]
    _, out, _ = oasis("search", target, "--like", "item-3", "-k", 5, "--content", 0.9, "--json")
    assert _ids(out) == [like]


def _ids(out):
    return [[hit["id"] for hit in result["hits"]] for result in json.loads(out)["results"]]


def test_search_prints_a_table_and_filters(filled, oasis):
    code, out, _ = oasis(
        *("search", filled, "--text", "boat", "--where", "year>=2010", "--where", "year<2020"),
        *("--where", '{"$labels": {"has": "sea"}}'),
    )
    lines = [line.split() for line in out.splitlines() if "item-" in line]
    assert code == 0
    assert sorted(line[3] for line in lines) == ["item-12", "item-15", "item-18"]
    assert (
        oasis("search", filled, "--text", "boat", "--where", "year=1900")[1].count("nothing") == 1
    )


def test_search_takes_any_not_contains_and_exists(filled, oasis):
    def years(*conditions):
        options = [part for each in conditions for part in ("--where", each)]
        out = oasis("search", filled, "--text", "boat", "-k", 100, "--json", *options)[1]
        return sorted(hit["payload"]["year"] for hit in json.loads(out)["results"][0]["hits"])

    every = years()
    assert years("year!=2003", "year!=2005") == [each for each in every if each not in (2003, 2005)]
    assert years('{"$any": [{"year": 2003}, {"year": {"gte": 2020}}]}') == [
        each for each in every if each == 2003 or each >= 2020
    ]
    assert years('{"year": {"exists": true}}') == every
    assert years('{"year": {"exists": false}}') == []


def test_search_filters_by_a_label(filled, oasis):
    def labels(*conditions):
        options = [part for each in conditions for part in ("--where", each)]
        out = oasis("search", filled, "--text", "boat", "-k", 100, "--json", *options)[1]
        return {label for hit in json.loads(out)["results"][0]["hits"] for label in hit["labels"]}

    assert labels("$labels=sea") == labels("$labels ~ sea") == {"sea"}
    assert labels("$labels!=sea") == {"sky", "town"}
    assert labels("$labels!=sea", "$labels!=sky") == {"town"}
    assert labels("$labels=sea", "$labels=sky") == set()


def test_search_without_knowledge_says_so(filled, oasis):
    code, out, err = oasis("search", filled, "--text", "xylophone", "-k", 1)
    assert code == 0
    assert "nothing like this" in out + err  # by the score, which may be 0, or by the evidence


def test_collection_with_an_extractor_of_ones_own_answers_what_it_can(tmp_path, oasis):
    length = Function("length@1", lambda texts: [[len(text), 1.0] for text in texts], 2)
    own = Extractor({"text": ("text", length)})
    with Collection.open(tmp_path / "c.oasis", extractor=own) as opened:
        opened.ingest_items([row(number) for number in range(9)])
    assert oasis("search", tmp_path / "c.oasis", "--like", "item-3")[0] == 0
    code, _, err = oasis("search", tmp_path / "c.oasis", "--text", "boat")
    assert code == 1
    assert "no embedder is called 'length@1'" in err


def test_like_finds_a_whole_number(tmp_path, oasis):
    rows = [{**row(number), "id": number} for number in range(9)]
    source = write_jsonl(tmp_path / "items.jsonl", rows)
    oasis("ingest", tmp_path / "c.oasis", source, *TEXT_ONLY)
    code, out, _ = oasis("search", tmp_path / "c.oasis", "--like", "3", "-k", 2, "--json")
    assert code == 0
    assert json.loads(out)["results"][0]["query"] == {"like": 3}


def test_hits_are_shown_with_text_and_payload(tmp_path, oasis):
    rows = [
        {"id": "a", "text": "a red\nboat", "labels": ["sea"]},
        {"id": "b", "text": "a cat", "payload": {"year": 2020}, "labels": ["cat"]},
        {"id": "c", "text": " ".join(["boats"] * 100), "labels": ["sea"]},
        {"id": "d", "text": "said once", "payload": {"title": "said once"}, "labels": ["sea"]},
    ]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert oasis("ingest", tmp_path / "c", source, "--text-extractor", "words")[0] == 0
    code, out, _ = oasis("search", tmp_path / "c", "--text", "red boat")
    shown = {line.split()[3]: line for line in out.splitlines() if line[:1].isdigit()}
    assert code == 0 and sorted(shown) == ["a", "b", "c", "d"]
    assert shown["a"].rstrip().endswith("a red boat")
    assert shown["b"].split()[4:] == ["cat", "a", "cat", "year:", "2020"]
    assert shown["d"].split()[4:] == ["sea", "title:", "said", "once"]
    assert shown["c"].rstrip().endswith(rows[2]["text"])  # nothing is cut in a file or a pipe


def test_a_terminal_gets_no_control_characters_and_no_endless_text(tmp_path, oasis):
    row = {
        "id": "a\n\x1b[31mb",
        "text": "boat \x1b]0;title\x07 \u202e" + "long " * 9999,
        "labels": ["\x1b[5m"],
    }
    source = tmp_path / "rows.jsonl"
    source.write_text(json.dumps(row) + "\n")
    assert oasis("ingest", tmp_path / "c", source, "--text-extractor", "words")[0] == 0
    for command in (("search", tmp_path / "c", "--text", "boat"), ("info", tmp_path / "c")):
        code, out, _ = oasis(*command)
        assert code == 0 and max(map(len, out.splitlines())) < 1200
        assert not set(out) & {"\x1b", "\x07", "\u202e"}
    assert r"a\n\x1b[31mb" in oasis("search", tmp_path / "c", "--text", "boat")[1]


def _printed(columns, rows, width):
    console = Console(width=width, file=io.StringIO())
    console.print(table(columns, rows, width=width))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_columns_have_the_width_they_need_and_only_long_lines_are_cut():
    columns = (("id", "left"), ("labels", "line"), ("payload", "line"))
    rows = [("a.jpg", "dog", "year: 2022, kind: dog, camera: Nikon")]
    whole = "a.jpg  dog     year: 2022, kind: dog, camera: Nikon"
    assert _printed(columns, rows, 80)[1] == _printed(columns, rows, len(whole))[1] == whole
    assert _printed(columns, rows, 40)[1] == "a.jpg  dog     year: 2022, kind: dog, c…"
    rows = [("a.jpg", "dog, cat, house, sky, sea", rows[0][2])]
    assert _printed(columns, rows, 40)[1] == "a.jpg  dog, cat, hous…  year: 2022, ki…"


def test_where_reads_scalars_as_json_and_refuses_two_equalities():
    assert parse_where(["a=1", "b=x y", "c=null", 'd="1"', "e=[1]"]) == {
        "a": 1,
        "b": "x y",
        "c": None,
        "d": "1",
        "e": "[1]",
    }
    assert parse_where(["a==1", "b == x", 'c="=1"']) == {"a": 1, "b": "x", "c": "=1"}
    assert parse_where(["a=" + "[" * 99_999]) == {"a": "[" * 99_999}
    assert parse_where(['{"a": {"gt": 1}}', "a<=3"]) == {"a": {"gt": 1, "lte": 3}}
    assert parse_where(["a!=1", "b ~ x", "c!=null"]) == {
        "a": {"not": 1},
        "b": {"contains": "x"},
        "c": {"not": None},
    }
    assert parse_where(["a~x", "a=1", "a~y"]) == {
        "a": {"contains": "x"},
        "$all": [{"a": 1}, {"a": {"contains": "y"}}],
    }
    assert parse_where(['{"$any": [{"a": 1}]}', '{"$any": [{"b": 2}]}']) == {
        "$any": [{"a": 1}],
        "$all": [{"$any": [{"b": 2}]}],
    }
    assert parse_where(['{"$all": [{"a": 1}]}', '{"$all": [{"b": 2}]}']) == {
        "$all": [{"$all": [{"a": 1}]}, {"$all": [{"b": 2}]}]
    }
    assert parse_where(["$labels=2024", "$labels!=sky"]) == {
        "$labels": {"has": "2024", "not": {"has": "sky"}}
    }
    assert parse_where(['$labels=="sea"']) == {"$labels": {"has": "sea"}}
    with pytest.raises(InputError, match="two conditions on 'a'"):
        parse_where(["a=1", "a=2"])


@pytest.mark.slow
def test_a_terminal_without_unicode_gets_an_answer(tmp_path, oasis):
    source = write_jsonl(tmp_path / "i.jsonl", [{**row(n), "id": f"Bär {n}"} for n in range(6)])
    command = [sys.executable, "-m", "oasis"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}

    def run(*arguments):
        return subprocess.run(
            [*command, *map(str, arguments)], env=environment, capture_output=True, check=True
        ).stdout.decode("ascii")

    oasis("ingest", tmp_path / "c.oasis", source, *TEXT_ONLY)
    assert "B?r" in run("search", tmp_path / "c.oasis", "--word", "sea")
    found = json.loads(run("search", tmp_path / "c.oasis", "--word", "sea", "--json"))
    assert found["results"][0]["hits"][0]["id"].startswith("Bär")


def test_search_says_where_nothing_is_like_the_query(filled, oasis):
    assert "nothing like this here" in oasis("search", filled, "--text", "xylophone")[1]
    assert "nothing like this here" not in oasis("search", filled, "--text", "boats")[1]
    assert "nothing like this here" not in oasis("search", filled, "--word", "sea")[1]


def test_search_replaces_a_word_that_no_item_has(filled, oasis):
    assert "searched for" not in oasis("search", filled, "--text", "xylophone")[1]
    out = oasis("search", filled, "--text", "strete")[1]
    assert "searched for: street\n" in out
    (found,) = json.loads(oasis("search", filled, "--text", "strete", "--json")[1])["results"]
    assert found["suggestion"] == "street"
    (found,) = json.loads(oasis("search", filled, "--text", "boats", "--json")[1])["results"]
    assert "suggestion" not in found


def test_the_text_may_stand_without_its_option(filled, oasis):
    named = oasis("search", filled, "--text", "boat wave", "--json")
    assert oasis("search", filled, "boat wave", "--json") == named
    code, _, err = oasis("search", filled, "boat", "--text", "wave")
    assert code == 2 and "given twice" in err
    code, _, err = oasis("search", filled, "boat", "--like", "item-1")
    assert code == 2 and "only one kind at a time" in err


def test_search_marks_ties(filled, oasis):
    asked = ("search", filled, "--word", "sea", "-k", 2)
    hits = json.loads(oasis(*asked, "--json")[1])["results"][0]["hits"]
    assert [(hit["tied"], hit["weak"]) for hit in hits] == [(True, False)] * 2
    out = oasis(*asked)[1]
    assert [line.split()[1][-1] for line in out.splitlines() if "item-" in line] == ["="] * 2
    assert "= the score of a neighbour is the same" in out


def test_search_by_codes_alone(filled, oasis):
    with Collection.open(filled, readonly=True) as opened:
        expected = [hit.id for hit in opened.search_items([{"text": "boat"}], fuse=False)[0]]
    assert _ids(oasis("search", filled, "--text", "boat", "--no-fuse", "--json")[1]) == [expected]


def test_predicted_labels_have_a_question_mark(tmp_path, oasis):
    rows = [row(number) for number in range(60)]
    bare = [{**row(number), "id": f"bare-{number}", "labels": []} for number in range(3)]
    source = write_jsonl(tmp_path / "items.jsonl", rows)
    assert oasis("ingest", tmp_path / "c", source, *TEXT_ONLY)[0] == 0
    source = write_jsonl(tmp_path / "bare.jsonl", bare)
    assert oasis("ingest", tmp_path / "c", source, *TEXT_ONLY)[0] == 0
    with Collection.open(tmp_path / "c", readonly=True) as opened:
        (name,) = opened.get("bare-0").predicted
    options = ["--like", "item-0", "-k", "70", "--where"]
    where = json.dumps({"$labels": {"has": name, "predicted": True}})
    out = oasis("search", tmp_path / "c", *options, where)[1]
    assert f"{name}?" in out
    found = json.loads(oasis("search", tmp_path / "c", *options, where, "--json")[1])
    (hit,) = [hit for hit in found["results"][0]["hits"] if hit["id"] == "bare-0"]
    assert (hit["labels"], hit["predicted"]) == ([], [name])
    classes = json.loads(oasis("info", tmp_path / "c", "--json")[1])["classes"]
    assert sum(each["n_predicted"] for each in classes) == 3
    assert "predicted" in oasis("info", tmp_path / "c")[1]
