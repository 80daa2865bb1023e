"""Training in a real browser: a worker made of a blob, in a page from the disk that lets in WebAssembly and nothing else new."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rlviz.runs.in_page import opening_message, worker_script
from tests.page.in_node import trained
from tests.page.programs import needs_node

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

POLICY = "default-src 'none'; script-src 'unsafe-inline' 'wasm-unsafe-eval'; worker-src blob:"
SECONDS = 120  # how long a slow machine may take


def page_of(open_: dict[str, Any]) -> str:
    """Return a page that opens a worker, keeps its answers in `answers`, and sends messages by `ask`."""
    texts = [json.dumps(text).replace("</", "<\\/") for text in (worker_script(), open_)]
    return f"""<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">
    <script>
      const answers = [];
      const blob = new Blob([{texts[0]}], {{ type: "text/javascript" }});
      const thread = new Worker(URL.createObjectURL(blob));
      thread.onmessage = ({{ data }}) => answers.push(data);
      thread.onerror = ({{ message }}) => answers.push({{ is: "error", message }});
      const ask = (message) => thread.postMessage(message);
      ask({texts[1]});
    </script>"""


@pytest.fixture(scope="module")
def opened_page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Page]]:
    """Return what opens a page in which a transformer trains; nothing is asked of anybody, and nothing is complained of."""
    folder = tmp_path_factory.mktemp("training")
    complaints: list[str] = []
    requests: list[str] = []

    def open_it() -> Page:
        file = folder / "training.html"
        file.write_text(page_of(opening_message("chain")), encoding="utf-8")
        tab = browser.new_page()
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(file.as_uri())
        return tab

    yield open_it
    assert not complaints
    assert all(url.startswith(("blob:", Path(folder).as_uri())) for url in requests)


def until(tab: Page, condition: str) -> None:
    """Wait for a condition; the page's policy forbids Playwright's own way."""
    for _ in range(SECONDS * 20):
        if tab.evaluate(condition):
            return
        time.sleep(0.05)
    raise AssertionError(f"{condition} took too long: {tab.evaluate('JSON.stringify(answers.slice(-1))')[:500]}")


@needs_node
def test_a_browser_trains_as_node_does(opened_page: Callable[..., Page]) -> None:
    tab = opened_page()
    settings = {"algorithm": "DCPO", "updates_per_rollout": 2, "seed": 11, "evaluate_every": 0}
    tab.evaluate(
        f"ask({{ do: 'start', settings: {json.dumps(settings)} }}); for (let k = 0; k < 4; k++) ask({{ do: 'step' }})"
    )
    until(tab, "answers.filter(({ is }) => is === 'step').length === 4")
    names = ["texts", "grad_norm", "loss", "entropy", "logp_old", "slope"]
    actual = tab.evaluate(
        f"""answers.filter(({{ is }}) => is === 'step').map((step) =>
        JSON.stringify({json.dumps(names)}.map((name) => step[name]), (_, x) => ArrayBuffer.isView(x) ? Array.from(x) : x))"""
    )
    steps = trained(4, **settings)
    expected = [[step[name] for name in names] for step in steps]
    assert [json.loads(step) for step in actual] == expected  # to the last bit
