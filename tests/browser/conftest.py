"""A real browser, and the course as a user has it: `rlviz lab` running, and notebooks open in it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.playing import SECONDS, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request, ViewportSize

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# A container has neither a sandbox nor a GPU, and often a tiny /dev/shm; the rest keeps the browser off the network.
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")
WARM_KERNELS = """  # what a server runs when it starts
from jupyter_client.provisioning import local_provisioner
from tests.warm_kernels import launch_kernel

local_provisioner.launch_kernel = launch_kernel
"""
START_SECONDS, RUN_ALL_SECONDS = 120, 300
WINDOW: ViewportSize = {"width": 1280, "height": 900}


@dataclass(frozen=True)
class Lab:
    """A running `rlviz lab`: the address it printed, and the folder it serves."""

    url: str
    folder: Path

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    @property
    def token(self) -> str:
        return parse_qs(urlsplit(self.url).query)["token"][0]

    def ask(self, path: str, *, method: str = "GET", token: bool = True) -> http.client.HTTPResponse:
        """Send a request to the server, with its token or without."""
        headers = {"Authorization": f"token {self.token}"} if token else {}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", headers=headers, method=method)
        response = urllib.request.urlopen(request, timeout=30)
        assert isinstance(response, http.client.HTTPResponse)
        return response


@dataclass
class Notebook:
    """A notebook after Run All Cells, and what the browser complained of or asked for meanwhile."""

    page: Page
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of an installed browser: the tests never download one."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'rlviz[test]'")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser on PATH (looked for {', '.join(BROWSERS)})")
    return path


@pytest.fixture(scope="module")
def lab(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Serve the course from a new folder, with kernels that start at once."""
    root = tmp_path_factory.mktemp("lab")
    (root / "config").mkdir()
    (root / "config" / "jupyter_server_config.py").write_text(WARM_KERNELS, encoding="utf-8")
    with serving(root, "lab", "--dir", str(root / "course")) as url:
        yield Lab(url, root / "course")


