"""The playground trains what its controls say, keeps the runs before, and says in words and code what was done."""

import dataclasses
import html
import io
import json
import re
import shlex
import time
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import rlviz.algorithms
from rlviz.algorithms import ALGORITHMS, DAPO, DCPO, DPO, GRPO, GSPO, GroupPolicyGradient
from rlviz.cli import app
from rlviz.pieces.kl import KLInLoss, k2
from rlviz.runs.panel import LearningCurves, mean_over_seeds
from rlviz.runs.playground import PARAMETERS, RUNS_BEFORE, WITHOUT_SLIDER, history_table, playground
from rlviz.runs.setting import Setting, call, changed, command, in_short, with_values
from rlviz.training import TrainSettings, find_task, train
from small_models.policies import load_policy

pytestmark = pytest.mark.usefixtures("axes_stay")

TINY = TrainSettings(steps=6, num_prompts=4, group_size=4, evaluate_every=3)
FAMILY = [a for a in ALGORITHMS if isinstance(a, GroupPolicyGradient)]
NAMED = [pytest.param(a, id=a.name) for a in FAMILY]


def put(widget, **values):
    for name, value in values.items():
        control = widget.controls[name]
        getattr(control, "slider", control.box).value = value


def trained(widget):
    widget.train_button.click()
    widget.wait(120)
    return widget


def numbers_of(algorithm):
    """Every number in an algorithm's pieces, found without the playground's help: slot, name, value."""
    for slot in dataclasses.fields(algorithm):
        piece = getattr(algorithm, slot.name)
        for field in dataclasses.fields(piece) if dataclasses.is_dataclass(piece) else ():
            value = getattr(piece, field.name)
            if type(value) in (int, float):
                yield slot.name, field.name, value


def rewards(settings, algorithm=GRPO, task="chain"):
    """The rewards of a plain run with nothing of the playground in it."""
    return [record.reward for record in train(load_policy(task), find_task(task), algorithm, settings)]


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


@pytest.mark.parametrize("algorithm", NAMED)
def test_every_number_has_a_slider_that_moves_it_or_a_reason_to_have_none(algorithm):
    widget = playground(algorithm=algorithm)
    for slot, name, value in numbers_of(algorithm):
        if name in WITHOUT_SLIDER:
            assert name not in widget.controls
            continue
        assert name in PARAMETERS, f"{algorithm.name}'s {name} has no row in the table"
        slider = widget.controls[name].slider
        assert slider.value == value
        for end in (slider.min, slider.max):
            slider.value = end
            if {name, slot} == {"beta", "kl"} and end == 0:
                assert widget.setting.algorithm.kl is None
            elif slot == "shape" and (name, end) in (("max_length", 1), ("cache", 31)):  # cache 4 and max_length 16
                with pytest.raises(ValueError, match="cache must be above 0 and at most max_length"):
                    _ = widget.setting
            else:
                assert getattr(getattr(widget.setting.algorithm, slot), name) == end
        slider.value = value


def test_the_table_has_no_row_too_many():
    known = {name for algorithm in FAMILY for _, name, _ in numbers_of(algorithm)}
    assert set(PARAMETERS) | set(WITHOUT_SLIDER) == known


def test_only_what_can_be_trained_is_offered():
    offered = [name for name, _ in playground()._algorithm.box.options]
    assert offered == [a.name for a in ALGORITHMS if isinstance(a, GroupPolicyGradient)]
    with pytest.raises(ValueError, match="such as GRPO; DPO does not, see rlviz train"):
        playground(algorithm=DPO)


def test_sliders_come_and_go_with_the_algorithm_and_keep_their_values():
    widget = playground()
    always = {"task", "algorithm", "seeds", "steps", "seed", "group_size", "num_prompts", "lr"}
    always |= {"updates_per_rollout", "minibatches", "temperature"}
    assert set(widget.controls) - always == {"eps_low", "eps_high", "beta"}
    put(widget, eps_high=0.5, algorithm="DCPO")
    assert set(widget.controls) - always == {"eps_low", "eps_high", "beta", "max_ratio", "c", "ddof"}
    shown = [row.children[0].description for row in widget._parameters.children[:-1]]
    assert shown == ["eps_low", "eps_high", "max_ratio", "c", "ddof", "beta"]
    assert widget.setting.algorithm == DCPO
    put(widget, algorithm="GRPO")
    assert widget.setting.algorithm == GRPO.with_parameters(eps_high=0.5)


