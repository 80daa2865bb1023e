"""The inspector shows the records, wherever its controls have been, alone or beside another run, live or from disk."""

import base64
import html
import io
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from rlviz.algorithms import DAPO, DPO, GRPO, PPO, differences
from rlviz.pictures.base import BLUE, VERMILION
from rlviz.runs.inspector import LISTED, _listed, inspect_run
from rlviz.runs.panel import training_panel
from rlviz.training import PairSettings, RunFolder, TrainSettings, resume, train
from rlviz.training.formula import written_out
from small_models.policies import load_policy
from small_models.tasks import Chain

SETTINGS = TrainSettings(
    steps=7, num_prompts=6, group_size=4, updates_per_rollout=4, lr=1e-3, lr_warmup_steps=0, evaluate_every=3,
    details_every=3, details_groups=3,
)  # fmt: skip


def half(old_logp):
    """A rule of one's own: a third up, half down."""
    return 0.5, 4 / 3


def run(algorithm, folder, settings=SETTINGS):
    training = train(load_policy("chain", device="cpu"), Chain(), algorithm, settings, out=folder)
    return list(training), folder


@pytest.fixture(scope="module")
def grpo(tmp_path_factory):
    return run(GRPO, tmp_path_factory.mktemp("runs") / "grpo")


@pytest.fixture(scope="module")
def dapo(tmp_path_factory):
    return run(DAPO, tmp_path_factory.mktemp("runs") / "dapo", replace(SETTINGS, seed=1, details_every=2))


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    return run(replace(GRPO, name="Mine", bounds=half, kl=None), tmp_path_factory.mktemp("runs") / "mine")


def pixels(inspector):
    return np.asarray(Image.open(io.BytesIO(inspector.png)).convert("RGB")).astype(int)


def text_of(source):
    """The words of HTML, without its tags."""
    return html.unescape(re.sub(r"<[^>]+>", " ", source))


def views(inspector):
    return inspector._group_view.value, inspector._token_view.value


def line(inspector, number, metric):
    return inspector.picture._lines[number, metric]


def strongest(record):
    """Group, response and token of the strongest push, as their controls count them."""
    pushes = {
        (g, r, t): abs(token.push)
        for g, group in enumerate(record.groups)
        for r, response in enumerate(group.responses, 1)
        for t, token in enumerate(response.tokens, 1)
    }
    return max(pushes, key=pushes.get)


def chosen(inspector):
    return inspector.group.value, inspector.response.value, inspector.token.value


def test_it_opens_at_the_strongest_push_of_the_newest_step_with_tokens(grpo):
    records, folder = grpo
    inspector = inspect_run(folder)
    assert inspector.step.value == 6
    assert chosen(inspector) == strongest(records[5])


def test_the_picture_holds_the_run_and_a_line_at_the_step(grpo):
    records, folder = grpo
    inspector = inspect_run(folder)
    for metric in ("reward", "entropy", "clip_fraction_high", "clip_fraction_low", "clip_fraction_dual"):
        np.testing.assert_array_equal(line(inspector, 0, metric).get_xdata(), range(1, 8))
        np.testing.assert_allclose(line(inspector, 0, metric).get_ydata(), [getattr(r, metric) for r in records])
    np.testing.assert_array_equal(line(inspector, 0, "held_out_accuracy").get_xdata(), [3, 6, 7])
    for step in (1, 4, 7):
        inspector.step.slider.value = step
        assert [list(cursor.get_xdata()) for cursor in inspector.picture._cursors] == [[step]] * 3
    assert [list(ticks.get_xdata()) for ticks in inspector.picture._ticks] == [[3, 6]] * 3
    last = records[6]
    assert inspector.caption == (
        f"Step 7 of 7. GRPO: reward {last.reward:.2f}, held-out accuracy {last.held_out_accuracy:.2f}, entropy "
        f"{last.entropy:.2f} nats, clipped {last.clip_fraction_low:.1%} below and {last.clip_fraction_high:.1%} above."
    )
    inspector.step.slider.value = 5
    assert f"held-out accuracy {records[2].held_out_accuracy:.2f} (at step 3)" in inspector.caption
    assert inspector.alt == f"{inspector.picture.alt} {inspector.caption}"


