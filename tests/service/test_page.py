"""The page in a real browser: searching and reading."""

import io

import numpy as np
import page_browser
import pytest
from page_browser import N, drawn, ready, search, sync_api, titles, unnamed, upload
from PIL import Image
from service_data import extractor, fill_alike, picture
from serving import serving

from oasis.collection import Collection
from oasis.features.extractor import Extractor

browser = page_browser.browser
server = page_browser.server
visit = page_browser.visit
pytestmark = page_browser.MARKS


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


def test_texts_without_pictures_have_room_for_the_text(visit, tmp_path):
    words = "a long description of something that needs more than two lines to be read by people"
    rows = [{"id": n, "text": f"{n + 7} {words}", "labels": ["kind"]} for n in range(3)]
    of_texts = Extractor.of(image="none", text="words")
    with Collection.open(tmp_path / "c", n_bits=16, extractor=of_texts) as c:
        assert not c.ingest_items(rows)
    with serving(tmp_path / "c") as running:
        page = drawn(ready(visit(url=running.url)))
        frame, text = (page.locator(f".card {name}").first for name in (".frame", "h3"))
        frame.locator(".letters").wait_for()
        assert frame.bounding_box()["height"] < 55 < text.bounding_box()["height"]
        assert text.evaluate("each => each.scrollHeight <= each.clientHeight + 1")
        page.close()
    page = drawn(ready(visit()))  # a collection with pictures
    assert page.locator(".card .frame").first.bounding_box()["height"] > 100


def test_a_text_without_a_picture_is_opened_without_an_empty_frame(visit, tmp_path):
    of_texts = Extractor.of(image="none", text="words")
    with Collection.open(tmp_path / "c", n_bits=16, extractor=of_texts) as c:
        assert not c.ingest_items([{"id": n, "text": f"text {n}", "labels": ["a"]} for n in "xy"])
    with serving(tmp_path / "c") as running:
        page = drawn(ready(visit(url=running.url)))
        page.locator("#results .open").first.click()
        page.wait_for_selector("#detail[open] .frame.large .letters", state="attached")
        assert not page.locator("#detail .frame.large").is_visible()
        whole, facts = (
            page.locator(f"#detail {each}") for each in (".detail-columns", ".detail-facts")
        )
        assert facts.bounding_box()["width"] == whole.bounding_box()["width"]
        page.close()
    page = drawn(ready(visit()))  # a collection with pictures
    page.locator("#results .open").first.click()
    page.wait_for_selector("#detail[open] .frame.large img")
    assert page.locator("#detail .frame.large").bounding_box()["height"] > 100


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
    assert "tied at\n1.00" in first and "sea" in first and "item/1" in first
    page.wait_for_selector("#results .why >> text=/\\d+ % the (class|word)/")


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
    assert page.get_attribute("[aria-label='year, from']", "placeholder") == "2000"
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
        assert page.locator("#results h3").first.inner_text() == "violin"
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


def test_a_misspelt_word_is_suggested_and_can_be_followed(visit):
    page = ready(visit())
    search(page, "zzzyx")
    assert page.locator("#meant").is_hidden()
    search(page, "anchr")
    link = page.locator("#meant a")
    link.wait_for()
    assert (
        page.inner_text("#meant")
        == "Searched for “anchor”, as nothing here has all of these words."
    )
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("text=best hits for “anchor”")
    assert page.input_value("#query") == "anchor" and "q=anchor" in page.url
    assert page.locator("#weak").is_hidden() and titles(page)[0].startswith("sea")


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