def test_ranges_follow_the_algorithm():
    widget = playground(algorithm=GSPO)
    assert widget.setting.algorithm == GSPO
    assert (widget.controls["eps_low"].slider.min, widget.controls["eps_low"].slider.max) == (1e-4, 0.05)
    put(widget, eps_low=0.0005)
    assert widget.setting.algorithm.bounds.eps_low == 0.0005
    put(widget, algorithm="DAPO")
    assert (widget.controls["eps_low"].slider.min, widget.controls["eps_low"].slider.max) == (0.01, 0.99)


def test_beta_puts_a_kl_term_in_and_takes_it_out():
    widget = playground(algorithm=DAPO)
    assert widget.controls["beta"].value == 0
    assert widget.setting.algorithm.kl is None
    put(widget, beta=0.3)
    assert widget.setting.algorithm == replace(DAPO, kl=KLInLoss(beta=0.3))
    with_k2 = replace(GRPO, name="k2", kl=KLInLoss(beta=0.1, estimator=k2))
    assert with_values(with_k2, {"beta": 0.2}).kl == KLInLoss(beta=0.2, estimator=k2)
    assert with_values(with_k2, {"beta": 0.0}).kl is None


def test_two_numbers_that_only_fit_together_can_be_moved_one_after_the_other():
    widget = playground(algorithm=DAPO)
    put(widget, max_length=3)
    assert "Train would refuse this: cache must be above 0 and at most max_length (3)" in widget._since.value
    put(widget, cache=2)
    shape = widget.setting.algorithm.shape
    assert (shape.max_length, shape.cache) == (3, 2)
    assert playground(algorithm=replace(DAPO, shape=shape))._algorithm.value == "DAPO"


def test_the_controls_values_are_what_trains():
    widget = playground(settings=TINY)
    put(widget, task=find_task("sort"), steps=2, seed=5, group_size=3, num_prompts=6, lr=1e-3)
    put(widget, updates_per_rollout=4, minibatches=2, temperature=0.7, algorithm="DAPO", eps_high=0.4)
    trained(widget)
    wanted = TrainSettings(
        steps=2, seed=5, group_size=3, num_prompts=6, lr=1e-3, updates_per_rollout=4, minibatches=2, temperature=0.7
    )
    assert widget.run.settings == replace(wanted, evaluate_every=3)
    assert widget.run.algorithm == DAPO.with_parameters(eps_high=0.4)
    assert [record.reward for record in widget.records] == rewards(wanted, widget.run.algorithm, "sort")


def test_seeds_train_in_turn_each_from_the_warm_start_and_bold_is_their_mean():
    widget = trained(playground(settings=replace(TINY, seed=3), seeds=2))
    first, second = (rewards(replace(TINY, seed=seed)) for seed in (3, 4))
    ((attempt,), lines, thin) = (widget.attempts, widget._curves.lines, widget._curves.seeds)
    assert [[record.reward for record in seed] for seed in attempt.seeds] == [first, second]
    assert first != second
    np.testing.assert_allclose(lines["reward"].get_ydata(), (np.array(first) + second) / 2)
    np.testing.assert_array_equal(thin["reward"].get_ydata(), [*first, np.nan, *second])
    np.testing.assert_array_equal(lines["held_out_accuracy"].get_xdata(), [3, 6])
    assert "seed 4 (2 of 2; bold is the mean of the seeds), step 6 of 6" in widget.caption


def test_a_mean_over_seeds_counts_those_that_came_so_far():
    @dataclass
    class Record:
        step: int
        reward: float | None

    long = [Record(1, 0.1), Record(2, None), Record(3, 0.5)]
    short = [Record(1, 0.3)]
    steps, values = mean_over_seeds([long, short], "reward")
    np.testing.assert_allclose(steps, [1, 3])
    np.testing.assert_allclose(values, [0.2, 0.5])  # (0.1 + 0.3) / 2; at 3 the long one alone
    steps, values = mean_over_seeds([], "reward")
    assert len(steps) == len(values) == 0