@contextlib.contextmanager
def serving(root: Path, *arguments: str) -> Iterator[str]:
    """Run a command of rlviz that serves, with settings that are nobody's, and end it as File > Shut Down does."""
    log = root / "server.log"
    command = [sys.executable, "-m", "rlviz", arguments[0], "--no-browser", "--port", str(free_port())]
    folders = {f"JUPYTER_{name}_DIR": str(root / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *arguments[1:]],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "RLVIZ_ASK": "0", **folders},  # no cell waits for an answer
            start_new_session=True,  # a process group of its own, to end all of it
        )
    try:
        url = printed_url(process, log)
        yield url
        Lab(url, root).ask("api/shutdown", method="POST").close()
        assert process.wait(60) == 0, log.read_text(encoding="utf-8")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def printed_url(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the server has printed its address with the token and answers there, and return it."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if match := re.search(r"http://\S+[?&]token=\w+", log.read_text(encoding="utf-8")):
            with contextlib.suppress(OSError):  # on a busy machine it prints a moment before it listens
                socket.create_connection(("127.0.0.1", urlsplit(match[0]).port), timeout=1).close()
                return match[0]
        time.sleep(0.2)
    pytest.fail(f"the server printed no address with a token:\n{log.read_text(encoding='utf-8')}")


@contextlib.contextmanager
def started(chromium: str) -> Iterator[Browser]:
    """Run a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """Run a browser for the tests of a file; beyond it, Playwright's loop would be in the way of others."""
    with started(chromium) as browser:
        yield browser


@pytest.fixture(scope="module")
def stage(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Open an empty page in which `shown(packed)` draws a picture and returns its place when all is drawn."""
    from rlviz.markup import Markup, element
    from rlviz.page.script import module
    from rlviz.page.widget import ALONE, page

    drawing = """
      globalThis.shown = async (packed) => {
        const place = document.body.appendChild(document.createElement("div"));
        globalThis.picture = mount(place, await unpack(packed));
        while (place.querySelector("[aria-busy=true]")) await new Promise(requestAnimationFrame); // it trains
        return place;
      };"""
    script = element("script", Markup(module(*ALONE, offers=drawing)), type="module")
    path = tmp_path_factory.mktemp("stage") / "stage.html"
    path.write_text(page("stage", script), encoding="utf-8")
    tab = browser.new_page(viewport=WINDOW, reduced_motion="reduce")
    notebook = watched(tab, path.as_uri())
    yield tab
    assert notebook.errors == []


@pytest.fixture(scope="module")
def open_page(browser: Browser) -> Callable[[str], Notebook]:
    """Return what opens an address in a new window, with storage of its own."""
    return lambda url: watched(browser.new_page(viewport=WINDOW), url)


@pytest.fixture(scope="module")
def run_in_lab(lab: Lab, open_page: Callable[[str], Notebook]) -> Iterator[Callable[..., Notebook]]:
    """Return what opens a new notebook with these cells, and runs them."""
    notebooks: list[Notebook] = []

    def run(name: str, *cells: str) -> Notebook:
        write_notebook(lab.folder / f"{name}.ipynb", list(cells))
        # a workspace of its own: JupyterLab opens the notebooks of the last visit to one again, in front of this
        place = f"lab/workspaces/{name}/tree/{name}.ipynb"
        notebooks.append(open_page(f"http://127.0.0.1:{lab.port}/{place}?token={lab.token}"))
        run_all(notebooks[-1].page, cells=len(cells))
        return notebooks[-1]

    yield run
    for notebook in notebooks:
        notebook.page.close()


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the playground as one page."""
    from rlviz.runs.playground import standalone_page

    path = tmp_path_factory.mktemp("playground") / "page.html"
    path.write_text(standalone_page(), encoding="utf-8")
    return path


@pytest.fixture
def visit(open_page: Callable[[str], Notebook], file: Path) -> Iterator[Callable[..., Page]]:
    """Return what opens the page with an address; at the end none may have complained, or asked another host."""
    opened: list[Notebook] = []

    def go(address: str = "") -> Page:
        opened.append(open_page(f"{file.as_uri()}{address}"))
        opened[-1].page.get_by_label("algorithm", exact=True).first.wait_for(state="attached", timeout=SECONDS * 1000)
        until(opened[-1].page, "Boolean(globalThis.rlviz?.run)")
        return opened[-1].page

    yield go
    for tab in opened:
        assert not tab.errors
        assert not [url for url in tab.outside if not url.startswith(("file:", "blob:"))]
        tab.page.close()


def watched(page: Page, url: str) -> Notebook:
    """Go to an address, and note from then on what the page complains of or asks others for."""
    notebook = Notebook(page)
    server = f"//{urlsplit(url).netloc}/"

    def note_outside(request: Request) -> None:
        if urlsplit(request.url).scheme not in {"data", "blob"} and server not in request.url:
            notebook.outside.append(request.url)

    page.on("request", note_outside)
    page.on("pageerror", lambda error: notebook.errors.append(f"{error}\n{error.stack}"))
    page.on("console", lambda m: notebook.errors.append(f"{m.text} {m.location}") if m.type == "error" else None)
    page.goto(url)
    return notebook


def write_notebook(path: Path, sources: list[str]) -> None:
    """Write a notebook with a code cell for each source."""
    cells = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": s} for s in sources
    ]
    for place, cell in enumerate(cells):
        cell["id"] = f"cell-{place}"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    written = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(written), encoding="utf-8")


def run_all(page: Page, *, cells: int) -> None:
    """Choose Run > Run All Cells, and wait until the last has its number; a failure ends the wait."""
    # Before the kernel is idle, JupyterLab answers with a dialog that asks which kernel to use.
    page.get_by_text("| Idle").first.wait_for(timeout=START_SECONDS * 1000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    last = page.locator(".jp-InputPrompt", has_text=f"[{cells}]:")
    failure = page.locator(".jp-OutputArea-output", has_text="Traceback (most recent call last)")
    last.or_(failure).first.wait_for(state="attached", timeout=RUN_ALL_SECONDS * 1000)
    assert not failure.all_text_contents()