def test_an_axis_grows_to_hold_what_is_beyond_it(grpo):
    records, _ = grpo
    wild = [replace(records[0], reward=-0.5, entropy=3.0, clip_fraction_high=0.9), *records[1:]]
    inspector = inspect_run(wild, algorithm=GRPO)
    limits = [ax.get_ylim() for ax in inspector.picture._axes]
    assert limits[0][0] <= -0.5 and limits[0][1] == 1.02 and limits[1][1] >= 3 and limits[2][1] >= 0.9
    calm = [replace(record, entropy=0.5, clip_fraction_high=0.01, clip_fraction_low=0.02) for record in records]
    growing = list(calm)
    inspector = inspect_run(growing, algorithm=GRPO)
    assert [ax.get_ylim() for ax in inspector.picture._axes] == [(0, 1.02), (0, 0.8), (0, 0.05)]
    growing[0] = wild[0]
    inspector.refresh()
    drawn = inspector.png
    inspector._picture.freeze()  # what stands still was drawn again already
    assert inspector._picture.png() == drawn


def test_every_control_moves_its_view_and_back_again_nothing_differs(grpo):
    _, folder = grpo
    inspector = inspect_run(folder)
    start, before = pixels(inspector), views(inspector)
    inspector.step.slider.value = 3
    assert (pixels(inspector) != start).any()
    assert views(inspector) != before
    inspector.step.slider.value = 5  # has no tokens
    inspector.step.slider.value = 6
    assert (pixels(inspector) == start).all() and views(inspector) == before
    for name in ("group", "response", "token"):
        control = inspector.controls[name]
        was = control.value
        control.box.value = (was + 1) % 3 if name == "group" else 1 + was % 3
        assert (pixels(inspector) == start).all()
        group, token = views(inspector)
        assert group != before[0] and token != before[1], name
        control.box.value = was
        for other, value in (("response", inspector.response.value), ("token", inspector.token.value)):
            assert inspector.controls[other].value == value
        assert name == "group" or views(inspector) == before


def test_a_choice_beyond_the_end_of_a_shorter_response_becomes_its_last_token(grpo):
    records, folder = grpo
    inspector = inspect_run(folder)
    lengths = [response.length for response in records[5].groups[inspector.group.value].responses]
    inspector.response.slider.value = 1 + lengths.index(max(lengths))
    inspector.token.slider.value = max(lengths)
    inspector.response.slider.value = 1 + lengths.index(min(lengths))
    assert inspector.token.value == inspector.token.slider.max == min(lengths)
    assert f"token {min(lengths)} of {min(lengths)}" in views(inspector)[1]


def test_buttons_go_from_one_step_with_tokens_to_the_next(grpo, dapo):
    (_, folder), (_, other) = grpo, dapo
    inspector = inspect_run(folder)
    assert (inspector.previous_button.disabled, inspector.next_button.disabled) == (False, True)
    inspector.previous_button.click()
    assert inspector.step.value == 3
    assert (inspector.previous_button.disabled, inspector.next_button.disabled) == (True, False)
    inspector.step.slider.value = 5
    inspector.previous_button.click()
    assert inspector.step.value == 3
    inspector.next_button.click()
    assert inspector.step.value == 6
    inspector = inspect_run(other)
    steps = [inspector.step.value]
    for button in (inspector.previous_button, inspector.previous_button, inspector.next_button):
        button.click()
        steps.append(inspector.step.value)
    assert steps == [6, 4, 2, 4]


def spans(table):
    """Return the tokens of a table: their style and text."""
    return re.findall(r'<span style="([^"]+)" title="[^"]*">(.*?)<code[^>]*>(.*?)</code></span>', table)


def test_the_table_is_the_group_with_its_pushes(grpo):
    records, folder = grpo
    inspector = inspect_run(folder)
    kinds = set()
    for step in (3, 6):
        for g, group in enumerate(records[step - 1].groups):
            inspector.step.slider.value, inspector.group.box.value = step, g
            table = inspector._group_view.value
            tokens = [token for response in group.responses for token in response.tokens]
            found = spans(table)
            assert [text for _, _, text in found] == [html.escape(token.token) for token in tokens]
            hardest = max(abs(token.push) for token in tokens)
            for token, (style, mark, _) in zip(tokens, found, strict=True):
                assert ("✂" in mark) == token.clipped
                assert (f"linear-gradient({BLUE}, {BLUE})" in style) == (token.push > 0)
                assert (f"repeating-linear-gradient(90deg, {VERMILION}" in style) == (token.push < 0)
                if token.push:
                    thickness = 2 + round(3 * abs(token.push) / hardest)
                    assert f"bottom / 100% {thickness}px" in style
                kinds.add((token.clipped, token.push > 0, token.push < 0))
            assert sum("outline: 3px solid" in style for style, _, _ in found) == 1
            token = group.responses[inspector.response.value - 1].tokens[inspector.token.value - 1]
            assert f"“{token.token}”" in inspector._token_view.value
            words = text_of(table)
            right = sum(response.correct for response in group.responses)
            assert f"4 responses to {group.prompt} (right answer {group.gold}), {right} of them right" in words
            assert f"{sum(token.clipped for token in tokens)} of {len(tokens)} tokens clipped" in words
            assert "after this step's updates" in words
    assert len(kinds) >= 3