def test_stop_and_resume_give_the_curve_of_a_run_without_a_stop():
    widget = playground(settings=replace(TINY, steps=15), seeds=2)
    widget.start()
    end = time.monotonic() + 60
    while len(widget.records) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    assert (widget.train_button.disabled, widget.stop_button.disabled, widget.reset_button.disabled) == (
        True,
        False,
        True,
    )
    widget.stop_button.click()
    widget.wait(60)
    assert "Stopped" in widget.caption
    assert len(widget.attempts[0].seeds) == 1 and len(widget.records) < 15
    assert not widget.resume_button.disabled and not widget.reset_button.disabled
    widget.resume_button.click()
    widget.wait(120)
    assert widget.caption.startswith("Done. Run 1")
    assert widget.resume_button.disabled
    plain = [rewards(replace(TINY, steps=15, seed=seed)) for seed in (0, 1)]
    assert [[record.reward for record in seed] for seed in widget.attempts[0].seeds] == plain


def test_the_last_runs_stay_in_grey_with_their_numbers():
    widget = playground(settings=replace(TINY, steps=2, evaluate_every=2))
    seen = []
    for seed in range(RUNS_BEFORE + 2):
        put(widget, seed=seed)
        seen.append([record.reward for record in trained(widget).records])
    grey = widget._curves.before["reward"].get_ydata()
    kept = seen[-1 - RUNS_BEFORE : -1]
    np.testing.assert_array_equal(grey, [x for one in kept for x in (np.nan, *one)][1:])
    numbers = [str(number) for number in range(2, RUNS_BEFORE + 2)]
    for ax in widget._curves.figure.axes[:2]:
        assert sorted(text.get_text().strip() for text in ax.texts) == numbers
        heights = sorted(text.get_position()[1] for text in ax.texts)
        assert min(np.diff(heights)) > 0.06 * np.diff(ax.get_ylim())  # a digit's height: none lies over another
    assert f"Grey: runs {', '.join(numbers)}." in widget.caption
    rows = re.findall(r"<tr><td[^>]*>(\w+)</td>", widget._history.value)
    assert rows == [*numbers, str(RUNS_BEFORE + 2)]


def test_an_axis_holds_the_longest_run_on_show():
    widget = trained(playground(settings=TINY))
    put(widget, steps=3)
    trained(widget)
    assert widget._curves.figure.axes[0].get_xlim() == (0, pytest.approx(1.03 * 6))
    put(widget, steps=8)
    trained(widget)
    assert widget._curves.figure.axes[0].get_xlim() == (0, pytest.approx(1.03 * 8))


def test_an_axis_grows_to_hold_rewards_below_0():
    measured = dict.fromkeys(("held_out_accuracy", "entropy", "clip_fraction_low", "clip_fraction_high"), None)
    curves = LearningCurves(9, 3, 10)
    curves.show([[SimpleNamespace(step=1, reward=-0.4, **measured)]])
    low, high = curves.figure.axes[0].get_ylim()
    assert low < -0.4 and high == 1.02


def test_reset_forgets_the_runs_and_puts_the_controls_back():
    settings = replace(TINY, seed=2)
    widget = playground("trip", algorithm=GRPO.with_parameters(eps_high=0.5), settings=settings, seeds=2)
    start, picture, words = widget.setting, pixels(widget.png), widget._lines_to_copy.value
    put(widget, task=find_task("chain"), eps_high=0.9, group_size=7, seeds=1, steps=2, algorithm="DCPO", c=3)
    trained(widget)
    assert (pixels(widget.png) != picture).any()
    widget.reset_button.click()
    assert widget.setting == start
    assert (pixels(widget.png) == picture).all()
    assert widget._lines_to_copy.value == words
    assert widget._history.value == widget._table.value == ""
    assert widget.resume_button.disabled
    assert widget.caption.startswith("Press Train.")
    put(widget, algorithm="DCPO")
    assert widget.setting.algorithm == DCPO
    put(widget, algorithm="GRPO", steps=1, seeds=1)
    assert trained(widget).caption.startswith("Done. Run 1, GRPO on trip")


def setting(task="chain", algorithm=GRPO, seeds=1, **settings):
    return Setting(find_task(task), algorithm, TrainSettings(**settings), seeds)


