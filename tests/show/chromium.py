"""A real browser for the tests of pages: Debian's chromium, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRAWN = "html[data-drawn]"


@dataclass
class Seen:
    """What went on while a page was open."""

    page: Page
    requests: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)  # errors of scripts, and what the policy forbade
    dialogs: list[str] = field(default_factory=list)


class Browser:
    """One browser for many pages: starting it takes longer than looking."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser

    @contextmanager
    def opened(self, path: Path, *, width: int = 1100, dark: bool = False, drawn: bool = True) -> Iterator[Seen]:
        """The page of this file, once its figures are drawn."""
        size = {"width": width, "height": 900}
        page = self._browser.new_page(viewport=size, color_scheme="dark" if dark else "light")
        seen = Seen(page)
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("pageerror", lambda error: seen.trouble.append(str(error)))
        page.on("console", lambda message: _heard(seen, message))
        page.on("dialog", lambda dialog: _asked(seen, dialog))
        page.goto(path.resolve().as_uri())
        if drawn:
            page.wait_for_selector(DRAWN, state="attached")
        yield seen
        page.close()


@contextmanager
def started() -> Iterator[Browser]:
    """Without a browser the tests are skipped."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'fedvitals[dev]'")
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield Browser(browser)
        browser.close()


def _heard(seen: Seen, message: Any) -> None:
    if message.type in ("error", "warning"):
        seen.trouble.append(message.text)


def _asked(seen: Seen, dialog: Any) -> None:
    seen.dialogs.append(dialog.message)
    dialog.dismiss()
