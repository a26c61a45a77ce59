"""Pages of the advisor's report, looked at by a browser.

The folder REPORTS has NAME.html and NAME.json for each report. Every check prints one line; the exit code is 0 only if none failed.
"""

import json
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import axe_playwright_python
from playwright.sync_api import sync_playwright

REPORTS = Path(os.environ["REPORTS"])
WIDTHS = (375, 768, 1280)
SCHEMES = ("light", "dark")
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
# Elements from which on a page is large: axe looks at the contrast of each, for a millisecond.
LARGE = 12_000
# The report that has everything is looked at in every size and scheme, others in half of them.
THOROUGH = "everything"


def check(name, problems):
    problems = [str(problem) for problem in problems]
    # One write: lines of two browsers do not mix.
    line = f"not ok {name}: {'; '.join(problems)[:3000]}" if problems else f"ok {name}"
    os.write(1, (line.replace("\n", " ") + "\n").encode())
    outcomes.append(not problems)


outcomes = []


class Page:
    """A report in a window, with all that it asked for and complained about."""

    def __init__(self, browser, name, **options):
        self.name = name
        self.requests, self.complaints = [], []
        # The page may do what a page of a visitor may: its policy holds.
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.context.route("**/*", self.answer)
        self.url = (REPORTS / f"{name}.html").as_uri()
        # Known to the page before anything of it is read.
        self.page.add_init_script(
            "window.violations = []; addEventListener('securitypolicyviolation', (event) => "
            "violations.push(`${event.violatedDirective} ${event.blockedURI}`));"
        )
        self.page.goto(self.url)

    def answer(self, route):
        self.requests.append(route.request.url)
        if route.request.url == self.url:
            route.continue_()
        else:
            route.abort()

    def close(self):
        self.context.close()


def fits(page, label):
    size = page.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    problems = []
    if size[0] > size[1]:
        wide = page.page.evaluate(
            "[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1"
            " && !e.closest('.scroll, pre, .skip')).slice(0, 5).map((e) => e.outerHTML.slice(0, 120))"
        )
        problems.append(f"{size[0]} px of {size[1]}: {wide}")
    # Text that is drawn over its neighbour, in cells that do not scroll.
    problems += page.page.evaluate(
        "[...document.querySelectorAll('th, td, h1, h2, h3, p, figcaption, summary')].filter((e) => "
        "e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 1 && !e.closest('.scroll, .hidden, .grid')"
        " && getComputedStyle(e).display !== 'inline').slice(0, 5)"
        ".map((e) => `text beyond its box: ${e.outerHTML.slice(0, 160)}`)"
    )
    check(f"{label} has no horizontal overflow", problems)


def accessible(page, label, has_contrast=True):
    # Evaluated by the browser's debugger, which the page's policy does not forbid. Frames are none.
    options = {"resultTypes": ["violations"], "runOnly": {"type": "tag", "values": TAGS}}
    options["rules"] = {"color-contrast": {"enabled": has_contrast}}
    if page.page.evaluate("typeof axe === 'undefined'"):
        page.page.evaluate(AXE)
    result = page.page.evaluate("(options) => axe.run(document, options)", options)
    told = []
    for violation in result["violations"]:
        nodes = [f"{node['html'][:150]} {node['failureSummary'][:300]}" for node in violation["nodes"][:3]]
        told.append(f"{violation['id']} ({len(violation['nodes'])}): {nodes}")
    if not result["passes"]:
        told.append("axe checked nothing")
    check(f"{label} has no violations of axe", told)


def quiet(page, label):
    others = [url for url in page.requests if url != page.url]
    violations = page.page.evaluate("violations")
    check(f"{label} asks for nothing and complains about nothing", others + page.complaints + violations)


def human(number):
    """As the report writes sizes, made anew."""
    sign, number = ("-" if number < 0 else ""), abs(number)
    if number < 1024:
        return f"{sign}{number} B"
    for unit, size in (("kB", 2**10), ("MB", 2**20), ("GB", 2**30), ("TB", 2**40), ("PB", 2**50)):
        if round(number / size, 1) < 1024 or unit == "PB":
            return f"{sign}{number / size:.1f} {unit}"
    raise AssertionError


def saved(change):
    return change["now"] - change["after"]