def test_what_changed_is_said_in_words():
    # GRPO → DAPO differ in five slots (DAPO's docstring numbers them); eps_low is 0.2 in both
    rows = dict(changed(setting(), setting("sort", DAPO, 3, group_size=16, lr=1e-3)))
    assert list(rows)[:2] == ["task chain → sort", "GRPO → DAPO"]
    assert rows["bounds: eps_high 0.2 → 0.28"].startswith("clip-higher")
    assert "kl: 0.04 · k3 to reference, in the loss → –" in rows
    assert "aggregate: sequence mean → token mean" in rows
    assert "shape: – → overlong punishment from 12 to 16 tokens" in rows
    assert "select: keep all → dynamic sampling, up to 10 × P" in rows
    assert list(rows)[-3:] == ["learning rate 0.0003 → 0.001", "group size 8 → 16", "seeds 1 → 3"]
    assert len(rows) == 10
    assert changed(setting(), setting()) == []
    # a number that the piece's own words leave out
    deeper = DAPO.with_parameters(floor=-2.0)
    assert [what for what, _ in changed(setting(algorithm=DAPO), setting(algorithm=deeper))] == ["shape: floor -1 → -2"]
    short = in_short(setting(), setting("sort", DAPO, group_size=16))
    assert short == "task chain → sort; GRPO → DAPO (bounds, kl, aggregate, shape, select); group size 8 → 16"
    assert in_short(setting(), setting(seed=2, algorithm=GRPO.with_parameters(eps_low=0.3))) == (
        "bounds: eps_low 0.2 → 0.3; first seed 0 → 2"
    )


def test_changes_are_told_while_sliders_move_and_when_train_is_pressed():
    widget = playground(settings=replace(TINY, steps=1))
    put(widget, group_size=5)
    assert "Since" not in widget._since.value
    trained(widget)
    assert "This is run 1." in widget._since.value
    put(widget, group_size=6)
    assert "Since run 1: group size 5 → 6." in widget._since.value
    assert "<td" in widget._history.value and "next" in widget._history.value
    put(widget, group_size=5)
    assert "next" not in widget._history.value
    put(widget, group_size=7)
    trained(widget)
    assert "Run 2, since run 1: group size 5 → 7." in widget._since.value
    trained(widget)
    assert "Run 3, since run 2: nothing, so the curve is the same." in widget._since.value
    assert 'aria-live="polite"' in widget._since.value


VARIED = [
    {},
    {"task": find_task("trip"), "group_size": 16, "seeds": 3},
    {"algorithm": "DAPO", "eps_high": 0.5, "factor": 2.0, "seed": 4},
    {"algorithm": "DAPO", "beta": 0.25, "temperature": 0.7},
    {"beta": 0.0, "eps_low": 0.33},
    {"beta": 0.11, "lr": 1e-3},
    {"algorithm": "GSPO", "eps_low": 0.0021, "updates_per_rollout": 4, "minibatches": 2},
    {"algorithm": "DCPO", "c": 3.0, "max_ratio": 5.0, "ddof": 1, "beta": 0.5},
    {"algorithm": "Dr.GRPO", "max_length": 8},
    {"algorithm": "DUPO", "answer": 0.5},
    {"algorithm": "GSPO-token", "steps": 7, "num_prompts": 3},
]


def code_of(widget):
    imports, line = re.search(r"<code style[^>]*>(.*?)\n(.*?)</code>", widget._lines_to_copy.value, re.S).groups()
    return html.unescape(imports), html.unescape(line)


