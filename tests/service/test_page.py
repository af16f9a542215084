"""The page in a real browser: what a person sees and can do."""

import io
import json
import shutil

import numpy as np
import pytest
from PIL import Image
from service_data import extractor, fill, fill_alike, picture
from serving import serving

from oasis.collection import Collection

sync_api = pytest.importorskip("playwright.sync_api")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
    # playwright closes its pipes when it is collected, in an order of its own
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

N = 60
NASTY = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(fill(tmp_path_factory.mktemp("page") / "c", N)) as running:
        yield running


@pytest.fixture
def visit(browser, server):
    """Open the page; whatever it complains about, or asks of others, fails the test."""
    contexts, complaints = [], []

    def open_page(path="/", width=1180, height=900, allowed=(), url=server.url, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))

        def console(message):
            if message.type == "error" and not any(each in message.text for each in allowed):
                complaints.append(message.text)

        page.on("console", console)
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((url, "blob:"))
                else complaints.append(f"asked {request.url}")
            ),
        )
        page.goto(url + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints


def ready(page):
    page.wait_for_selector("body[data-ready]")
    return page


def drawn(page, where="#results"):
    # busy from the click until the answer is drawn; old results stay meanwhile
    page.wait_for_selector(f"{where}:not([aria-busy]) .card")
    return page


def titles(page, where="#results"):
    """Open what is stacked, and return the titles of all hits."""
    drawn(page, where)
    while page.locator(f"{where} .stack .open").count():
        page.locator(f"{where} .stack .open").first.click()
        drawn(page, where)
    return page.locator(f"{where} .card h3").all_inner_texts()


def search(page, words):
    page.fill("#query", words)
    page.press("#query", "Enter")
    page.wait_for_selector(f"#search-status:has-text('“{words}”')")
    return drawn(page)


def upload(kind, seed=90):
    return {"name": "q.png", "mimeType": "image/png", "buffer": picture(kind, seed)}


def test_the_start_shows_what_came_last(visit):
    page = drawn(ready(visit()))
    assert page.locator("#results h3").first.inner_text() == f"cat {N - 1}"
    assert page.locator("#results .card").count() == 24
    page.locator("#results .open").nth(1).click()
    page.wait_for_selector("#detail[open] .fields")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(f"#detail-title >> text=sky {N - 3}")
    page.keyboard.press("Escape")
    page.wait_for_selector("#detail", state="hidden")
    assert page.locator("#results .card").count() == 24


def test_a_text_that_repeats_the_title_is_shown_once(visit, tmp_path):
    rows = [
        {"id": 1, "text": "a red boat", "payload": {"title": "a red boat"}, "labels": ["sea"]},
        {"id": 2, "text": "Cat\nfur and paws", "payload": {"title": "Cat"}, "labels": ["cat"]},
    ]
    with Collection.open(tmp_path / "c", n_bits=16, extractor=extractor()) as c:
        assert not c.ingest_items(rows)
    with serving(tmp_path / "c") as running:
        page = drawn(ready(visit(url=running.url)))
        assert page.locator(".card .snippet").all_inner_texts() == ["fur and paws"]
        page.locator("#results .open").first.click()
        page.wait_for_selector("#detail[open] #detail-labels")
        assert page.locator("#detail .whole").inner_text() == "fur and paws"
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#detail-title >> text=a red boat")
        assert page.locator("#detail .whole").count() == 0
        page.close()


def test_search_by_words(visit):
    page = ready(visit())
    assert f"{N} items" in page.inner_text("#facts")
    search(page, "anchor wave")
    assert all(title.startswith("sea") for title in titles(page)[:3])
    assert "best hits for “anchor wave”" in page.inner_text("#search-status")
    shown = page.locator("#results .frame img").first
    shown.wait_for()
    assert shown.evaluate("image => image.naturalWidth") == 64
    first = page.locator("#results .card").first.inner_text()
    assert "of 32 bits" in first and "sea" in first


def test_what_is_asked_stands_in_the_address(visit, browser, server):
    page = ready(visit())
    search(page, "anchor wave")
    assert "q=anchor+wave" in page.url and page.title().startswith("anchor wave")
    search(page, "fur paw")
    assert titles(page)[0].startswith("cat")
    page.go_back()
    page.wait_for_selector("text=“anchor wave”")
    assert page.input_value("#query") == "anchor wave"
    assert titles(page)[0].startswith("sea")
    page.reload()
    page.wait_for_selector("text=“anchor wave”")
    assert titles(page)[0].startswith("sea")
    other = ready(visit(page.url.removeprefix(server.url)))
    assert titles(other)[0].startswith("sea")
    page.go_forward()
    page.wait_for_selector("text=“fur paw”")
    page.click("nav >> text=Stream")
    page.wait_for_selector("#charts svg")
    page.go_back()
    assert page.input_value("#query") == "fur paw" and page.is_visible("#results")


@pytest.mark.parametrize(
    "query",
    [
        "content=7&where=%7B&like-number=x&n=-4",
        "where=%5B1%5D&picture=&item-number=1e9",
        "view=nothing&content=NaN",
    ],
)
def test_an_address_that_is_no_question_shows_the_start(visit, query):
    page = ready(visit(f"/?{query}"))
    assert page.is_visible("#suggestions .chip") and page.locator("#alert").is_hidden()


def test_a_label_is_looked_through_and_filters(visit):
    page = ready(visit())
    page.click("#suggestions >> text=cat")
    page.wait_for_selector("text=the label “cat”")
    assert "label=cat" in page.url
    assert len(titles(page)) == 20 and all(title.startswith("cat") for title in titles(page))
    search(page, "boat")
    assert all(title.startswith("cat") for title in titles(page))
    page.click("#active-filters .chip")
    page.wait_for_selector("#active-filters", state="hidden")
    drawn(page)
    assert titles(page)[0].startswith("sea") and "label" not in page.url


def test_filters_are_built_from_the_fields_that_are_there(visit):
    page = ready(visit("/?q=boat"))
    drawn(page)
    page.click("#filters summary")
    assert page.get_attribute("[aria-label='year, from']", "placeholder") == "2,000"
    page.fill("[aria-label='year, from']", "2010")
    page.press("[aria-label='year, from']", "Enter")
    page.wait_for_selector("#active-filters >> text=year ≥ 2010")
    page.fill("[aria-label='year, to']", "2020")
    page.press("[aria-label='year, to']", "Tab")
    page.wait_for_selector("#active-filters >> text=≤ 2020")
    years = {2000 + int(title.split()[1]) for title in titles(page)}
    assert years == set(range(2010, 2021))
    page.reload()
    page.wait_for_selector("#active-filters >> text=year ≥ 2010 and ≤ 2020")
    page.click("#filters summary")
    assert page.input_value("[aria-label='year, to']") == "2020"
    page.fill("#label-filter", "sea")
    page.press("#label-filter", "Tab")
    page.wait_for_selector("text=with the label “sea”")
    assert {title.split()[0] for title in titles(page)} == {"sea"}
    before = len(titles(page))
    page.get_by_label("text", exact=True).fill("Wave, anchor")
    page.keyboard.press("Tab")
    page.wait_for_selector("#active-filters >> text=text contains “Wave, anchor”")
    drawn(page)
    assert 0 < len(titles(page)) < before


def test_search_by_picture_and_by_both(visit, server):
    page = ready(visit(allowed=("404",)))
    page.set_input_files("#search-file", upload("sea"))
    page.wait_for_selector("text=for your picture")
    assert titles(page)[0].startswith("sea")
    page.fill("#query", "boat")
    page.press("#query", "Enter")
    page.wait_for_selector("text=“boat” and your picture")
    assert titles(page)[0].startswith("sea")
    page.reload()
    page.wait_for_selector("text=“boat” and your picture")
    assert page.locator("#search-preview img").count() == 1
    other = ready(visit(page.url.removeprefix(server.url)))
    other.wait_for_selector("text=The picture of this search is not here")
    page.click("text=Remove picture")
    page.wait_for_selector("text=hits for “boat”,")
    assert page.locator(".preview img:visible").count() == 0


def test_a_picture_can_be_dropped(visit):
    page = ready(visit())
    content = list(picture("sky", 91))
    page.evaluate(
        """content => {
          const data = new DataTransfer();
          data.items.add(new File([new Uint8Array(content)], "d.png", { type: "image/png" }));
          const options = { dataTransfer: data, bubbles: true, cancelable: true };
          document.querySelector("#search-form").dispatchEvent(new DragEvent("drop", options));
        }""",
        content,
    )
    page.wait_for_selector("text=for your picture")
    assert titles(page)[0].startswith("sky")


def test_from_the_kind_to_exactly_this(visit, folder):
    with serving(fill_alike(folder / "c")) as running:
        page = ready(visit(url=running.url))
        asked = []
        page.on(
            "request",
            lambda request: "/v1/search" in request.url and asked.append(request.post_data_json),
        )
        search(page, "violin")
        assert "content" not in asked[-1] and "content" not in page.url
        assert page.inner_text("#content-value") == "balanced"
        page.focus("#content")
        page.keyboard.press("End")
        page.wait_for_url("**content=1**")
        drawn(page)
        assert asked[-1]["content"] == 1
        assert page.inner_text("#content-value") == "exactly this alone"
        assert page.locator("#results h3").first.inner_text() == "14"
        page.keyboard.press("Home")
        page.wait_for_url("**content=0**")
        drawn(page)
        assert asked[-1]["content"] == 0
        # all of them have one label: by kind they are tied
        assert page.locator("#results .card").count() == 1
        assert page.inner_text("#results h3") == "16 alike"
        items = [{"id": f"w{n}", "text": f"word{n}", "labels": ["sea"]} for n in range(50)]
        assert running.json("POST", "/v1/ingest", {"items": items})[0] == 200
        page.reload()
        drawn(page)
        assert page.input_value("#content") == "0"
        # counted beyond the 48 that were loaded
        assert page.inner_text("#results h3") == "66 alike"
        page.click("#results .open")
        sync_api.expect(page.locator("#results .card")).to_have_count(66)
        page.click("#content-reset")
        page.wait_for_function("!location.search.includes('content')")
        assert page.inner_text("#content-value") == "balanced"
        page.close()  # it may still be loading pictures


def test_codes_without_content_bits_have_no_slider(visit):
    page = ready(visit("/?q=boat&content=0.5"))
    assert page.locator("#exactness").is_hidden()
    assert titles(page)[0].startswith("sea")


def test_hits_that_are_tied_are_one_card_that_opens(visit):
    page = drawn(ready(visit("/?q=boat")))
    before = page.locator("#results .card").count()
    stack = page.locator("#results .stack").first
    n = int(stack.locator("h3").inner_text().split()[0])
    assert n >= 3 and stack.locator(".mini").count() == min(4, n)
    stack.locator(".open").focus()
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#results .card")).to_have_count(before - 1 + n)
    assert page.evaluate("document.activeElement.closest('.card') !== null")
    assert len(set(titles(page))) == len(titles(page))


def test_what_is_not_here_is_said_above_the_hits(visit):
    page = ready(visit())
    search(page, "zzzyx")
    assert page.is_visible("text=Nothing like this here.")
    search(page, "boat")
    assert page.locator("#weak").is_hidden()
    page.go_back()
    page.wait_for_selector("text=“zzzyx”")
    page.wait_for_selector("#weak:not([hidden])")


def test_more_like_this_and_more_hits(visit):
    page = ready(visit())
    search(page, "cloud")
    first = titles(page)[0]
    page.locator("#results .card:not(.stack) .like").first.click()
    page.wait_for_selector(f"text=more like “{first}”")
    page.wait_for_url("**like**")
    near = titles(page)
    assert first not in near
    page.click("#show-more")
    page.wait_for_selector("#show-more", state="hidden")
    assert len(set(titles(page))) == N - 1
    page.reload()
    page.wait_for_selector(f"text=The {N - 1} best hits")


def test_a_hit_opens_with_all_that_is_known_of_it(visit, server):
    page = ready(visit())
    search(page, "anchor wave")
    shown = titles(page)
    page.click(f"#results h3 >> text={shown[0]}")
    detail = page.locator("#detail")
    page.wait_for_selector("#detail[open] .fields")
    assert page.inner_text("#detail-title") == shown[0]
    assert page.locator("#detail dt").all_inner_texts() == ["year"]
    assert "sea" in detail.locator(".chips").first.inner_text()
    assert "code of 32 bits" in detail.inner_text() and detail.locator(".bits path").count() == 1
    page.wait_for_selector("#detail .frame img")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(f"#detail-title >> text={shown[1]}")
    link = page.url
    page.keyboard.press("Escape")
    page.wait_for_selector("#detail", state="hidden")
    assert page.evaluate("document.activeElement.innerText") == shown[1]
    assert titles(page) == shown and "item" not in page.url.replace("%2F", "")
    other = ready(visit(link.removeprefix(server.url)))
    other.wait_for_selector(f"#detail[open] #detail-title >> text={shown[1]}")
    other.click("#detail >> text=More like this")
    other.wait_for_selector(f"text=more like “{shown[1]}”")
    assert other.locator("#detail").is_hidden()
    other.go_back()
    other.wait_for_selector(f"#detail[open] #detail-title >> text={shown[1]}")
    gone = ready(visit("/?item=never", allowed=("404",)))
    gone.wait_for_selector("#detail[open] >> text=no item has the id 'never'")
    gone.click("#detail [aria-label=Close]")
    gone.wait_for_selector("#suggestions .chip")


def test_an_item_is_added_found_and_deleted_and_its_text_never_runs(visit, server):
    assert server.json("POST", "/v1/words", {"vectors": {"<b>bold</b>": [1] * 12}})[0] == 200
    page = ready(visit("/?view=add"))
    page.fill("#add-title", NASTY)
    page.fill("#add-text", "whisker fur")
    page.fill("#add-labels", "cat, <b>bold</b>, cat")
    page.set_input_files("#add-file", upload("cat"))
    page.click("text=Add and find it")
    page.wait_for_selector(".card.marked")
    assert page.inner_text(".card.marked h3") == NASTY
    assert "A search with it finds it at place" in page.inner_text("#add-status")
    page.wait_for_selector(f"text={N + 1} items")
    assert page.locator("#main script, .card b, .card h3 img").count() == 0
    assert "run" not in page.title()
    page.click(".card.marked >> text=<b>bold</b>")
    page.wait_for_selector("#view-search:not([hidden])")
    sync_api.expect(page.locator("#results h3")).to_have_count(1)
    assert titles(page) == [NASTY]
    page.click("#results .open")
    page.wait_for_selector("#detail[open] .fields, #detail[open] .chips")
    assert page.inner_text("#detail-title") == NASTY
    assert page.locator("#detail script, #detail h2 img, #detail b").count() == 0
    page.click("#detail >> text=Delete")
    page.click("#detail >> text=Keep it")
    page.click("#detail >> text=Delete")
    page.click("#detail >> text=Delete for ever")
    page.wait_for_selector(f"text={N} items")
    assert page.locator("#results .card").count() == 0 and page.locator("#detail").is_hidden()


def test_labels_are_edited_in_the_open_item_and_predicted_ones_shown_as_such(visit, folder):
    with serving(fill(folder / "c", 24)) as running:
        bare = {"id": "bare", "text": "paw whisker", "payload": {"title": "bare"}}
        assert running.json("POST", "/v1/ingest", {"items": [bare]})[1]["ingested"] == 1
        page = drawn(ready(visit(url=running.url)))
        first = page.locator("#results .card").first
        assert first.locator("h3").inner_text() == "bare"
        assert first.locator(".chip.predicted").all_inner_texts() == ["cat"]
        assert "Predicted" in first.locator(".chip.predicted").get_attribute("title")
        # a predicted label asks for given and predicted ones
        first.locator(".chip.predicted").click()
        page.wait_for_selector("text=the label “cat”, given or predicted, most typical first")
        assert "bare" in titles(page) and "predicted=yes" in page.url
        page.locator("#active-filters .chip").wait_for()
        page.click("#filters summary")
        assert page.is_checked("#label-predicted")
        page.uncheck("#label-predicted")
        page.wait_for_selector("text=the label “cat”, most typical first")
        assert "bare" not in titles(page)
        page.check("#label-predicted")
        page.wait_for_selector("text=given or predicted, most typical first")
        titles(page)
        page.click("#results h3 >> text=bare")
        page.wait_for_selector("#detail-labels h3 >> text=Predicted labels")
        # what is predicted is offered; another one is added, and both are given
        page.click("#detail >> text=Edit labels")
        page.wait_for_selector("#edit-labels:focus")
        assert unnamed(page) == []
        page.keyboard.press("Escape")
        page.wait_for_selector("#detail[open] >> text=Edit labels")
        page.click("#detail >> text=Edit labels")
        page.fill("#edit-labels", f"tabby, {NASTY}")
        page.keyboard.press("Enter")
        page.wait_for_selector("#detail-labels h3 >> text=Labels")
        shown = page.locator("#detail-labels .chips").first.locator(".chip").all_inner_texts()
        assert shown == ["cat", "tabby", NASTY]
        assert page.locator("#detail .predicted").count() == 0
        assert page.evaluate("document.activeElement.innerText") == "Edit labels"
        assert "run" not in page.title()
        assert running.json("GET", "/v1/item?id=bare")[1]["labels"] == shown
        # all are taken away, by the keyboard
        page.keyboard.press("Enter")
        page.wait_for_selector("#edit-labels:focus")
        for _ in shown:
            page.locator(".editor .chip").first.press("Enter")
        page.click("#detail >> text=Save")
        page.wait_for_selector("#detail-labels >> text=none")
        assert running.json("GET", "/v1/item?id=bare")[1]["labels"] == []
        page.click("#detail >> text=Edit labels")
        page.fill("#edit-labels", "tabby")
        page.click("#detail >> text=Save")
        page.wait_for_selector("#detail-labels .chip >> text=tabby")
        # a label that was never learned is looked through like any other
        page.click("#detail-labels .chip >> text=tabby")
        page.wait_for_selector("text=the label “tabby”, most typical first")
        sync_api.expect(page.locator("#results .card")).to_have_count(1)
        assert titles(page) == ["bare"]


def test_who_may_not_write_is_offered_no_change(visit, folder):
    with serving(fill(folder / "c", 12), "--readonly") as running:
        page = ready(visit("/?item=item%2F1", url=running.url))
        page.wait_for_selector("#detail[open] .chips")
        assert page.locator("#detail >> text=Edit labels").count() == 0
        assert page.locator("#detail >> text=Delete").count() == 0


def test_many_files_are_added_with_progress_and_what_is_refused_is_told(visit, folder):
    with serving(fill(folder / "c", 12)) as running:
        page = ready(visit("/?view=add", url=running.url, allowed=("422",)))
        files = [
            {**upload("sea", seed), "name": f"boat-{seed}.png"} for seed in range(40)
        ] + [
            {"name": "broken.png", "mimeType": "image/png", "buffer": picture("sky")[:90]},
            {"name": "boat-1.txt", "mimeType": "text/plain", "buffer": b"harbour"},
            {"name": "note.txt", "mimeType": "text/plain", "buffer": b"whisker paw"},
            {"name": "empty.txt", "mimeType": "text/plain", "buffer": b" "},
            {"name": "x.pdf", "mimeType": "application/pdf", "buffer": b"%PDF"},
            {
                "name": "some.jsonl",
                "mimeType": "application/json",
                "buffer": b'{"id": 7, "text": "cloud", "payload": {"year": 9}}\n{"id": 8}\nno\n',
            },
        ]  # fmt: skip
        page.set_input_files("#bulk-files", files)
        assert "46 files chosen" in page.inner_text("#bulk-chosen")
        page.fill("#bulk-labels", "sea")
        page.click("text=Add them")
        page.wait_for_selector("#bulk-status >> text=42 items added, 5 refused.")
        assert page.locator("#bulk-progress").evaluate("bar => bar.value / bar.max") == 1
        errors = page.inner_text("#bulk-errors")
        reasons = [
            "broken.png",
            "empty.txt the file is empty",
            "x.pdf it is neither",
            "some.jsonl, line 2 it has no text",
            "some.jsonl, line 3 it is no JSON",
        ]
        for told in reasons:
            assert told in errors
        page.wait_for_selector("text=54 items")
        assert "bulk" not in page.inner_text("#alert")
        # a second time all of them are there already
        page.set_input_files("#bulk-files", files[:3])
        page.click("text=Add them")
        page.wait_for_selector("#bulk-status >> text=0 items added, 3 refused.")
        page.click("nav >> text=Search")
        search(page, "harbour")
        stored = running.json("GET", "/v1/item?id=boat-1.png")[1]
        assert stored["labels"] == ["sea"] and stored["payload"] == {"title": "boat-1"}
        page.close()


def test_an_empty_collection_works_after_the_first_add_without_a_reload(visit, folder):
    with serving(folder / "c") as running:
        page = ready(visit(url=running.url))
        assert page.locator("#filters").is_hidden() and page.locator("#search-picture").is_hidden()
        page.click("text=Add the first items")
        page.fill("#add-title", "The first")
        page.fill("#add-text", "a red boat in the harbour")
        page.set_input_files("#add-file", upload("sea"))
        page.fill("#add-labels", "boat")
        page.click("text=Add and find it")
        page.wait_for_selector(".card.marked")
        page.click("nav >> text=Search")
        page.wait_for_selector("#suggestions >> text=boat")
        assert page.is_visible("#search-picture") and page.is_visible("#exactness")
        assert page.is_visible("#filters")
        search(page, "red boat")
        assert titles(page) == ["The first"]
        page.set_input_files("#search-file", upload("sea"))
        page.wait_for_selector("text=“red boat” and your picture")
        assert titles(page) == ["The first"]
        page.close()


def test_the_stream_is_drawn_and_told(visit):
    page = ready(visit())
    page.click("nav >> text=Stream")
    page.wait_for_selector("#charts svg")
    assert page.locator("#charts svg[role=img]").count() == 4
    assert "chance" in page.get_attribute("#charts svg >> nth=0", "aria-label")
    for chart in ("Classes so far", "Items by round"):  # counts have rules at whole numbers
        ticks = page.locator(f"#charts svg[aria-label^='{chart}'] .tick[text-anchor=end]")
        values = [int(text) for text in ticks.all_text_contents()]
        assert values == [part * values[1] for part in range(5)]
    numbers = page.locator("#rounds tbody th").all_inner_texts()
    assert numbers[-2:] == ["2", "1"]
    assert page.locator("#rounds tbody tr").last.inner_text().endswith("sky, sea, cat")
    assert page.locator("#classes .chip").first.inner_text().startswith("sky")


def test_an_error_is_shown_in_words(visit):
    page = ready(visit("/?like=never", allowed=("404",)))
    page.wait_for_selector("#alert:not([hidden])")
    alert = page.locator("#alert")
    assert alert.get_attribute("role") == "alert"
    assert "no item has the id 'never'" in alert.inner_text() and "{" not in alert.inner_text()
    search(page, "fur paw")
    assert titles(page)[0].startswith("cat") and alert.is_hidden()
    page.fill("#query", "")
    page.press("#query", "Enter")
    page.wait_for_selector("text=Type some words")
    page.click("nav >> text=Add")
    page.click("text=Add and find it")
    assert "a text, a picture, or both" in alert.inner_text()


def test_a_broken_picture_is_refused_in_words(visit):
    page = ready(visit(allowed=("422",)))
    broken = {"name": "q.png", "mimeType": "image/png", "buffer": picture("sky")[:90]}
    page.set_input_files("#search-file", broken)
    page.wait_for_selector("#alert:not([hidden])")
    assert "cannot be read" in page.inner_text("#alert")


def test_the_keyboard_alone_is_enough(visit):
    page = ready(visit())
    page.keyboard.type("paw")
    page.keyboard.press("Enter")
    drawn(page)
    page.focus(".skip")
    reached = []
    for _ in range(16):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "(e => e.id || e.getAttribute('aria-label') || e.innerText.trim())"
                "(document.activeElement)"
            )
        )
    for wanted in ("Search", "Stream", "Add", "query", "search-file"):
        assert wanted in reached
    assert any(each.startswith("Filters") for each in reached)
    titles(page)
    page.locator("#results .open").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    second = page.locator("#results .open").nth(1)
    assert second.evaluate("link => link === document.activeElement")
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail[open] .chips")
    inside = page.evaluate("document.querySelector('#detail').contains(document.activeElement)")
    assert inside
    page.keyboard.press("Escape")
    page.wait_for_selector("#detail", state="hidden")
    assert second.evaluate("link => link === document.activeElement")
    page.click("nav >> text=Stream")
    page.keyboard.press("/")
    page.wait_for_selector("#query:focus")


