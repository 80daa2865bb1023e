"""What a page is told of a live picture, what it says back, and the panel that trains."""

import base64
import io
import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from rlviz.algorithms import DCPO, DPO, GRPO
from rlviz.pictures.clip import explore_clip
from rlviz.pictures.gae import explore_gae
from rlviz.pieces.surrogate import DualClip
from rlviz.runs.panel import group_table, training_panel
from rlviz.training import TrainSettings

pytestmark = pytest.mark.usefixtures("axes_stay")

TINY = TrainSettings(steps=40, num_prompts=4, group_size=4, evaluate_every=10)


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def told(widget, name):
    """Return what the page is told of a control."""
    return next(part for part in widget.parts if part["name"] == name)


def test_what_a_person_does_in_the_page_and_what_python_sets_are_one():
    widget = explore_clip()
    widget.asked = {"turn": 1, "control": "eps_low", "to": 0.4}
    assert (widget.controls["eps_low"].value, widget.answered) == (0.4, 1)
    assert (widget.still, widget.moving) == ((other := explore_clip(eps_low=0.4)).still, other.moving)
    widget.asked = {"turn": 2, "control": "eps_low", "to": 0.2 + 0.01}  # 0.21000000000000002
    assert (told(widget, "eps_low")["value"], told(widget, "eps_low")["words"]) == (0.21, "0.21")
    assert widget.call == "explore_clip(eps_low=0.21)"
    widget.controls["eps_low"].value = 0.3
    assert told(widget, "eps_low")["value"] == 0.3
    widget.asked = {"turn": 3, "control": "eps_low", "to": 7}
    assert told(widget, "eps_low")["value"] == 0.99
    widget.asked = {"turn": 4, "control": "algorithm", "to": 999}
    assert widget.controls["algorithm"].value == widget.controls["algorithm"].options[-1][1]
    assert widget.answered == 4


@pytest.mark.parametrize(
    ("name", "wrong"), [("eps_low", 1.5), ("eps_low", "much"), ("algorithm", DPO), ("beside", [7])]
)
def test_a_value_that_a_control_cannot_have_is_refused_and_changes_nothing(name, wrong):
    widget = explore_clip()
    before = widget.moving, widget.call
    with pytest.raises(ValueError, match=f"{name} must be "):
        widget.controls[name].value = wrong
    assert (widget.moving, widget.call) == before


def test_caption_and_alt_text_say_what_is_shown():
    widget = explore_clip()
    assert widget.conclusion == (
        "GRPO pushes a good token up until its ratio is 1.20, and a bad one down until its ratio is 0.80."
    )
    assert "no gradient above ratio 1.20, once its probability has grown to 0.72" in widget.details
    assert "no gradient below ratio 0.80, once its probability has fallen to 0.48" in widget.details
    widget.controls["old_prob"].value = 0.9
    assert widget.conclusion.startswith("GRPO pushes a good token up as far as it goes")
    assert "beyond probability 1 (ratio 1.11), so this token is never clipped" in widget.caption
    assert widget.caption in widget.alt
    assert widget.call == "explore_clip(old_prob=0.9)"


def test_without_a_kernel_there_is_a_picture():
    widget = explore_clip()
    data, _ = widget._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]) == widget.png
    assert pixels(widget.png).shape == (460, 1000, 3)
    assert data["text/plain"] == widget.caption
    assert "application/vnd.jupyter.widget-view+json" in data
    before = pixels(widget.png)
    widget.controls["eps_low"].value = 0.4
    assert (pixels(widget.png) != before).any()
    widget.controls["eps_low"].value = 0.2
    np.testing.assert_array_equal(pixels(widget.png), before)


def test_a_rule_of_one_s_own_is_explored_too():
    def none_above(old_logp):
        return old_logp * 0 + 0.5, old_logp * 0 + float("inf")

    widget = explore_clip(replace(GRPO, name="Mine", bounds=none_above))
    assert [name for name, control in widget.controls.items() if not control.hidden] == [
        "algorithm", "old_prob", "dual_clip", "up_to", "beside",
    ]  # fmt: skip
    assert "Mine" in widget.caption
    assert "A > 0: no gradient is cut at the ratios shown." in widget.caption


def test_the_caption_of_an_unusual_surrogate_says_where_it_cuts():
    dual = explore_clip(replace(GRPO, surrogate=DualClip(c=1.5))).caption
    assert "A < 0: no gradient below ratio 0.80 and above ratio 1.50." in dual
    early = replace(GRPO, surrogate=lambda r, a, lower, upper: r.clamp(max=1.1) * a)
    assert "A > 0: no gradient above ratio 1.10." in explore_clip(early).caption
    assert (
        "no gradient is cut at the ratios shown; the upper limit is 2.00." in explore_clip(DCPO, old_prob=0.1).caption
    )
    with pytest.raises(ValueError, match="DPO has nothing that this picture shows"):
        explore_clip(DPO)


