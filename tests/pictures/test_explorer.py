"""An explorer of a rule of one's own, of an algorithm beside with other numbers, and in a notebook."""

from dataclasses import replace

import pytest

import rlviz
from rlviz.algorithms import DAPO, GRPO, GSPO
from rlviz.page.picture import Say
from rlviz.pictures.catalogue import find_explorer
from rlviz.pieces.surrogate import DualClip


@pytest.mark.parametrize("name", ["clip", "loop"])
def test_a_rule_of_one_s_own_comes_first_and_is_called_mine(name):
    def my_bounds(old_logp):
        room = 0.2 / old_logp.exp() ** 0.5
        return (1 - room).clamp(min=0.0), 1 + room

    explorer = find_explorer(name)(replace(GRPO, name="Mine", bounds=my_bounds))
    assert next(iter(explorer.page_payload()["picture"]["controls"]["algorithm"]["options"])) == "Mine"
    assert explorer.page_payload()["variants"][explorer.key()]["program"] is not None  # a page computes it
    assert explorer.setting.startswith("Mine")


def test_a_rule_of_one_s_own_is_traced_or_computed_by_the_kernel():
    def wider(old_logp):
        return 0.5 + 0 * old_logp, 1.5 + 0 * old_logp

    def by_size(old_logp):
        if float(old_logp.exp().mean()) == 1:
            raise RuntimeError("not here")
        return (0.5, 1.5) if float(old_logp.exp().mean()) < 0.5 else (0.8, 1.2)

    for rule, is_traced in ((wider, True), (by_size, False)):
        explorer = rlviz.explore_clip(replace(GRPO, name="Mine | <b>", bounds=rule), old_prob=0.1)
        variant = explorer.page_payload()["variants"]["Mine ¦ <b>"]
        assert (variant["program"] is not None) == is_traced
        assert explorer.names().one("good_end") == pytest.approx(1.5)
        answer = explorer._answer_page("Mine ¦ <b>", {**explorer.values, "old_prob": 0.9})
        assert float(answer["outputs"]["upper"]["data"][0]) == (1.5 if is_traced else 1.2)
    answer = explorer._answer_page(
        "Mine ¦ <b>", {**explorer.values, "old_prob": 1.0}
    )  # a rule that raises is a sentence
    assert answer == {"why": "Not possible: RuntimeError: not here"}
    why = variant["why"]
    assert "a number is read out of a tensor" in why and "float(old_logp.exp().mean()) == 1" in why
    assert "<b>" not in explorer.html().replace("&lt;b&gt;", "")  # packed, or escaped


def test_an_algorithm_beside_keeps_its_own_numbers_while_the_sliders_move():
    narrow, wide = GRPO.with_parameters(eps_low=0.02, eps_high=0.02), GRPO.with_parameters(eps_high=0.5)
    explorer = rlviz.explore_clip(GRPO, beside=(narrow, wide, GRPO))
    assert explorer.values["beside"] == ["GRPO~eps_low=0.02~eps_high=0.02", "GRPO~eps_high=0.5", "GRPO"]
    for eps_high in (0.2, 0.4):
        explorer.set(eps_high=eps_high)
        names = explorer.names()
        assert [names.one(f"{who}upper") for who in ("", "b1_", "b2_", "b3_")] == [1 + eps_high, 1.02, 1.5, 1.2]
        assert [names.fill(f"{{b{i}_name}}") for i in (1, 2, 3)] == [
            "GRPO, ε low 0.02, ε high 0.02", "GRPO, ε high 0.5", "GRPO, default",
        ]  # fmt: skip
    assert len(explorer.spec.members) == len(explorer._members)  # no new algorithm
    other = replace(narrow, surrogate=DualClip(c=3.0))  # has the numbers, and is another rule
    assert rlviz.explore_clip(beside=(other,)).values["beside"] == ["the other GRPO"]
    far = GSPO.with_parameters(eps_high=0.2)  # further than a slider of GSPO's goes, so an algorithm of its own
    beyond = rlviz.explore_clip(beside=(far,))
    assert beyond.values["beside"] == ["the other GSPO"] and beyond.names().one("b1_upper") == 1.2
    explorer.set(algorithm=DAPO)  # whose numbers are not those of the sliders before
    assert explorer.names().fill("{b3_name}") == "GRPO" and explorer.names().one("upper") == 1.28
    assert rlviz.explore_length(DAPO).names().fill("{b1_name}") == "DAPO"  # a picture that moves no ε: there is but one


def test_a_setting_is_the_algorithm_its_numbers_and_what_is_not_as_it_begins():
    explorer = rlviz.explore_clip(eps_high=0.28, old_prob=0.1)
    setting = "GRPO · ε low 0.2 · ε high 0.28 · old probability 0.1"
    assert explorer.setting == setting and rlviz.explore_coin().setting == ""
    assert [text.get_text() for text in explorer.figure().texts] == ["When does clipping stop a token?", setting]


def test_what_a_notebook_shows_and_saves(monkeypatch):
    outputs: list = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: outputs.append(data))
    explorer = rlviz.explore_clip()
    explorer._ipython_display_()
    assert {"application/vnd.jupyter.widget-view+json", "image/png", "text/plain"} <= set(outputs[0])
    monkeypatch.setenv("RLVIZ_FROZEN", "1")
    explorer._ipython_display_()
    live, image = outputs[1:]
    assert "text/html" in live and "image/png" not in live and set(image) == {"image/png", "text/plain"}
    assert image["text/plain"] == explorer.alt and explorer.conclusion in explorer.alt


def test_a_picture_has_one_answer():
    with pytest.raises(ValueError, match=r"conclusion must be at most 2 sentences.*got 3"):
        replace(rlviz.explore_clip().spec.picture, conclusion=(Say("Yes.", "lower"), Say("No."), Say("Perhaps.")))