def test_names_and_contrast(visit):
    """Every control has a name, every field a label, and text stands out from what is behind it."""
    for scheme in ("light", "dark"):
        page = drawn(ready(visit("/?q=cloud", color_scheme=scheme)))
        page.click("#filters summary")
        titles(page)
        assert unnamed(page) == []
        page.locator("#results .open").first.click()
        page.wait_for_selector("#detail[open] .chips")
        assert unnamed(page) == []
        page.keyboard.press("Escape")
        page.click("nav >> text=Add")
        assert unnamed(page) == []
        for name in ("soft", "accent", "ink", "alert", "good"):
            for behind in ("card", "page"):
                assert contrast(page, name, behind) >= 4.5, (scheme, name, behind)


def unnamed(page):
    return page.evaluate(
        """[...document.querySelectorAll("button, a, input, select, textarea, summary")]
          .filter(e => e.offsetParent && !(e.getAttribute("aria-label") || e.innerText?.trim()
            || e.labels?.length)).map(e => e.outerHTML)"""
    )


def test_pictures_are_whole_and_no_slabs_in_the_dark(visit):
    for scheme, bright in (("light", False), ("dark", True)):
        page = ready(visit("/?q=anchor+wave", color_scheme=scheme))
        titles(page)
        frame = page.locator("#results .frame").first
        frame.scroll_into_view_if_needed()
        frame.locator("img").wait_for()
        assert frame.locator("img").evaluate("e => getComputedStyle(e).objectFit") == "contain"
        shot = np.asarray(Image.open(io.BytesIO(frame.screenshot())).convert("L"), dtype=float)
        behind = shot[4, shot.shape[1] // 2]
        # a black drawing on white, shown in the ink of the theme on the ground of the frame
        assert abs(shot[shot.shape[0] // 2 - 36, shot.shape[1] // 2] - behind) < 12
        assert (shot > 200).mean() < 0.5 if bright else (shot < 60).any()
        assert (behind > 200) != bright


def contrast(page, name, behind):
    def light(variable):
        value = page.evaluate(
            f"getComputedStyle(document.documentElement).getPropertyValue('--{variable}').trim()"
        )[1:]
        value = value if len(value) == 6 else "".join(2 * each for each in value)
        channels = [int(value[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((light(name), light(behind)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("width", [320, 360])
def test_a_narrow_screen_needs_no_sideways_scrolling(visit, width):
    page = ready(visit(width=width, height=700))

    def fits():
        return page.evaluate("document.documentElement.scrollWidth") <= width

    assert fits()
    search(page, "cloud")
    page.click("#filters summary")
    assert fits()
    titles(page)
    for view in ("Stream", "Add", "Search"):
        page.click(f"nav >> text={view}")
        page.wait_for_load_state("networkidle")
        assert fits(), view
    boxes = [each.bounding_box() for each in page.locator("#results .card").all()[:2]]
    assert boxes[0]["y"] == boxes[1]["y"] and boxes[1]["x"] > boxes[0]["x"]
    page.locator("#results .open").first.click()
    page.wait_for_selector("#detail[open] .chips")
    inner = page.locator("#detail").evaluate("e => e.scrollWidth - e.clientWidth")
    assert fits() and inner == 0


def test_the_api_is_told_to_people(visit):
    page = visit("/docs")
    page.wait_for_selector("details")
    assert "/v1/search" in page.inner_text("#operations")
    page.click("summary >> nth=0")
    assert "vectors?" in page.inner_text("details[open] pre >> nth=0")


def test_a_token_is_asked_for_and_a_service_that_is_gone_is_told(visit, folder):
    env = {"OASIS_READ_TOKEN": "reading-token-0001", "OASIS_WRITE_TOKEN": "writing-token-0001"}
    server = serving(fill(folder / "c", 12), env=env)
    with server as running:
        allowed = ("401", "403", "Failed to load resource")
        page = visit(url=running.url, allowed=allowed)
        page.wait_for_selector("dialog[open]")
        page.fill("#token", "a-wrong-token-here")
        page.click("text=Use it")
        page.wait_for_selector("text=it is not a known one")
        page.fill("#token", env["OASIS_READ_TOKEN"])
        page.click("text=Use it")
        ready(page)
        search(page, "boat")
        assert titles(page)[0].startswith("sea")
        page.click("nav >> text=Add")
        page.fill("#add-text", "boat")
        page.fill("#add-id", "by-hand")
        page.click("text=Add and find it")
        page.wait_for_selector("text=this token may read, but not write")
        page.fill("#token", env["OASIS_WRITE_TOKEN"])
        page.click("text=Use it")
        page.wait_for_selector("text=just added")
        page.wait_for_selector("text=13 items")
        assert json.loads(page.evaluate("JSON.stringify(document.cookie)")) == ""
    page.click("nav >> text=Search")
    page.fill("#query", "wave")
    page.press("#query", "Enter")
    page.wait_for_selector("text=The service does not answer")
