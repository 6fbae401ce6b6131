"""Headless Chromium for the tests and pictures of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tests.kit.waiting import DEADLINE

SECONDS = DEADLINE
"""For a condition of the page: test machines are busy."""
PERMITTED = ("Failed to load resource", "net::ERR_")
"""Beginnings of lines in the browser's console that say only that a request failed, which the page shows itself."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program is not None, "no chromium on PATH: tools/prepare.sh test installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, headless=True)
        try:
            yield browser
        finally:
            browser.close()


class Console:
    """A page of the console in a browser context of its own (cookies, storage). It collects errors of the scripts."""

    def __init__(self, browser: Browser, port: int, **options: Any) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self._context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        self._context.set_default_timeout(SECONDS * 1000)
        self.page: Page = self._context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda line: self._said(line.type, line.text))
        self.page.on("dialog", lambda dialog: self._alerted(dialog))

    def close(self) -> None:
        """Close the page; asserts that its scripts had no error, and that no text of somebody ran as a script."""
        self._context.close()
        assert self.errors == []

    def forget(self) -> None:
        """Be as new: an empty page, nothing stored. Asserts what `close` asserts."""
        for page in self._context.pages:
            if page is not self.page:
                page.close()
        if self.page.url.startswith(self.base):
            self.page.evaluate("localStorage.clear(), sessionStorage.clear()")
        self.page.goto("about:blank")
        self._context.clear_cookies()
        errors, self.errors = self.errors, []
        assert errors == []

    def open(self, place: str = "", heading: str | None = None) -> Page:
        """Go to `#/PLACE` and wait for its heading."""
        self.page.goto(f"{self.base}/#/{place}")
        found = self.page.get_by_role("heading", level=1)
        if heading is not None:
            found = self.page.get_by_role("heading", level=1, name=heading)
        found.first.wait_for()
        return self.page

    def findings(self) -> list[str]:
        """Return what axe finds wrong: rule, and the first element."""
        results = Axe().run(self.page).response
        assert len(results["passes"]) > 5, "axe has not looked at the page"
        return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in results["violations"]]

    def _said(self, kind: str, text: str) -> None:
        if kind == "error" and not text.startswith(PERMITTED):
            self.errors.append(text)

    def _alerted(self, dialog: Any) -> None:
        self.errors.append(f"a script ran: {dialog.message}")
        dialog.dismiss()
