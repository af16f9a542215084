"""The page in a real browser: what to label next, what is there twice, and the map, by keyboard."""

import page_browser
import pytest
from page_browser import drawn, ready, unnamed
from service_data import extractor, fill, item
from serving import serving

from oasis.collection import Collection

browser = page_browser.browser
server = page_browser.server
visit = page_browser.visit
pytestmark = page_browser.MARKS


@pytest.fixture
def some(tmp_path):
    """A service with ten items without labels, one of them twice, and its collection's path."""
    path = fill(tmp_path / "c")
    bare = [{**item(n), "id": f"bare {n}", "labels": None} for n in range(60, 70)]
    with Collection.open(path, extractor=extractor()) as c:
        assert not c.ingest_items(bare, thumbnails=True)
        assert not c.ingest_items([{**bare[4], "id": "twin"}], thumbnails=True)
    with serving(path) as running:
        yield running


def labels_of(running, key):
    return running.json("GET", f"/v1/item?id={key.replace(' ', '%20')}")[1]["labels"]


def test_labels_are_given_by_keys_and_taken_back(visit, some):
    page = ready(visit("/?view=label", url=some.url))
    page.wait_for_selector("#label-item .choice")
    first = page.inner_text("#label-item .file")
    best = page.inner_text("#label-item .choice .name >> nth=0")
    page.keyboard.press("1")
    page.wait_for_selector("#label-status >> text=stored and learned")
    assert labels_of(some, first) == [best]
    assert "right for 1 of 1 item" in page.inner_text("#label-gain")
    second = page.inner_text("#label-item .file")
    assert second != first
    page.keyboard.press("e")
    page.keyboard.type("dog, cat")
    page.keyboard.press("Enter")
    page.wait_for_selector("#label-status >> text=2 labels given")
    assert labels_of(some, second) == ["dog", "cat"]
    page.keyboard.press("0")
    page.wait_for_selector("#label-status >> text=Skipped")
    page.keyboard.press("u")
    page.wait_for_selector("#label-status >> text=taken back")
    assert labels_of(some, second) == [] and page.inner_text("#label-item .file") == second
    assert not unnamed(page)
    page.click("nav >> text=Search")
    drawn(page)
    page.keyboard.press("1")  # keys are those of the view alone
    assert labels_of(some, second) == []


def test_an_item_that_is_there_twice_is_deleted_after_a_question(visit, some):
    groups = some.json("GET", "/v1/duplicates")[1]["groups"]
    (ids,) = [each for each in groups if "twin" in each]
    page = ready(visit("/?view=duplicates", url=some.url))
    group = page.locator(".twins", has_text="twin")
    group.locator("label", has_text="Keep").nth(ids.index("twin")).click()
    group.get_by_role("button", name="Keep the chosen").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")  # the question has the focus
    page.wait_for_selector(f"#duplicates-status >> text={len(ids) - 1} item")
    page.wait_for_selector("#duplicates-status >> text=deleted")
    known = some.json("POST", "/v1/known", {"ids": ids})[1]["ids"]
    assert known == ["twin"] and not unnamed(page)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_map_is_walked_by_keys_and_opens_items(visit, server, width):
    page = ready(visit("/?view=map", width=width))
    page.wait_for_selector("#map-legend button")
    assert "60 items, 3 classes" in page.inner_text("#map-status")
    assert "60 items" in page.get_attribute("#map", "aria-label")
    page.focus("#map")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#map-card img")
    said = page.inner_text("#map-said")
    for key in ("ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    assert page.inner_text("#map-said")
    page.click("#map-legend >> text=sea")
    assert page.get_attribute("#map-legend [data-name=sea]", "aria-pressed") == "true"
    page.focus("#map")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#map-said").endswith("sea")
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail[open] #detail-labels")
    page.keyboard.press("Escape")
    page.wait_for_selector("#detail", state="hidden")
    assert said and page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_caption_is_the_headline_and_the_file_is_below(visit, tmp_path):
    rows = [
        {"id": "photos/n0001_red_boat.jpg", "text": "a red boat\nat sea", "labels": ["sea"]},
        {"id": "old.jpg", "text": "fur", "labels": ["cat"], "payload": {"title": "old"}},
    ]
    with Collection.open(tmp_path / "c", n_bits=16, extractor=extractor()) as c:
        assert not c.ingest_items(rows)
    with serving(tmp_path / "c") as running:
        page = drawn(ready(visit(url=running.url)))
        assert page.locator(".card h3").all_inner_texts() == ["fur", "a red boat"]
        assert page.locator(".card .file").all_inner_texts() == [
            "old.jpg",
            "photos/n0001_red_boat.jpg",
        ]
        assert page.locator(".card .snippet").all_inner_texts() == ["at sea"]
        page.close()