def test_the_hardest_push_has_the_thickest_line_whichever_way_it_goes(grpo):
    records, _ = grpo
    group = records[5].groups[0]
    tokens = group.responses[0].tokens[:3]
    for sign, ink in ((1, BLUE), (-1, VERMILION)):
        pushed = tuple(replace(token, push=sign * push) for token, push in zip(tokens, (0.3, -0.1, 0.0), strict=True))
        only = replace(records[5], groups=(replace(group, responses=(replace(group.responses[0], tokens=pushed),)),))
        inspector = inspect_run([only], algorithm=GRPO)
        hard, soft, none = (style for style, _, _ in spans(inspector._group_view.value))
        assert "bottom / 100% 5px" in hard and ink in hard  # 2 + 3 · .3/.3
        assert "bottom / 100% 3px" in soft and ink not in soft  # 2 + 3 · .1/.3
        assert "bottom" not in none
        assert "at most 0.300" in text_of(inspector._group_view.value)
        assert inspector.token.value == 1  # where it opens


def test_a_row_says_reward_verdict_advantage_length_and_truncation(grpo):
    records, _ = grpo
    group = records[5].groups[0]
    response = replace(group.responses[0], reward=-0.25, advantage=-1.5, length=12, truncated=True, correct=False)
    unformed = replace(group.responses[1], reward=1.0, advantage=0.0, correct=False, well_formed=False)
    changed = replace(records[5], groups=(replace(group, responses=(replace(response, well_formed=True), unformed)),))
    inspector = inspect_run([changed], algorithm=GRPO)
    table = re.findall("<tr>(.*?)</tr>", inspector._group_view.value)
    rows = [re.split(r"\s\s+", text_of(row).strip()) for row in table[1:]]
    assert rows[0][-4:] == ["wrong", "−0.25", "−1.50", "12 (cut off)"]
    assert rows[1][-4:-1] == ["not well formed", "1.00", "0.00"]


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_tokens_stay_readable_on_their_colour(grpo):
    _, folder = grpo
    inspector = inspect_run(folder)
    for g in range(3):
        inspector.group.box.value = g
        for style, _, _ in spans(inspector._group_view.value):
            *_, ground = re.search(r"background: (.*?); color", style)[1].split(" ")
            ink = re.search(r"; color: (#\w+)", style)[1]
            light, dark = sorted((luminance(ground), luminance(ink)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_the_token_in_numbers_and_in_the_formula(grpo):
    records, folder = grpo
    inspector = inspect_run(folder)
    group = records[5].groups[inspector.group.value]
    for r, response in enumerate(group.responses, 1):
        inspector.response.slider.value = r
        for t, token in enumerate(response.tokens, 1):
            inspector.token.slider.value = t
            view = inspector._token_view.value
            for formula in written_out(GRPO, token):
                assert f">{html.escape(formula)}</div>" in view
            cells = dict(re.findall(r'<th scope="row"[^>]*>(\w+)</th><td[^>]*>([^<]+)</td>', view))
            names = ("old_prob", "new_prob", "ref_prob", "ratio", "lower", "upper", "advantage", "weight", "push")
            assert tuple(cells) == names
            for name, cell in cells.items():
                value = getattr(token, name)
                assert float(cell.replace("−", "-")) == pytest.approx(value, rel=1e-2, abs=5e-4)
            assert f"response {r}, token {t} of {response.length}" in text_of(view)
            assert ("Its gradient is cut" in view) == token.clipped


def test_three_captions_are_announced(grpo):
    _, folder = grpo
    inspector = inspect_run(folder)
    for widget in (inspector._words, inspector._group_view, inspector._token_view):
        assert widget.value.count('role="status" aria-live="polite"') == 1


def test_without_tokens_the_text_stands_and_the_steps_that_have_them(grpo):
    records, folder = grpo
    inspector = inspect_run(folder)
    inspector.step.slider.value = 4
    table, token = views(inspector)
    assert not spans(table) and "Blue over" not in table
    for response in records[3].groups[inspector.group.value].responses:
        assert f">{html.escape(response.text)}</code>" in table
    assert "No tokens here; they were recorded at steps 3, 6." in table
    assert inspector.token.disabled and text_of(token).strip() == ""
    none = inspect_run([replace(r, groups=records[0].groups) for r in records], algorithm=GRPO)
    assert none.step.value == 7
    assert "No step was recorded with its tokens; details_every" in none._group_view.value
    often = inspect_run([replace(records[5], step=s) for s in range(1, 41)] + [replace(records[0], step=41)])
    often.step.slider.value = 41
    assert "recorded at steps 1, 2, 3, …, 40." in often._group_view.value


def test_up_to_eight_steps_are_named_one_by_one():
    assert _listed(range(1, LISTED + 1)) == "1, 2, 3, 4, 5, 6, 7, 8"
    assert _listed(range(1, LISTED + 2)) == "1, 2, 3, …, 9"


def test_text_of_a_model_is_text(grpo):
    records, _ = grpo
    nasty = "<script>alert(1)</script>"
    group = records[5].groups[0]
    token = replace(group.responses[0].tokens[0], token=nasty + ' "\n')
    responses = (
        replace(group.responses[0], text=nasty, tokens=(token,)),
        replace(group.responses[1], text=nasty, tokens=()),
    )
    record = replace(records[5], groups=(replace(group, prompt=nasty, gold=nasty, responses=responses),))
    named = replace(GRPO, name=nasty)
    inspector = inspect_run([record], [record], algorithm=named, other_algorithm=replace(DAPO, name=nasty))
    shown = "".join([*views(inspector), inspector._what_differs.value, inspector._words.value, inspector._image.value])
    assert "<script" not in shown
    assert html.escape(nasty) in inspector._group_view.value
    assert "␣&quot;↵" in inspector._token_view.value or "␣&quot;↵" in inspector._group_view.value


def test_from_disk_it_shows_what_it_shows_of_the_records(grpo):
    records, folder = grpo
    shown = [inspect_run(source, algorithm=GRPO) for source in (records, str(folder), folder, RunFolder.open(folder))]
    for inspector in shown[1:]:
        assert views(inspector) == views(shown[0])
        assert inspector.png == shown[0].png and inspector.caption == shown[0].caption


def test_a_saved_notebook_has_the_picture(grpo):
    _, folder = grpo
    inspector = inspect_run(folder)
    data, _ = inspector._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]) == inspector.png
    assert data["text/plain"] == inspector.caption