@pytest.mark.parametrize("values", VARIED)
def test_the_line_to_copy_makes_the_same_playground(values):
    widget = playground(settings=replace(TINY, reward_correct=0.5))
    put(widget, **{name: value for name, value in values.items() if name == "algorithm"})
    put(widget, **{name: value for name, value in values.items() if name != "algorithm"})
    imports, line = code_of(widget)
    assert "\n" not in line
    names = {}
    exec(imports, names)
    again = eval(line, names)
    assert again.setting == widget.setting
    assert [name for name, _ in again._algorithm.box.options] == [name for name, _ in widget._algorithm.box.options]
    assert code_of(again) == (imports, line)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"algorithm": "DAPO", "eps_high": 0.5, "seed": 4, "updates_per_rollout": 4, "minibatches": 2},
        {"algorithm": "DCPO", "beta": 0.25, "temperature": 0.7, "lr": 1e-3, "task": find_task("sort")},
        {"beta": 0.0, "eps_low": 0.33},
    ],
)
def test_the_command_line_trains_the_same_run(values, tmp_path):
    widget = playground(settings=replace(TINY, steps=3))
    put(widget, **{name: value for name, value in values.items() if name == "algorithm"})
    put(widget, **{name: value for name, value in values.items() if name != "algorithm"})
    line = html.unescape(re.search(r"first seed: <code>(.*?)</code>", widget._lines_to_copy.value)[1])
    trained(widget)
    program, *arguments = shlex.split(line)
    assert program == "rlviz"
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    rows = [json.loads(row) for row in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in rows] == [record.reward for record in widget.records]


def test_what_the_command_line_cannot_say_it_is_not_given():
    assert command(setting(algorithm=DCPO.with_parameters(c=3.0)), DCPO) == ""
    said = command(setting(reward_correct=0.5), GRPO)
    assert said == "rlviz train --algorithm grpo --task chain --reward-correct 0.5 --beta 0.04"
    assert command(setting(evaluate_every=7), GRPO) == "rlviz train --algorithm grpo --task chain --beta 0.04"


def test_train_says_that_it_loads(monkeypatch):
    import rlviz.training

    widget, said = playground(settings=replace(TINY, steps=1)), []
    train = rlviz.training.train
    monkeypatch.setattr(rlviz.training, "train", lambda *setting: said.append(widget.caption) or train(*setting))
    trained(widget)
    assert said[0].startswith("Loading the model.")
    assert widget.caption.startswith("Done.")


def test_values_that_do_not_fit_together_are_refused_and_nothing_is_lost():
    widget = trained(playground(settings=replace(TINY, steps=2)))
    run, records, grey = widget.run, widget.records, widget._history.value
    picture = pixels(widget.png)
    put(widget, minibatches=3)
    sentence = "updates_per_rollout must be a multiple of minibatches (3)"
    assert f"Train would refuse this: {sentence}" in widget._since.value
    assert widget._lines_to_copy.value == ""
    widget.train_button.click()
    assert f"This run cannot start: {sentence}" in widget.caption
    assert widget.run is run and widget.records is records and len(widget.attempts) == 1
    assert (pixels(widget.png) == picture).all()
    assert not widget.train_button.disabled
    put(widget, minibatches=1)
    assert widget._history.value == grey
    put(widget, group_size=1)
    widget.train_button.click()
    assert "group_size must be at least 2 for GRPO" in widget.caption
    put(widget, group_size=2)
    assert trained(widget).caption.startswith("Done. Run 2")


