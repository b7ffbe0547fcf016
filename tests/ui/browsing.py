"""The page as a person has it: a server process, and Debian's Chromium."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE, NARROW = {"width": 1600, "height": 1000}, {"width": 390, "height": 844}

# The contrast of all texts that are seen with what is behind them, those below the limits of WCAG AA.
LOW_CONTRAST = """() => {
  const parse = (text) => {
    const found = text.match(/[\\d.]+/g).map(Number);
    const most = text.startsWith("color(srgb") ? 255 : 1;
    return [found[0] * most, found[1] * most, found[2] * most, found[3] ?? 1];
  };
  const light = ([r, g, b]) => {
    const part = (value) => (value <= 10.31 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = parse(getComputedStyle(one).backgroundColor);
      if (colour[3] > 0.99) return colour;
    }
    return [255, 255, 255, 1];
  };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility() || element.closest("noscript, option, :disabled, .skip")) continue;
    const style = getComputedStyle(element);
    const isSvg = element instanceof SVGElement;
    const [a, b] = [light(parse(isSvg ? style.fill : style.color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) bad.push(`${text.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return bad;
}"""


def missing_browser() -> str:
    """Why there is no browser; "": there is one."""
    try:
        import playwright.sync_api  # noqa: F401
    except ModuleNotFoundError:
        return "NO BROWSER: the package playwright is not installed"
    return "" if chromium() else "NO BROWSER: there is no chromium"


def chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


class Served(NamedTuple):
    process: subprocess.Popen[str]
    address: str
    notes: list[str]


@contextmanager
def served(folder: Path, *options: str, is_killed: bool = False) -> Iterator[Served]:
    """`hushrec ui` over a folder, until the block ends."""
    command = [sys.executable, "-m", "hushrec", "ui", str(folder), "--port", "0", *options]
    environment = {name: value for name, value in os.environ.items() if name != "HUSHREC_TOKEN"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    notes: list[str] = []
    stream = process.stderr

    def read() -> None:
        notes.extend(line.strip() for line in stream)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        address = wait_for(
            lambda: next((found[1] for one in notes if (found := re.search(r"page at (\S+)/ ", one))), None)
        )
        yield Served(process, address, notes)
    finally:
        process.send_signal(signal.SIGKILL if is_killed else signal.SIGINT)
        process.wait(30)
        reader.join(10)
        stream.close()


def wait_for(look: Callable[[], Any], seconds: float = 90.0) -> Any:
    """What a look gives as soon as it gives something."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.05)


def open_page(browser: Any, address: str, viewport: Any = None, dark: bool = False) -> Any:
    """A new tab; what the browser complains about is in `page.complaints`."""
    context = browser.new_context(
        viewport=viewport or WIDE, color_scheme="dark" if dark else "light", accept_downloads=True
    )
    context.set_default_timeout(30_000)
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(address)
    return page


def screenshot(page: Any, name: str, folder: Path) -> Path:
    """Kept as an artefact: in the folder that HUSHREC_SCREENSHOTS names, or with the test's own files."""
    kept = Path(os.environ.get("HUSHREC_SCREENSHOTS") or folder)
    kept.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=kept / f"{name}.png", full_page=True)
    return kept / f"{name}.png"


def check_looks(page: Any) -> None:
    """Nothing is wider than the window, every text can be read, and the browser has no complaint."""
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.evaluate(LOW_CONTRAST) == []
    assert page.complaints == []


def skip_or_fail(reason: str) -> None:
    """Without a browser: skipped, but not where tests must all be run."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
