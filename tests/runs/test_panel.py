"""The panel that trains: what it says, and what its buttons do."""

import re
import time
from dataclasses import replace
from html import unescape

import pytest

from rlviz.algorithms import GRPO
from rlviz.runs.panel import WITHOUT_KL, group_table, training_panel
from rlviz.training import TrainSettings, train

pytestmark = pytest.mark.usefixtures("axes_stay")

TINY = TrainSettings(steps=4, num_prompts=3, group_size=4, evaluate_every=2)
LONG = replace(TINY, steps=20, evaluate_every=0)


def wait_for(panel, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, panel.caption
        time.sleep(0.01)


def disabled(panel):
    return [button.disabled for button in (panel.train_button, panel.stop_button, panel.resume_button)]


def test_train_stop_resume():
    panel = training_panel(settings=LONG)
    assert disabled(panel) == [False, True, True]
    panel.train_button.click()
    parts = [part for control in panel.controls.values() for part in control.row.children]
    assert panel.train_button.disabled and all(part.disabled for part in parts)  # what would not act cannot be moved
    wait_for(panel, lambda: re.search(r"Step \d+ of 20, about \d+ s left", panel.caption))
    panel.stop_button.click()
    panel.wait(30)
    assert "Stopped" in panel.caption and not any(part.disabled for part in parts)
    stopped = len(panel.records)
    time.sleep(0.3)
    assert len(panel.records) == stopped < LONG.steps and disabled(panel) == [False, True, False]
    panel.resume_button.click()
    panel.wait(60)
    assert [record.step for record in panel.records] == list(range(1, LONG.steps + 1))
    assert panel.caption.startswith("Done. Step 20 of 20") and panel.resume_button.disabled


def test_a_run_that_breaks_off_says_so():
    def broken(ratio, advantages, lower, upper):
        if ratio.shape[0] != 1:  # survives the checks on one row of ratios
            raise RuntimeError("my surrogate is broken")
        return ratio * advantages

    panel = training_panel(algorithm=replace(GRPO, kl=None, surrogate=broken), settings=TINY)
    panel.start()
    panel.wait(60)
    assert "my surrogate is broken" in panel.caption and not panel.train_button.disabled


def test_the_panel_trains_with_what_its_sliders_say():
    panel = training_panel(settings=replace(TINY, steps=2))
    wished = {"group_size": 3, "updates_per_rollout": 4, "eps_low": 0.05, "eps_high": 0.07, "seed": 5, "lr": 1e-3}
    for name, value in wished.items():
        panel.controls[name].slider.value = value
    panel.start()
    panel.wait(60)
    used = vars(panel.run.settings) | vars(panel.run.algorithm.bounds)
    assert {name: used[name] for name in wished} == wished
    assert len(panel.records[0].group) == 3
    used = "(group size G 3, learning rate 0.001, updates per rollout 4, seed 5, ε low 0.05, ε high 0.07)"
    assert used in panel.caption


@pytest.fixture(scope="module")
def sentences():
    """A step on sentences in whose first group some are better than others."""
    records = train("sentences", WITHOUT_KL, replace(TINY, num_prompts=8))
    return next(record for record in records if any(response.advantage for response in record.group))


def test_a_long_response_is_cut_in_the_table(sentences):
    (group, *_), long = sentences.groups, " ".join(map(str, range(100)))
    group = replace(group, responses=(replace(group.responses[0], text=long),), user_text="in the user's words")
    table = group_table(replace(sentences, groups=(group,)))
    assert "59</span> … 40 more words" in table and unescape(table).count("responses to in the user's words") == 1


def test_sentences_are_read_word_by_word_in_the_colour_of_their_advantage(sentences):
    rows = group_table(sentences).split("<tr>")[2:]
    for response, row in zip(sentences.group, rows, strict=True):
        cell = re.sub("<[^>]*>", "", unescape(row.split("</td>")[0])).removesuffix(" (cut off)")
        assert cell.split(" ") == [*response.text.removeprefix(" ").split(" "), ""]
        way = {"is-up" if response.advantage > 0 else "is-down"} if response.advantage else set()
        assert set(re.findall("is-up|is-down", row)) == way
        assert not re.search(r"\b(right|wrong|nan)\b", row)
