"""The documentation as a site, looked at by a browser: DOCS is its folder. One line per check, as in checks.py."""

import os
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import sync_playwright

DOCS = Path(os.environ["DOCS"])
# Pages with wide tables, long code and many headings.
PAGES = ("index.html", "docs/operating/wire.html", "docs/operating/cfs.html", "formats/cfs.html", "CHANGELOG.html")
WIDTHS = (375, 1280)
# A word, and the page that the results have to have.
SEARCHES = (("max_codec_memory_mib", "docs/operating/wire.html"), ("relfilenode", "docs/operating/cfs.html"))

outcomes = []


def check(name, problems):
    problems = [str(problem) for problem in problems]
    print(f"not ok {name}: {'; '.join(problems)[:3000]}" if problems else f"ok {name}", flush=True)
    outcomes.append(not problems)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    # A browser that has seen enough of a page goes on.
    def handle_error(self, *_):
        pass


class Visit:
    """A window, with all that it asked for and complained about."""

    def __init__(self, browser, home, width):
        self.home, self.foreign, self.complaints = home, [], []
        self.context = browser.new_context(viewport={"width": width, "height": 900})
        self.page = self.context.new_page()
        self.page.on("console", lambda said: said.type in ("error", "warning") and self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("response", lambda got: got.status >= 400 and self.complaints.append(f"{got.status} {got.url}"))
        self.context.route("**/*", self.answer)

    def answer(self, route):
        if route.request.url.startswith((self.home, "data:")):
            route.continue_()
        else:
            self.foreign.append(route.request.url)
            route.abort()

    def see(self, path):
        self.page.goto(self.home + path, wait_until="load")

    def close(self, label):
        check(f"{label} asks for nothing of other hosts", self.foreign)
        check(f"{label} complains about nothing", self.complaints)
        self.context.close()


def fits(visit, label):
    page = visit.page
    size = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    check(f"{label} has no horizontal overflow", [] if size[0] <= size[1] else [f"{size[0]} px of {size[1]}"])
    broken = page.evaluate("[...document.images].filter((i) => !i.naturalWidth).map((i) => i.src)")
    check(f"{label} shows its pictures", broken)
    title = page.evaluate("document.querySelector('main h1')?.textContent ?? ''")
    check(f"{label} has a title", [] if title else ["no h1"])


def search(visit, word, expected):
    visit.see("index.html")
    page = visit.page
    page.locator("#mdbook-search-toggle").click()
    page.locator("#mdbook-searchbar").fill(word)
    results = page.locator("#mdbook-searchresults li a")
    results.first.wait_for(timeout=20_000)
    found = results.evaluate_all("(links) => links.map((link) => link.href)")
    path = expected.removesuffix(".html")
    check(f"a search for {word} finds {expected}", [] if any(path in link for link in found) else found or ["nothing"])
    results.first.click()
    page.locator("main mark").first.wait_for(timeout=20_000)
    marked = page.locator("main mark").first.text_content() or ""
    same = word[:8].lower() in marked.lower() or marked.lower() in word.lower()
    check(f"the page found marks {word}", [] if same else [marked])


def navigate(visit):
    visit.see("index.html")
    page = visit.page
    page.locator("main a[href$='docs/operating/wire.html']").first.click()
    page.wait_for_url("**/docs/operating/wire.html")
    check("a link of the README leads to its chapter", [] if "wire" in page.title() else [page.title()])
    current = page.locator("#mdbook-sidebar a.active").text_content() or ""
    check("the chapter is marked in the sidebar", [] if "wire" in current else [current])


def look(browser, home):
    for width in WIDTHS:
        visit = Visit(browser, home, width)
        for path in PAGES:
            visit.see(path)
            fits(visit, f"{path} at {width}")
        visit.close(f"a reader at {width}")
    visit = Visit(browser, home, 1280)
    navigate(visit)
    for word, expected in SEARCHES:
        search(visit, word, expected)
    visit.close("a search")


def main():
    server = Server(("127.0.0.1", 0), partial(Quiet, directory=DOCS))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}/"
    # chromium has no sandbox for root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=arguments)
        look(browser, home)
        browser.close()
    return 0 if outcomes and all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