@pytest.mark.parametrize("wrong", [{"eps_low": 1.5}, {"old_prob": 0.0}])
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        explore_clip(**wrong)


def wait_for(panel, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, panel.caption
        time.sleep(0.01)


def test_train_stop_resume():
    panel = training_panel(settings=TINY)
    empty = pixels(panel.png)
    assert (panel.train_button.disabled, panel.stop_button.disabled, panel.resume_button.disabled) == (
        False,
        True,
        True,
    )
    panel.train_button.click()
    assert panel.train_button.disabled
    wait_for(panel, lambda: len(panel.records) >= 5)
    panel.stop_button.click()
    panel.wait(30)
    assert "Stopped" in panel.caption
    stopped = len(panel.records)
    assert stopped < TINY.steps
    picture = panel.png
    assert (pixels(picture) != empty).any()
    time.sleep(0.3)
    assert len(panel.records) == stopped
    assert panel.png == picture
    assert (panel.train_button.disabled, panel.stop_button.disabled, panel.resume_button.disabled) == (
        False,
        True,
        False,
    )
    panel.resume_button.click()
    panel.wait(60)
    assert [record.step for record in panel.records] == list(range(1, TINY.steps + 1))
    assert panel.caption.startswith("Done. Step 40 of 40")
    assert panel.resume_button.disabled


def test_the_panel_trains_with_what_its_sliders_say():
    panel = training_panel(settings=replace(TINY, steps=2))
    for name, value in (
        ("group size", 3),
        ("updates per rollout", 4),
        ("eps_low", 0.05),
        ("eps_high", 0.07),
        ("seed", 5),
    ):
        panel.controls[name].slider.value = value
    panel.controls["learning rate"].slider.value = 1e-3
    panel.start()
    panel.wait(60)
    settings = panel.run.settings
    assert (settings.group_size, settings.updates_per_rollout, settings.seed, settings.lr) == (3, 4, 5, 1e-3)
    assert (panel.run.algorithm.bounds.eps_low, panel.run.algorithm.bounds.eps_high) == (0.05, 0.07)
    assert len(panel.records[0].group) == 3


def test_the_lines_are_the_records_and_the_run_before_stays_in_grey():
    panel = training_panel(settings=TINY)
    panel.start()
    panel.wait(60)
    first = [record.reward for record in panel.records]
    assert "grey" not in panel.caption
    np.testing.assert_array_equal(panel._lines["reward"].get_ydata(), first)
    np.testing.assert_array_equal(panel._lines["held_out_accuracy"].get_xdata(), [10, 20, 30, 40])
    panel.controls["seed"].slider.value = 1
    panel.start()
    panel.wait(60)
    np.testing.assert_array_equal(panel._before["reward"].get_ydata(), first)
    np.testing.assert_array_equal(panel._lines["reward"].get_ydata(), [record.reward for record in panel.records])
    assert "The run before is grey." in panel.caption


def test_a_run_that_breaks_off_says_so():
    def broken(ratio, advantages, lower, upper):
        if ratio.shape[0] != 1:  # survives the checks on one row of ratios
            raise RuntimeError("my surrogate is broken")
        return ratio * advantages

    panel = training_panel(algorithm=replace(GRPO, kl=None, surrogate=broken), settings=TINY)
    panel.start()
    panel.wait(60)
    assert "my surrogate is broken" in panel.caption
    assert not panel.train_button.disabled


def test_the_group_is_a_table_and_text_in_it_is_text():
    panel = training_panel(settings=replace(TINY, steps=1))
    panel.start()
    panel.wait(60)
    table = group_table(panel.records[-1])
    assert table.count("<tr>") == 1 + len(panel.records[-1].group)
    assert panel.records[-1].prompt in table
    nasty = replace(panel.records[-1].group[0], text="<script>alert(1)</script>")
    assert "<script>" not in group_table(
        replace(panel.records[-1], groups=(replace(panel.records[-1].groups[0], responses=(nasty,)),))
    )


def test_unknown_tasks_are_refused():
    with pytest.raises(ValueError, match="did you mean chain"):
        training_panel("chian")


def test_a_slider_s_steps_add_up_to_zero():
    """−0.3 + 6 · 0.05 is 5.6e-17 in floating point."""
    explorer = explore_gae()
    explorer.asked = {"turn": 1, "control": "offset", "to": 0.2}
    explorer.asked = {"turn": 2, "control": "offset", "to": 0.01}
    assert explorer.controls["offset"].value == 0
    assert explorer.call == "explore_gae()"