def same_numbers(page, label):
    report = json.loads((REPORTS / f"{page.name}.json").read_text())
    problems = []
    # What is read is what is meant.
    shown = page.page.evaluate("[...document.querySelectorAll('data')].map((d) => [d.value, d.textContent])")
    for value, text in shown:
        exact, read = int(value), text.replace("\u2212", "-")
        if read != human(exact):
            # Halves are rounded to even in one language and up in another.
            if read not in (human(exact + 1), human(exact - 1)):
                problems.append(f"{value} is written as {text}")
    total = report["total"]["bytes"]
    wanted = [total["disk"], total["compressed"], total["memory"]]
    wanted = [[change["now"], change["after"], change["now"], change["after"], saved(change)] for change in wanted if change]
    cards = page.page.evaluate(
        "[...document.querySelectorAll('.cards .card')].map((c) => [...c.querySelectorAll('data')].map((d) => Number(d.value)))"
    )
    cards = [card for card in cards if card]
    if cards != [[a, b, e] for a, b, _, _, e in wanted]:
        problems.append(f"headline {cards}, expected {wanted}")
    problems += finding_numbers(page, report) + table_numbers(page, report)
    check(f"{label} has the numbers of the JSON", problems)


def finding_numbers(page, report):
    lines = page.page.evaluate(
        "[...document.querySelectorAll('#findings-table tbody')].map((b) => [Number(b.id.slice(8)),"
        " [...b.rows[0].querySelectorAll('data')].map((d) => Number(d.value)), b.rows[0].cells[5].textContent])"
    )
    problems = []
    if len(lines) != min(len(report["findings"]), 500):
        problems.append(f"{len(lines)} findings of {len(report['findings'])}")
    for number, values, known in lines:
        finding = report["findings"][number]
        disk, memory = finding["bytes"]["disk"], finding["bytes"]["memory"]
        wanted = [disk["now"], disk["after"], saved(disk), saved(memory)] if any((*disk.values(), *memory.values())) else []
        if values != wanted or known != finding["confidence"]:
            problems.append(f"finding {finding['id']}: {values}, expected {wanted}")
    return problems


def table_numbers(page, report):
    lines = page.page.evaluate(
        "[...document.querySelectorAll('#sizes tbody tr:not(.rest)')].map((r) => [...r.querySelectorAll('data')].map((d) => Number(d.value)))"
    )
    wanted = []
    for table in report["tables"][:20]:
        disk, compressed = table["bytes"]["disk"], table["bytes"]["compressed"]
        wanted.append([disk["now"], disk["after"], saved(disk)] + ([compressed["after"]] if compressed else []))
    return [] if lines == wanted else [f"sizes {lines}, expected {wanted}"]


def sorts_by_keyboard(page, label):
    heads = page.page.locator("#findings-table thead button")
    if heads.count() == 0:
        check(f"{label} has nothing to sort", [])
        return
    problems = []
    # Tab alone gets there.
    page.page.evaluate("document.activeElement.blur()")
    page.page.locator("#filter").focus()
    for column in range(heads.count()):
        page.page.keyboard.press("Tab")
        is_there = page.page.evaluate(
            "(column) => document.activeElement === document.querySelectorAll('#findings-table thead button')[column]", column
        )
        if not is_there:
            problems.append(f"Tab does not reach column {column}")
            continue
        has_ring = page.page.evaluate("getComputedStyle(document.activeElement).outlineStyle !== 'none'")
        if not has_ring:
            problems.append(f"focus cannot be seen on column {column}")
        for press in range(2):
            page.page.keyboard.press("Enter" if press else "Space")
            keys, order, kind = page.page.evaluate(
                "(column) => { const table = document.getElementById('findings-table'); const head = table.tHead.rows[0].cells[column];"
                " return [[...table.tBodies].map((b) => b.rows[0].cells[column].dataset.key), head.getAttribute('aria-sort'),"
                " head.dataset.sort]; }",
                column,
            )
            values = [int(key) for key in keys] if kind == "number" else keys
            if kind == "number" and values != sorted(values, reverse=order == "descending"):
                problems.append(f"column {column} is not {order}: {values[:9]}")
            if kind == "text" and len(set(keys)) > 1 and (press == 0) != (order == "ascending"):
                problems.append(f"column {column} is {order} after {press + 1} presses")
        marked = page.page.locator("#findings-table thead [aria-sort]").count()
        if marked != 1:
            problems.append(f"{marked} columns say that they are sorted")
    check(f"{label} is sorted by keyboard", problems)


