"""The recorded page in a real browser, opened from a file."""

import page_browser
from service_data import extractor, fill

from oasis.collection import Collection
from oasis.demo.page import recorded_page

pytestmark = page_browser.MARKS
browser = page_browser.browser


def test_a_recorded_page_works_from_a_file(browser, tmp_path):
    with Collection.open(fill(tmp_path / "c"), readonly=True, extractor=extractor()) as c:
        (tmp_path / "index.html").write_text(recorded_page(c, ["boat wave"]), "utf-8")
    page, problems = browser.new_page(), []
    page.set_default_timeout(20_000)
    page.on("pageerror", lambda error: problems.append(str(error)))

    def asked(request):
        if request.url.startswith("http"):
            problems.append(request.url)

    page.on("request", asked)
    page.goto((tmp_path / "index.html").as_uri())
    page.get_by_text("The latest").wait_for()
    page.locator(".card .open").first.click()
    page.locator("#detail-title").wait_for()
    page.keyboard.press("Escape")
    page.locator(".card button.like").first.click()
    page.get_by_text("best hits for more like “").wait_for()
    page.get_by_role("link", name="boat wave").click()
    page.get_by_text("The 12 best hits for “boat wave”").wait_for()
    page.fill("#query", "SKY 9")  # the title of an item
    page.keyboard.press("Enter")
    page.get_by_text("best hits for “SKY 9”").wait_for()
    page.fill("#query", "something that nobody recorded")
    page.keyboard.press("Enter")
    page.get_by_text("This was not recorded").wait_for()
    page.get_by_role("link", name="Stream").click()
    page.get_by_text("Precision among the first ten hits").wait_for()
    assert problems == []
