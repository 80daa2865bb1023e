"""The policy of a page in one file: its own scripts run, and no other, whichever way it came into the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rlviz import GRPO, TrainSettings, train
from rlviz.markup import Markup
from rlviz.page.widget import page
from rlviz.pictures import explore_clip
from rlviz.runs.inspector import inspect_run
from rlviz.runs.playground import standalone_page
from tests.browser.cells import wait_until

if TYPE_CHECKING:
    from conftest import Notebook

INJECTED = "<script>window.hurt = 1</script>"


def inspector_page(folder: Path) -> str:
    settings = TrainSettings(steps=1, num_prompts=2, group_size=2, evaluate_every=0, details_every=1)
    records = list(train("chain", "chain", GRPO, settings))
    return inspect_run(records, algorithm=GRPO).save(folder / "run.html").read_text(encoding="utf-8")


PAGES: dict[str, tuple[Callable[[Path], str], str]] = {  # page → what writes it, and what is there once its script ran
    "plot": (lambda _: page("clip", explore_clip().html()), "[data-live] svg"),
    "playground": (lambda _: standalone_page(), ".play-said"),
    "inspect": (inspector_page, "[data-live] svg"),
}


def policy_of(text: str) -> dict[str, str]:
    """Return the directives of a page's policy."""
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    return dict(one.split(" ", 1) for one in unescape(policy).split("; "))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs_its_own_scripts_and_no_other(
    name: str, tmp_path: Path, open_page: Callable[[str], Notebook]
) -> None:
    write, drawn = PAGES[name]
    text = write(tmp_path)
    policy = policy_of(text)
    assert "'unsafe-inline'" not in policy["script-src"] and "'sha256-" in policy["script-src"]
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    file = tmp_path / "page.html"
    file.write_text(text.replace("</body>", f"{INJECTED}</body>"), encoding="utf-8")
    opened = open_page(file.as_uri())
    wait_until(opened.page, lambda: opened.page.locator(drawn).count() > 0, "the page's own script")
    opened.page.evaluate("""() => {
        document.body.append(Object.assign(document.createElement("script"), { textContent: "window.hurt = 2" }));
        document.body.insertAdjacentHTML("beforeend", '<img src="data:," onerror="window.hurt = 3">');
        return new Promise((done) => setTimeout(done, 200));
    }""")
    assert opened.page.evaluate("window.hurt ?? null") is None
    assert len(opened.errors) == 3 and all("Content Security Policy" in message for message in opened.errors)
    opened.page.close()


def test_a_script_that_a_text_brought_is_not_let_in() -> None:
    assert policy_of(page("a", Markup(INJECTED)))["script-src"] == "'none'"