@dataclass(frozen=True)
class Ramp:
    """Limits that widen by `slope` as the old probability falls."""

    slope: float = 0.4

    def __call__(self, old_logp: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        width = 0.2 + self.slope * (1 - old_logp.exp())
        return 1 - width, 1 + width


def test_a_composition_of_one_s_own_joins_the_list_and_trains():
    mine = replace(GRPO, name="Mine", bounds=Ramp(), kl=None)
    widget = playground(algorithm=mine, settings=replace(TINY, steps=3, updates_per_rollout=4))
    assert widget._algorithm.box.options[0][0] == widget._algorithm.value == "Mine (yours)"
    assert widget.controls["slope"].slider.min == pytest.approx(0.1)
    assert widget.controls["slope"].slider.max == pytest.approx(1.6)
    put(widget, slope=0.6)
    trained(widget)
    wanted = replace(mine, bounds=Ramp(0.6))
    assert [r.reward for r in widget.records] == rewards(widget.run.settings, wanted)
    assert widget.caption.startswith("Done. Run 1, Mine on chain")
    imports, line = code_of(widget)
    assert "algorithm=mine.with_parameters(slope=0.6)" in line
    assert "terminal" not in widget._lines_to_copy.value
    names = {"mine": mine}
    exec(imports, names)
    assert eval(line, names).setting == widget.setting
    put(widget, algorithm="DAPO")
    assert widget.setting.algorithm == DAPO


def test_a_family_member_with_other_numbers_is_that_member_with_its_sliders_moved():
    widget = playground(algorithm=DAPO.with_parameters(eps_high=0.5))
    assert widget._algorithm.value == "DAPO"
    assert widget.controls["eps_high"].value == 0.5
    assert len(widget._algorithm.box.options) == len(FAMILY)
    renamed = playground(algorithm=replace(GRPO, name="GRPO", bounds=Ramp()))
    assert renamed._algorithm.value == "GRPO (yours)"


def test_a_rule_that_breaks_says_so_and_the_next_run_starts():
    def broken(ratio, advantages, lower, upper):
        if ratio.shape[0] != 1:  # survives the checks on one row of ratios
            raise RuntimeError("my surrogate is broken")
        return ratio * advantages

    widget = trained(playground(algorithm=replace(GRPO, kl=None, surrogate=broken), settings=TINY))
    assert "The run broke off: my surrogate is broken" in widget.caption
    put(widget, algorithm="GRPO")
    trained(widget)
    assert widget.caption.startswith("Done. Run 2, GRPO on chain")
    assert "Grey" not in widget.caption  # the broken run has nothing to show


def test_text_of_others_is_text():
    nasty = replace(GRPO, name="<script>alert(1)</script>", kl=None)
    widget = trained(playground(algorithm=nasty, settings=replace(TINY, steps=1)))
    put(widget, algorithm="GRPO")
    for part in (widget._words, widget._history, widget._since, widget._lines_to_copy, widget._table):
        assert "<script>" not in part.value
    assert "&lt;script&gt;" in widget._history.value


def test_the_table_of_runs_says_what_came_of_each():
    widget = trained(playground(settings=TINY, seeds=2))
    put(widget, group_size=6, seeds=1)
    trained(widget)
    cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", widget._history.value)]
    head = re.findall(r"<th[^>]*>(.*?)</th>", widget._history.value)
    assert head[2:5] == ["held-out accuracy", "reward", "steps"] and head[6].startswith("changed")
    first, second = cells[:7], cells[7:]
    last = [seed[-1] for seed in widget.attempts[0].seeds]
    accuracy = [record.held_out_accuracy for record in last]
    assert first[:2] == ["1", "GRPO, chain"]
    assert first[2] == f"{sum(accuracy) / 2:.2f} ({min(accuracy):.2f} to {max(accuracy):.2f})"
    assert first[4] == "6 + 6" and first[6] == "–"
    assert second[2] == f"{widget.records[-1].held_out_accuracy:.2f}"
    assert second[3] == f"{widget.records[-1].reward:.2f}"
    assert second[4] == "6" and second[6] == "group size 4 → 6seeds 2 → 1"
    assert history_table([], None) == ""


def test_alt_text_caption_and_names_for_those_who_do_not_see():
    widget = trained(playground(settings=replace(TINY, steps=1)))
    assert widget.caption in widget.alt
    assert widget.alt == widget._view.alt
    assert 'role="status" aria-live="polite"' in widget._words.value
    for name, control in widget.controls.items():
        assert control.box.description, name
    data, _ = widget._repr_mimebundle_()
    assert data["text/plain"] == widget.caption and data["image/png"]


def test_two_playgrounds_do_not_disturb_each_other():
    one, two = playground(settings=TINY), playground(settings=TINY)
    quiet = two.png
    trained(one)
    assert two.png == quiet and not two.attempts
    one.start()
    two.start()
    one.wait(60)
    two.wait(60)
    wanted = rewards(TINY)
    assert [r.reward for r in one.records] == [r.reward for r in two.records] == wanted


@pytest.mark.parametrize(
    ("wrong", "words"), [({"seeds": 0}, "seeds must be from 1 to 5; got 0"), ({"task": "chian"}, "chain")]
)
def test_values_out_of_range_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        playground(**wrong)


def test_the_names_in_the_line_to_copy_are_those_of_the_package():
    for algorithm in FAMILY:
        assert call(setting(algorithm=algorithm), algorithm, "X")[0] == "playground('chain', algorithm=X)"
    widget = playground()
    for algorithm in FAMILY:
        put(widget, algorithm=algorithm.name)
        name = re.search(r"algorithm=(\w+)", code_of(widget)[1])[1]
        assert getattr(rlviz.algorithms, name) is algorithm
