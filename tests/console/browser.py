"""Chromium, from Debian's package, and what it finds wrong with a page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.live.services import program

_AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text()
_SHIFTS = """
window.shifted = 0;
const shifts = new PerformanceObserver(list => {
  for (const one of list.getEntries()) if (!one.hadRecentInput) window.shifted += one.value;
});
shifts.observe({ type: "layout-shift", buffered: true });
"""
SHIFTED_MAX = 0.1
"""What counts as a page that stays in place."""


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Run a browser."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=program("chromium", "chromium"), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield found
        finally:
            found.close()


@contextlib.contextmanager
def page(
    of: Browser, width: int = 1280, scheme: Any = "light", token: str | None = None
) -> Iterator[tuple[Page, list[str]]]:
    """Open a window; gives it with what its console says."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    context = of.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True, extra_http_headers=headers
    )
    context.set_default_timeout(30_000)
    context.add_init_script(_SHIFTS)
    made, said = context.new_page(), []
    made.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    made.on("pageerror", lambda error: said.append(str(error)))
    try:
        yield made, said
    finally:
        context.close()


def faults(shown: Page, *, live: bool = False) -> list[str]:
    """Return what is wrong with a page as people use it: serious findings of axe, width, and jumps.

    Args:
        live: news come in above what is shown, which moves it.
    """
    shown.evaluate(_AXE)
    found = shown.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    told = [
        f"{one['impact']}: {one['id']}: {node['html'][:200]} {node['failureSummary'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]
    over = shown.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if over > 0:
        told.append(f"the page is {over} pixels wider than the window")
    shifted = shown.evaluate("window.shifted")
    if shifted > SHIFTED_MAX and not live:
        told.append(f"the page jumps: {shifted:.2f}")
    return told