def filters(page, label):
    if page.page.locator("#filter").count() == 0:
        return
    page.page.locator("#filter").fill("wal_comp")
    left = page.page.evaluate("[...document.querySelectorAll('#findings-table tbody')].filter((b) => b.offsetHeight > 0).length")
    wanted = page.page.evaluate(
        "[...document.querySelectorAll('#findings-table tbody')].filter((b) => b.rows[0].textContent.includes('wal_comp')).length"
    )
    page.page.locator("#filter").fill("")
    check(f"{label} is filtered", [] if left == wanted else [f"{left} left, expected {wanted}"])


def prints(page, label, has_file=True):
    page.page.emulate_media(media="print", color_scheme="dark")
    # What is asked before a frame was drawn may be of the screen.
    page.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    problems = page.page.evaluate(
        "[...document.querySelectorAll('details > :not(summary)')].filter((e) => !e.checkVisibility({contentVisibilityAuto: true})"
        " && e.tagName !== 'BUTTON').slice(0, 5).map((e) => `not visible: ${e.outerHTML.slice(0, 100)}`)"
    )
    back, ink = page.page.evaluate("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
    if back != "rgb(255, 255, 255)" or ink != "rgb(23, 32, 43)":
        problems.append(f"printed {ink} on {back}")
    if has_file:
        data = page.page.pdf(format="A4")
        if not data.startswith(b"%PDF-") or b"%%EOF" not in data[-20:]:
            problems.append(f"{len(data)} bytes that are no PDF")
    page.page.emulate_media(media="screen", color_scheme="light")
    check(f"{label} prints with everything open, and light", problems)


def reads_without_script(browser, name):
    page = Page(browser, name, java_script_enabled=False, viewport={"width": 375, "height": 700})
    problems = []
    if page.page.locator("main h2").count() == 0:
        problems.append("no sections")
    if page.page.locator(".tools").count() and page.page.locator(".tools").is_visible():
        problems.append("a filter that does nothing is shown")
    for index in range(min(page.page.locator("details:not([open]) > summary").count(), 3)):
        summary = page.page.locator("details > summary").nth(index)
        was = page.page.locator("details").nth(index).get_attribute("open")
        summary.click()
        if page.page.locator("details").nth(index).get_attribute("open") == was:
            problems.append(f"details {index} stay as they are")
    page.close()
    check(f"{name} can be read without its script", problems)


def look_at(browser, name):
    page = Page(browser, name, viewport={"width": WIDTHS[-1], "height": 900}, color_scheme="light")
    same_numbers(page, name)
    is_large = page.page.evaluate("document.querySelectorAll('*').length") > LARGE
    for scheme in SCHEMES:
        page.page.emulate_media(color_scheme=scheme)
        for width in WIDTHS:
            page.page.set_viewport_size({"width": width, "height": 900})
            label = f"{name} at {width} px, {scheme}"
            if scheme == "light":
                fits(page, label)
            if is_large:
                if (width, scheme) == (WIDTHS[0], SCHEMES[0]):
                    accessible(page, label, has_contrast=False)
            elif name == THOROUGH or (width, scheme) in ((375, "light"), (768, "dark"), (1280, "light")):
                accessible(page, label)
    page.page.emulate_media(color_scheme="light")
    # Closed details may hide what is too wide.
    page.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    for width in WIDTHS:
        page.page.set_viewport_size({"width": width, "height": 900})
        fits(page, f"{name} at {width} px, all open")
    if not is_large:
        accessible(page, f"{name}, all open")
    page.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = false; })")
    if not is_large:
        sorts_by_keyboard(page, name)
        filters(page, name)
    prints(page, name, has_file=not is_large)
    quiet(page, name)
    page.close()
    if not is_large:
        reads_without_script(browser, name)


def look(name):
    """In a browser of its own; the outcomes of its checks."""
    start = time.monotonic()
    # chromium has no sandbox for root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=arguments)
            version = browser.version
            look_at(browser, name)
            browser.close()
        os.write(1, f"# {name}: {time.monotonic() - start:.1f} s in chromium {version}\n".encode())
    except Exception as error:
        check(f"{name} is looked at", [error, traceback.format_exc()[-1500:]])
    return outcomes


def main():
    # The largest first, as the others fit beside it.
    names = sorted(REPORTS.glob("*.html"), key=lambda path: -path.stat().st_size)
    with ProcessPoolExecutor(2, max_tasks_per_child=1, mp_context=get_context("spawn")) as browsers:
        done = [outcome for found in browsers.map(look, [path.stem for path in names]) for outcome in found]
    if not names:
        check("reports", [f"none in {REPORTS}"])
    return 0 if done and all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