def test_two_runs_side_by_side(grpo, dapo):
    (first, a), (second, b) = grpo, dapo
    inspector = inspect_run(a, b)
    for metric in ("reward", "clip_fraction_high"):
        solid, dashed = (line(inspector, number, metric) for number in (0, 1))
        assert (solid.get_linestyle(), dashed.get_linestyle()) == ("-", "--")
        assert solid.get_color() == dashed.get_color()
        np.testing.assert_allclose(dashed.get_ydata(), [getattr(record, metric) for record in second])
    assert [text.get_text() for text in inspector.picture._names] == ["1 (GRPO)", "2 (DAPO)"]
    assert [list(ticks.get_xdata()) for ticks in inspector.picture._ticks] == [[2, 3, 4, 6]] * 3
    table, token = (text_of(view) for view in views(inspector))
    g = inspector.group.value
    for name, records in (("1 (GRPO)", first), ("2 (DAPO)", second)):
        assert f"{name}, step 6, group {g + 1} of 3: 4 responses to {records[5].groups[g].prompt}" in table
        assert f"{name}, response {inspector.response.value}, token" in token
        assert f"{name}: reward {records[5].reward:.2f}" in inspector.caption
    assert len(spans(inspector._group_view.value)) == sum(
        response.length for records in (first, second) for response in records[5].groups[g].responses
    )
    words = text_of(inspector._what_differs.value)
    assert "What differs from 1 (GRPO) to 2 (DAPO)" in words
    for row in differences(GRPO, DAPO):
        assert f"{row.slot} : {row.before} → {row.after}: {row.why}" in words
    assert "seed : 0 → 1" in words and "steps" not in words
    inspector.previous_button.click()  # to step 4, where the second run alone has tokens
    assert inspector.step.value == 4
    assert "1 (GRPO)" not in text_of(views(inspector)[1]) and "2 (DAPO)" in text_of(views(inspector)[1])


