"""Numbers and rules that the course's prose states are what the library computes, and what its committed outputs print."""

import ast
import re
from pathlib import Path

import nbformat
import pytest
import torch

from rlviz import DAPO, DCPO, GRPO, GSPO
from rlviz.algorithms import ALGORITHMS
from rlviz.lessons.puzzles import run_of
from rlviz.pictures import explore_overlong
from rlviz.pieces.kl import k1
from rlviz.pieces.shaping import SoftOverlongPunishment
from rlviz.study.claims import find_claim
from tests.private_words import PRIVATE

ROOT = Path(__file__).parent.parent
COURSE = ROOT / "notebooks"
SHEETS = {
    "cheatsheet.md": {
        "mean, mean": "mean of responses' means",
        "sum, mean": "sum of responses' means",
        "tokens, mean": "token mean",
        "tokens, constant": "sum / constant",
    },
    "cheatsheet.zh.md": {
        "mean, mean": "先回答内平均，再对回答平均",
        "sum, mean": "先回答内平均，再对回答求和",
        "tokens, mean": "词元平均",
        "tokens, constant": "求和除以常数",
    },
}


def lesson(name):
    """Return a lesson's text and what its cells printed."""
    (file,) = COURSE.glob(f"[0-9]*_{name}.ipynb")
    cells = nbformat.read(file, 4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return text, "".join(output.text for output in outputs if output.output_type == "stream")


def rule(aggregate):
    """Return which mean an aggregation is, by the weights that it gives two responses of 2 and 8 tokens."""
    mask = torch.arange(8) < torch.tensor([[[2], [8]]])
    weights = aggregate(mask)[0]
    short, long = weights.sum(-1).tolist()
    if short == pytest.approx(long):  # each token has 1 / its response's length
        return {1.0: "sum, mean", 0.5: "mean, mean"}[short]
    assert weights[0, 0] == weights[1, 0]
    return "tokens, mean" if short + long == pytest.approx(1) else "tokens, constant"


@pytest.mark.parametrize("sheet", SHEETS)
def test_a_cheat_sheet_says_which_mean_each_algorithm_takes(sheet):
    rows = [line.strip("| ").split(" | ") for line in (COURSE / "teaching" / sheet).read_text("utf-8").splitlines()]
    said = {cells[0]: cells[-1] for cells in rows if len(cells) == 4}
    aggregates = {
        each.name: each.aggregate for each in ALGORITHMS if hasattr(each, "aggregate") and each.name != "GSPO"
    }
    known = {name: SHEETS[sheet][rule(aggregate)] for name, aggregate in aggregates.items() if name in said}
    assert len(known) >= 6
    assert {name: said[name] for name in known} == known


@pytest.mark.parametrize("sheet", SHEETS)
def test_a_cheat_sheet_has_the_widths_of_limits_that_are_not_grpo_s(sheet):
    text = (COURSE / "teaching" / sheet).read_text("utf-8")
    said = re.findall(r"text\{low\}\} = ([.\d]+)\$[,，] ?\$\\varepsilon_\{\\text\{high\}\} = ([.\d]+)\$", text)
    due = [(each.bounds.eps_low, each.bounds.eps_high) for each in (DAPO, GSPO, DCPO)]
    assert [(float(low), float(high)) for low, high in said] == due


def test_k1_in_the_loss_pulls_nowhere_at_the_first_update_and_later_away_from_the_policy_that_sampled():
    old, ref = (torch.tensor(p).double().log() for p in ((0.6, 0.3, 0.1), (0.2, 0.5, 0.3)))
    logits = old.clone().requires_grad_()
    pulls, distances = [], []
    for _ in range(3):  # updates on tokens of the old policy, each of which comes as often as it was likely then
        logp = logits.log_softmax(0)
        (slope,) = torch.autograd.grad((old.exp() * k1(logp, ref)).sum(), logits)
        pulls.append(slope.norm().item())
        distances.append((old.exp() * (old - logp)).sum().item())
        step = slope if len(pulls) > 1 else torch.tensor([0.1, 0.0, 0.0])  # the first update is the reward's
        logits = (logits - step).detach().requires_grad_()
    assert pulls[0] < 1e-12 < pulls[1] and distances[0] < distances[1] < distances[2]
    for page, words in (
        ("cheatsheet.md", r"pulls nowhere at the first update on a rollout, and away from $\pi_{\text{old}}$ at later"),
        ("cheatsheet.zh.md", r"第一次更新，平均梯度为 0；之后的更新会把策略推离 $\pi_{\text{old}}$"),
        (
            "slides/3.md",
            "0 at the first update on a rollout; at later ones it pushes away from the policy that sampled",
        ),
    ):
        assert words in (COURSE / "teaching" / page).read_text("utf-8")


def change_when_trained(p, rewards, step=1e-6):
    """Return how the entropy changes per unit of the learning rate, by a small step up the exact gradient of the mean reward."""
    logits = p.log().requires_grad_()
    (slope,) = torch.autograd.grad((logits.softmax(0) * rewards).sum(), logits)
    before, after = (torch.special.entr(q).sum() for q in (p, (logits + step * slope).softmax(0)))
    return ((after - before) / step).item()


def test_the_slides_say_when_entropy_falls():
    """To first order by −Cov(log π, πA): also where a likely action is good, entropy may rise."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        p, rewards = (torch.randn(2, 5, generator=generator).double()).unbind()
        p = p.softmax(0)
        step = p * (rewards - (p * rewards).sum())
        covariance = (p * p.log() * step).sum() - (p * p.log()).sum() * (p * step).sum()
        assert change_when_trained(p, rewards) == pytest.approx(-covariance.item(), abs=1e-5)
    text = (COURSE / "teaching/slides/3.md").read_text("utf-8")
    assert r"$dH = -\eta\, \text{Cov}_\pi(\log \pi, \pi A)$" in text
    policy, rewards, change = re.search(
        r"= \(([\d., ]+)\) and rewards \(([\d, ]+)\) entropy rises, .dH = \+([.\d]+)", text
    ).groups()
    p, rewards = (torch.tensor(ast.literal_eval(f"[{numbers}]"), dtype=torch.double) for numbers in (policy, rewards))
    assert p.argmax() != rewards.argmax() and p.sum().item() == pytest.approx(1)
    assert round(change_when_trained(p, rewards), 3) == float(change)


CITED = {
    "reward_hacking": ("reward_hacking", "2402.03300"),
    "what_did_it_learn": ("sharpening", "2402.03300", "2504.11343", "2506.02208"),
}


@pytest.mark.parametrize("name", CITED)
def test_a_lesson_cites_the_papers_that_its_claim_tests_and_those_that_found_it_before(name):
    text = lesson(name)[0]
    claim, *others = CITED[name]
    papers = {*re.findall(r"\d{4}\.\d{5}", find_claim(claim).source), *others}
    assert {paper for paper in papers if f"arxiv.org/abs/{paper}" not in text} == set()


def test_no_text_claims_that_others_left_out_what_they_have():
    claims = re.compile(r"every(?:body|one) forgets|no (?:paper|course|lesson) (?:shows|says|reports|compares)", re.I)
    assert [(file.name, place) for file, place, text in prose() if claims.search(" ".join(text.split()))] == []


def test_the_slides_say_how_narrow_gspo_s_limits_are_and_how_many_tokens_the_lesson_clips():
    slides = (COURSE / "teaching/slides/2.md").read_text("utf-8")
    narrower = sorted(
        round(getattr(GRPO.bounds, side) / getattr(GSPO.bounds, side)) for side in ("eps_low", "eps_high")
    )
    assert "{} to {} times narrower".format(*narrower) in slides
    printed = re.search(r"GSPO paper's +([\d.]+) +([\d.]+) +([\d.]+) ", lesson("gspo")[1])
    clipped = sorted(round(float(share)) for share in printed.groups())
    assert f"lesson 08 it clips {clipped[0]} to {clipped[-1]} % of the tokens" in slides


def test_the_lesson_on_dapo_weighs_the_punishment_as_the_paper_does():
    text = lesson("dapo")[0]
    rewards, lengths = torch.tensor([[1.0]]), torch.tensor([[15]])
    paper = SoftOverlongPunishment(max_length=16, cache=4)(rewards, lengths).item()  # of rewards 1 and −1
    ours = SoftOverlongPunishment(max_length=16, cache=4, factor=0.5, floor=-0.5)(rewards, lengths).item()
    assert ours == (paper + 1) / 2  # the same place between right and wrong
    assert f"a right answer of 15 tokens has 1 − ½ · ¾ = {ours:g}" in text
    names = explore_overlong().names()
    (fifteen,) = (names.array("lengths") == 15).nonzero()[0]
    after, signed = (names.array(name)[fifteen] for name in ("after", "signed"))
    here, there = (f"{abs(A):.2f}".lstrip("0") for A in (after, signed))
    assert after < 0 < signed
    assert f"A = −{here}" in text and f"A = +{there}" in text


def test_lesson_00_says_how_much_was_chosen_and_how_much_sharpened():
    text, printed = lesson("start_here")
    found = re.findall(r"sums in ([\d.]+) of the answers, right ([\d.]+); without them right ([\d.]+)", printed)
    (share, right, guessed), (later, sharpened, _) = [[float(number) for number in row] for row in found]
    chosen = later * right + (1 - later) * guessed  # had only the share of answers with sums changed
    assert right < sharpened and share < later
    plain = " ".join(text.split())
    for number, sentence in (
        (right, "right {} of the time"),
        (guessed, "without them {}"),
        (share, "from {} of all answers"),
        (later, "to {}."),
        (chosen, "would make {} right"),
        (sharpened, "are right {} of the time afterwards"),
    ):
        assert sentence.format(f"{number:.2f}") in plain


def test_dead_groups_of_two_in_lesson_00():
    run = run_of("start_here")
    success = float(re.search(r"for p = (\.\d+)", run.why[run.does])[1])
    dead = f"{success**2 + (1 - success) ** 2:.2f}".lstrip("0")
    assert f"for p = .34: {dead}." in run.why[run.does]
    solution = nbformat.read(COURSE / "solutions/00_start_here.ipynb", 4).cells
    assert f"for p = .34: {dead}." in str([cell.get("outputs") for cell in solution])


def test_what_top_p_leaves_out_in_the_lesson_on_entropy():
    text = lesson("keeping_entropy")[0]
    policy = (0.6, 0.3, 0.1)
    sampled = [p / (0.6 + 0.3) for p in policy[:2]]  # the smallest set of probability .9, and nothing else
    written = ", ".join(f"{p:.3f}".removeprefix("0") for p in sampled)
    assert f"of .6, .3, .1, top-p 0.9 samples {written}, 0." in text
    weights = {f"{p / q:.3g}".removeprefix("0") for p, q in zip(policy, sampled, strict=False)}  # of π over the sampler
    assert len(weights) == 1
    assert f"the weight w = {weights.pop()} of what was sampled is missing" in text
    assert "ratios are wrong" not in text


def prose():
    """Yield all that a reader of the course or of the library's words may read: a place, and its text on one line.

    Markdown but for the history of changes; every cell of every notebook; each string in the code, of which docstrings,
    captions and errors are some.
    """
    for file in sorted(ROOT.rglob("*.md")):
        if file.name != "CHANGELOG.md" and not any(part.startswith(".") for part in file.relative_to(ROOT).parts):
            yield file, "text", file.read_text("utf-8")
    for file in sorted(COURSE.rglob("*.ipynb")):
        for place, cell in enumerate(nbformat.read(file, 4).cells):
            yield file, f"cell {place}", cell.source
    for file in sorted([*(ROOT / "rlviz").rglob("*.py"), *(ROOT / "small_models").rglob("*.py")]):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield file, f"line {node.lineno}", node.value


def test_no_text_has_words_that_only_their_author_understands():
    private = re.compile(rf"(?<!\w)(?:{'|'.join(PRIVATE)})(?!\w)", re.I)
    texts = [(file, place, " ".join(text.split())) for file, place, text in prose()]
    assert len({file for file, _, _ in texts}) > 200  # lessons, solutions, teaching, the library
    found = [
        f"{file.relative_to(ROOT)}, {place}: …{text[max(0, one.start() - 40) : one.end() + 40]}… (see tests/private_words.py)"
        for file, place, text in texts
        for one in private.finditer(text)
    ]
    assert found == []
