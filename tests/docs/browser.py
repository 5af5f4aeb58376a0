"""`python -m tests.docs.browser SITE [SCREENSHOTS]`: open every page of a built site in Chromium.

Each page is opened in the width of a phone and of a desktop. The check fails when a page is wider than the window, a
picture does not load, a link is broken, a script fails, or a page makes a request to the network.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urlparse

WIDTHS: Final = {"desk": 1280, "phone": 390}
HEIGHT: Final = 844
SECONDS_MAX: Final = 30.0
SECONDS_OF_A_SLIDE: Final = 0.5
PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
OPTIONS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
LOOK: Final = """(() => {
  const shown = document.querySelectorAll('img');
  const scrolls = '.md-typeset__scrollwrap, pre, .md-nav';
  return {
    width: document.documentElement.scrollWidth,
    wide: [...document.querySelectorAll('.md-content *')]
      .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(scrolls))
      .map(e => e.tagName + ': ' + e.textContent.trim().slice(0, 60)),
    broken: [...shown].filter(e => !(e.complete && e.naturalWidth)).map(e => e.src),
    links: [...document.querySelectorAll('a[href]')].map(e => e.href),
    ids: [...document.querySelectorAll('[id], a[name]')].map(e => e.id || e.name),
  };
})()"""


class Browser:
    """Headless Chromium, controlled through a pipe by the DevTools protocol."""

    def __init__(self, program: str, profile: Path) -> None:
        """Start it; `profile` is an empty folder."""
        ours, theirs = os.pipe(), os.pipe()
        read_commands, write_answers = ours[0], theirs[1]

        def as_it_expects() -> None:
            # Chromium reads commands from descriptor 3 and writes responses to descriptor 4.
            spare = [os.dup(read_commands), os.dup(write_answers)]
            os.dup2(spare[0], 3)
            os.dup2(spare[1], 4)

        self._process = subprocess.Popen(
            [program, *OPTIONS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=as_it_expects,  # noqa: PLW1509 - it only duplicates descriptors
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_answers)
        self._commands, self._answers = ours[1], theirs[0]
        self._rest = b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command; returns its result. Raises RuntimeError with Chromium's message when it fails."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        answer = self._wait(lambda one: one.get("id") == number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def _wait(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            while b"\0" not in self._rest:
                if not select.select([self._answers], [], [], SECONDS_MAX)[0]:
                    raise TimeoutError("Chromium said nothing")
                read = os.read(self._answers, 1 << 20)
                if not read:
                    raise RuntimeError("Chromium ended")
                self._rest += read
            text, _, self._rest = self._rest.partition(b"\0")
            message = json.loads(text)
            if is_it(message):
                return dict(message)
            self.events.append(message)
        raise TimeoutError("Chromium did not answer")

    def open(self, address: str) -> None:
        """Load a page."""
        self.events.clear()
        self.call("Page.navigate", url=address)
        if not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self._wait(lambda event: event.get("method") == "Page.loadEventFired")

    def look(self, width: int, *, dark: bool = False) -> dict[str, Any]:
        """The result of `LOOK` in the page, in a window of that width."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=HEIGHT, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        return dict(self.call("Runtime.evaluate", expression=LOOK, returnByValue=True)["result"]["value"])

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(found))

    def complaints(self) -> Iterator[str]:
        """Requests to the network and errors of scripts since the page was opened."""
        for event in self.events:
            parameters = event.get("params", {})
            match event.get("method"):
                case "Network.requestWillBeSent" if is_elsewhere(parameters["request"]["url"]):
                    yield f"asks the network for {parameters['request']['url']}"
                case "Runtime.exceptionThrown":
                    yield f"a script fails: {parameters['exceptionDetails'].get('text')}"
                case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                    yield f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}"

    def close(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.wait(SECONDS_MAX)
        os.close(self._commands)
        os.close(self._answers)


@contextmanager
def browser() -> Iterator[Browser]:
    """Runs Chromium. Raises FileNotFoundError when it is not installed."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise FileNotFoundError(f"none of {', '.join(PROGRAMS)} is in PATH (Debian: apt install chromium)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        running = Browser(program, Path(profile))
        try:
            yield running
        finally:
            running.close()


def is_elsewhere(address: str) -> bool:
    """Whether an address is on another machine."""
    parts = urlparse(address)
    return parts.scheme in ("http", "https") and parts.hostname != "127.0.0.1"


class Handler(SimpleHTTPRequestHandler):
    """Serves files, silently."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve that folder; yields the address without a trailing slash."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def check(site: Path, screenshots: Path | None = None) -> list[str]:
    """The problems of a site's pages, a line each."""
    pages = sorted(site.rglob("*.html"))
    wrong: list[str] = []
    links: dict[str, list[str]] = {}
    ids: dict[str, set[str]] = {}
    with browser() as running, served(site) as root:
        for page in pages:
            name = page.relative_to(site).as_posix()
            running.open(f"{root}/{name}")
            for kind, width in WIDTHS.items():
                seen = running.look(width)
                if seen["width"] > width:
                    # The animation that hides a menu may still be running.
                    time.sleep(SECONDS_OF_A_SLIDE)
                    seen = running.look(width)
                if seen["width"] > width or seen["wide"]:
                    wrong.append(f"{name}: wider than a {kind}: {seen['width']} px {seen['wide'][:3]}")
                wrong += [f"{name}: the picture {address} does not load" for address in seen["broken"]]
                if screenshots:
                    screenshots.mkdir(parents=True, exist_ok=True)
                    running.screenshot(screenshots / f"{name.replace('/', '-')}-{kind}.png")
            links[name], ids[name] = seen["links"], set(seen["ids"])
            wrong += [f"{name}: {complaint}" for complaint in running.complaints()]
    for page, addresses in links.items():
        ours = [address.removeprefix(f"{root}/") for address in addresses if address.startswith(f"{root}/")]
        wrong += [f"{page}: {reason}" for reason in _broken_links(ours, site, ids)]
    return list(dict.fromkeys(wrong))


def _broken_links(addresses: list[str], site: Path, ids: dict[str, set[str]]) -> Iterator[str]:
    for address in addresses:
        target, fragment = map(unquote, urldefrag(address))
        target = target or "index.html"
        if not (site / target).is_file():
            yield f"the link to {target} leads nowhere"
        elif fragment and fragment not in ids.get(target, {fragment}):
            yield f"{target} has no #{fragment}"


def main(arguments: list[str]) -> int:
    """Check a site; returns 1 when there are problems."""
    site = Path(arguments[0]).resolve()
    wrong = check(site, Path(arguments[1]) if len(arguments) > 1 else None)
    for line in wrong:
        print(line)
    print(f"{len(list(site.rglob('*.html')))} pages, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