def test_a_run_that_ended_earlier_has_no_such_step(grpo):
    records, _ = grpo
    inspector = inspect_run(records, records[:3], algorithm=GRPO, other_algorithm=GRPO)
    assert "2 (GRPO) has no step 6." in text_of(inspector._group_view.value)
    assert "2 (GRPO) has no such step" in inspector.caption
    assert "do not differ" in inspector._what_differs.value


def test_a_rule_of_one_s_own_needs_its_algorithm_for_the_formula_alone(mine):
    _, folder = mine
    inspector = inspect_run(folder)
    assert "give what trained this run: inspect_run(run, algorithm=…)" in inspector._token_view.value
    assert "J = " not in inspector._token_view.value
    assert spans(inspector._group_view.value) and "Mine: reward" in inspector.caption
    again = inspect_run(folder, algorithm=replace(GRPO, name="Mine", bounds=half, kl=None))
    assert "J = min(ratio · advantages" in again._token_view.value
    assert "0.500" in again._token_view.value and "1.333" in again._token_view.value
    with pytest.raises(ValueError, match="was trained with another one"):
        inspect_run(folder, algorithm=GRPO)


def test_the_wrong_algorithm_for_a_list_of_records_is_noticed(grpo):
    records, _ = grpo
    shown = inspect_run(records, algorithm=replace(GRPO, kl=replace(GRPO.kl, beta=5.0)))._token_view.value
    assert "the run was trained with another algorithm" in shown and "J = " not in shown


def test_what_cannot_be_inspected_says_why(tmp_path, grpo):
    _, folder = grpo
    with pytest.raises(FileNotFoundError, match="holds no run"):
        inspect_run(tmp_path)
    with pytest.raises(
        ValueError, match="run must be a run folder, a list of step records or a training panel; got int"
    ):
        inspect_run(7)
    with pytest.raises(ValueError, match="keeps no records of its own"):
        inspect_run(train(load_policy("chain", device="cpu"), Chain(), GRPO, SETTINGS))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"config[.]json lacks task; it is damaged or was written by another version"):
        inspect_run(tmp_path)
    going_on = resume(shutil.copytree(folder, tmp_path / "copy"), steps=9, device="cpu")
    assert inspect_run(going_on).step.value == 6  # a run in progress, by its folder


def test_a_list_that_grows_is_followed_on_refresh():
    training = train(load_policy("chain", device="cpu"), Chain(), GRPO, SETTINGS)
    records = []
    inspector = inspect_run(records, algorithm=GRPO)
    assert inspector.caption == "No step yet." and views(inspector) == ("", "")
    assert inspector.step.disabled and inspector.token.disabled
    for record in training:
        records.append(record)
        inspector.refresh_button.click()
        expected = max((s for s in (3, 6) if s <= record.step), default=record.step)
        assert inspector.step.value == expected
        assert inspector.step.slider.max == record.step
        assert list(line(inspector, 0, "reward").get_xdata()) == list(range(1, record.step + 1))
        assert inspector.token.disabled == (record.step < 3)
        if record.step == 3:
            assert chosen(inspector) == strongest(record)


def test_who_looks_at_an_earlier_step_stays_there(grpo):
    records, _ = grpo
    growing = list(records[:3])
    inspector = inspect_run(growing, algorithm=GRPO)
    inspector.step.slider.value = 2
    growing += records[3:]
    inspector.refresh()
    assert inspector.step.value == 2 and inspector.step.slider.max == 7


def test_who_follows_the_newest_step_keeps_the_token_that_was_chosen(grpo):
    """The strongest push is shown at first, and not again over what a person looks at."""
    records, _ = grpo
    growing = list(records[:3])
    inspector = inspect_run(growing, algorithm=GRPO)
    place = next(
        place for place in ((1, 2, 1), (1, 2, 2)) if place not in (strongest(records[2]), strongest(records[5]))
    )
    inspector.group.box.value = place[0]
    inspector.response.slider.value, inspector.token.slider.value = place[1:]
    growing += records[3:]
    inspector.refresh()
    assert (inspector.step.value, chosen(inspector)) == (6, place)


