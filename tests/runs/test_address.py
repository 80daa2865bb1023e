"""The playground's setting is its page's address, and an address sets it; what an address asks for in vain is said."""

from pathlib import Path

import pytest

from rlviz.algorithms import DAPO, GRPO
from rlviz.runs.playground import SENTENCE, TITLE, playground
from rlviz.web import HERE, greeting
from small_models.tasks import Sort

pytestmark = pytest.mark.usefixtures("axes_stay")

ADDRESS = "task=sort&algorithm=DAPO&seeds=2&steps=40&lr=0.001&group_size=4&eps_high=0.4&beta=0.1"


def test_an_address_and_back():
    widget = playground()
    assert widget.address == widget._page.address == ""
    widget._page.wanted = ADDRESS
    setting = widget.setting
    assert isinstance(setting.task, Sort) and setting.seeds == 2
    assert (setting.settings.steps, setting.settings.lr, setting.settings.group_size) == (40, 0.001, 4)
    assert setting.algorithm.bounds == DAPO.with_parameters(eps_high=0.4).bounds and setting.algorithm.kl.beta == 0.1
    assert sorted(widget._page.address.split("&")) == sorted(ADDRESS.split("&"))
    other = playground()
    other._page.wanted = widget._page.address
    assert other.setting == setting
    widget.reset()
    assert widget._page.address == ""


def test_what_a_call_set_is_no_part_of_the_address():
    widget = playground("trip", algorithm=GRPO.with_parameters(eps_high=0.5), seeds=3)
    assert widget.address == ""
    widget.controls["eps_high"].slider.value = 0.2
    assert widget.address == "eps_high=0.2"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("bogus=1", "bogus"),
        ("steps=<script>", "steps"),
        ("steps=1000000", "steps"),
        ("task=nowhere", "task"),
        ("lr=0.123", "lr"),
        ("algorithm=DAPO&max_ratio=3", "max_ratio"),
    ],
)
def test_what_cannot_be_is_said(address, said):
    widget = playground()
    widget._page.wanted = address
    assert widget.caption.startswith(f"The address asks for a {said} that there is not.")
    assert "<script>" not in widget._words.value


def test_advanced_controls_are_folded_until_they_are_asked_for():
    widget = playground()
    boxes = [box for part in widget.children for box in getattr(part, "children", ())]
    (advanced,) = [box for box in boxes if widget.controls["lr"].row in getattr(box, "children", ())]
    assert advanced.layout.display == "none"
    widget._more.value = True
    assert advanced.layout.display is None
    widget._more.value = False
    widget._page.wanted = "steps=40"
    assert advanced.layout.display == "none"
    widget._page.wanted = "group_size=4"
    assert advanced.layout.display is None


def test_the_page_greets_with_the_words_of_the_panel():
    template = HERE / "voila" / "templates" / "playground" / "spinner.macro.html.j2"
    text = template.read_text(encoding="utf-8")
    assert TITLE in text and SENTENCE in text
    told = greeting()
    assert "export" not in told["script"] and "import " not in told["script"]
    assert "</script" not in told["script"] + told["run"]
    assert Path(HERE / "greeting.js").read_text(encoding="utf-8").splitlines()[-1] in told["script"]