def test_a_folder_that_another_process_writes_is_read_again(grpo, tmp_path):
    _, folder = grpo
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "config.json").write_text((folder / "config.json").read_text())
    inspector = inspect_run(copy)
    assert inspector.caption == "No step yet."
    for name in ("metrics", "samples"):
        lines = (folder / f"{name}.jsonl").read_text().splitlines(keepends=True)
        (copy / f"{name}.jsonl").write_text("".join(lines[:3]) + lines[3][:40])
    inspector.refresh()
    assert inspector.step.value == 3 and "Step 3 of 7." in inspector.caption
    (copy / "samples.jsonl").write_text('{"step": 1}\n')
    inspector.refresh()
    assert "cannot be read" in inspector.caption and "samples.jsonl, line 1 lacks groups" in inspector.caption


def test_a_panel_is_followed_while_it_trains():
    settings = replace(SETTINGS, steps=9, num_prompts=4)
    panel = training_panel(settings=settings)
    inspector = inspect_run(panel)
    assert inspector.caption == "No step yet."
    panel.start()
    panel.wait(60)
    assert inspector.step.value == 9 and inspector.step.slider.max == 9
    np.testing.assert_allclose(line(inspector, 0, "reward").get_ydata(), [r.reward for r in panel.records])
    assert "J = min(ratio" in inspector._token_view.value
    inspector.step.slider.value = 2
    panel.controls["seed"].slider.value = 3
    panel.start()
    panel.wait(60)
    np.testing.assert_allclose(line(inspector, 0, "reward").get_ydata(), [r.reward for r in panel.records])


def test_a_token_s_name_for_white_space(grpo):
    records, _ = grpo
    group = records[5].groups[0]
    tokens = tuple(replace(group.responses[0].tokens[0], token=text) for text in (" a", "\n", "\t", ""))
    responses = (replace(group.responses[0], tokens=tokens),)
    record = replace(records[5], groups=(replace(group, responses=responses),))
    inspector = inspect_run([record], algorithm=GRPO)
    assert [text for _, _, text in spans(inspector._group_view.value)] == ["␣a", "↵", "⇥", "∅"]


def test_one_move_is_one_redraw(grpo, monkeypatch):
    _, folder = grpo
    inspector = inspect_run(folder)
    inspector.group.box.value = 2
    drawn = []
    show = inspector.show
    monkeypatch.setattr(inspector, "show", lambda **words: (drawn.append(words), show(**words)))
    inspector.step.slider.value = 3  # has other prompts, so the dropdown gets other names
    assert len(drawn) == 1
    assert inspector.group.value == 2


def test_a_run_with_a_critic_shows_what_it_said_before_each_token(tmp_path):
    settings = replace(SETTINGS, num_prompts=8, group_size=1, steps=3, details_every=3)
    records, folder = run(PPO, tmp_path / "ppo", settings)
    inspector = inspect_run(folder)
    inspector.group.box.value, inspector.response.slider.value = 0, 1
    tokens = records[2].groups[0].responses[0].tokens
    for place, token in enumerate(tokens, 1):
        inspector.token.slider.value = place
        rows = dict(re.findall(r"<th[^>]*>(\w+)</th><td[^>]*>([^<]*)</td>", inspector._token_view.value))
        assert float(rows["value"].replace("−", "-")) == pytest.approx(token.value, abs=1e-3)
        assert float(rows["advantage"].replace("−", "-")) == pytest.approx(token.advantage, abs=1e-3)
    assert len({token.advantage for token in tokens}) > 1


def test_a_run_on_pairs_has_no_groups_to_look_into(tmp_path):
    settings = PairSettings(steps=1, num_pairs=8, batch_size=8)
    training = train(load_policy("chain", device="cpu"), Chain(), DPO, settings, out=tmp_path / "dpo")
    records = list(training)
    for source in (tmp_path / "dpo", records):
        with pytest.raises(ValueError, match="run learned from preference pairs and sampled no groups to look into"):
            inspect_run(source)


def test_steps_are_whole_numbers_on_the_axes(grpo):
    picture = inspect_run(grpo[1]).picture
    for ax in picture.figure.axes:
        assert all(float(tick).is_integer() for tick in ax.get_xticks())
