"""Formulas: rows written by hand from the papers, the numbers of each text, marks of differences, and refusals."""

import inspect
import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from html.parser import HTMLParser

import pytest
import torch
from nbconvert.filters import markdown2html

from rlviz import DAPO, DCPO, DR_GRPO, GRPO, GRPO_PROCESS, PPO_PENALTY
from rlviz.algorithms import ALGORITHMS, DPO_LINEAR, REINFORCE_PP, RELATIVES, ActorCritic, command_name, formulas
from rlviz.algorithms.notation import LaTeX, Unicode, atoms, typeset
from rlviz.algorithms.slots import numbers_in
from rlviz.pieces.formula import FUNCTIONS, formula_of, parse_formula, terms_of
from rlviz.pieces.kl import KLInLoss, KLToOld, ProportionalController, k3_plus
from rlviz.pieces.preference import SigmoidPreference, mean_log_ratio
from rlviz.pieces.ratios import ratio_to_sampler
from rlviz.pieces.shaping import LengthCost, OverlongFilter
from rlviz.pieces.surrogate import SequenceMask, SoftGate, unclipped
from rlviz.pieces.words import explained

EVERY = (*ALGORITHMS, *RELATIVES, GRPO_PROCESS, DPO_LINEAR)


def rows_of(algorithm):
    return [row for (row,) in formulas(algorithm).rows]


def row_texts(algorithm, against):
    """Return (slot, algorithm, row) of each row, the slot in all of its rows."""
    texts, slot = [], ""
    for begins, name, row in formulas(algorithm, against=against).lines():
        slot = begins or slot
        texts.append((slot, name, " ".join(row.parts(tex=False))))
    return texts


# from ALGORITHMS.md §1 to §3b and the papers, by hand: r, A, R, m for r_{i,t}, A_{i,t}, R_i, m_{i,t}; S is the groups of the sum.
# In front of J stands Σ_g∈S Σ_i,t m; rows that are left out are GRPO's. An algorithm begins at the margin.
CLIPPED = "min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)"
K3 = "β·(π_ref / π_θ − log(π_ref / π_θ) − 1)"
GROUP = "(R − mean(R)) / (std(R) + ε)"
ROWS = """
PPO: J = (1 / Σ_j |o_j|) · [CLIPPED]; A = whiten(A_raw); A_raw = δ_t + γ·λ·A_raw,t+1; δ_t = R_t + γ·V_t+1 − V_t;
    R_t = R·[t last]; R_t ← R_t − β·log(π_old / π_ref); loss = −J + c_V·aggregate(L_value);
    L_value = max((V − returns)², (clip(V, V_old − ε_value, V_old + ε_value) − returns)²) / 2;
    values = ε_low = 0.2, ε_high = 0.2, γ = 1, λ = 0.95, β = 0.02, ε_value = 0.2, c_V = 0.5
PPO-Penalty: J = (1 / Σ_j |o_j|) · [r·A − β·(π_θ / π_old − log(π_θ / π_old) − 1)]; A = whiten(A_raw); ℓ = 0; u = ∞;
    A_raw = δ_t + γ·λ·A_raw,t+1; δ_t = R_t + γ·V_t+1 − V_t; R_t = R·[t last]; loss = −J + c_V·aggregate(L_value);
    L_value = max((V − returns)², (clip(V, V_old − ε_value, V_old + ε_value) − returns)²) / 2
DPO: loss = mean over pairs of (−log σ(R_w − R_l)); R(o) = β·log(π_θ / π_ref); values = β = 0.1
GRPO: J = (1 / (B·|o_i|)) · [CLIPPED − K3]; values = ε_low = 0.2, ε_high = 0.2, ε = 1e−06, β = 0.04
Dr.GRPO: J = (1 / (B·max_length)) · [CLIPPED]; A = R − mean(R); values = ε_low = 0.2, ε_high = 0.2, max_length = 16
DAPO: J = (1 / Σ_j |o_j|) · [CLIPPED]; R ← R + clip(−factor·(|o_i| − (max_length − cache)) / cache, floor, 0);
    S = sampled_until_P({g : max R > min R}, max_rounds);
    values = ε_low = 0.2, ε_high = 0.28, ε = 1e−06, max_length = 16, cache = 4, factor = 1, floor = −1, max_rounds = 10
Lite PPO: J = (1 / Σ_j |o_j|) · [CLIPPED]; A = (R − mean(R)) / (std_batch(R) + ε)
DUPO: J = (1 / Σ_j |o_j|) · [CLIPPED]; S = repeated_to_P({g : max R > min R}); R ← answer·correct + format·well_formed
GSPO: J = (1 / (B·|o_i|)) · [CLIPPED]; r = exp(1/|o_i| Σ_t log(π_θ / π_old));
    values = ε_low = 0.0003, ε_high = 0.0004, ε = 1e−06
GSPO-token: J = (1 / (B·|o_i|)) · [CLIPPED]; r = sg[exp(1/|o_i| Σ_t log(π_θ / π_old))]·(π_θ / sg[π_θ])
DCPO: J = (1 / |o_i|) · [max(min(r·A, clip(r, ℓ, u)·A), c·min(A, 0))]; ℓ = 0.5 + 0.5·√(max(1 − 4·ε_low / π_old, 0));
    u = min(0.5 + 0.5·√(1 + 4·ε_high / π_old), max_ratio); A = SA_new if |SA_new| < |SA_total|, else SA_total;
    SA_new = (1 − 1 / visits)·A_new + (1 / visits)·A_total; SA_total = (1 / visits)·A_new + (1 − 1 / visits)·A_total;
    A_new = (R − mean(R)) / std(R, ddof); A_total = (R − mean_so_far) / std_so_far(R, ddof);
    values = ε_low = 0.16, ε_high = 0.2, max_ratio = 10, c = 10, ddof = 0
RLOO: J = (1 / (B·max_length)) · [r·A]; A = (R − mean(R))·G / (G − 1); ℓ = 0; u = ∞; R ← R − Σ_t β·log(π_old / π_ref)
REINFORCE++: J = (1 / Σ_j |o_j|) · [CLIPPED]; A = whiten(R − β·Σ_t'≥t log(π_old / π_ref))
CISPO: J = (1 / Σ_j |o_j|) · [sg[clip(r, 0, max_ratio)]·A·log r]
GMPO: J = (1 / (B·|o_i|)) · [exp(1/|o_i| Σ_t log clipped)·A]; clipped = min(r, 1 + ε_high) if A > 0, else max(r, 1 − ε_low)
SAPO: J = (1 / (B·|o_i|)) · [(4 / τ)·σ(τ·(r − 1))·A]; ℓ = 0; u = ∞; τ = positive if A > 0, else negative
DPPO-TV: J = (1 / (B·|o_i|)) · [min(r·A, clip(r, ℓ, u)·A)]; ℓ = max(1 − δ / π_old, 0); u = 1 + δ / π_old
prime-rl: J = (1 / Σ_j |o_j|) · [min(r·A, clip(r, ℓ, u)·A) − β·(log(π_θ / π_old)² / 2)]; A = R − mean(R);
    ℓ = max(1 − δ / π_old, 0); u = 1 + δ / π_old
LUSPO: J = (1 / (B·max_length)) · [CLIPPED]; r = exp(1/|o_i| Σ_t log(π_θ / π_old))
VESPO: J = (1 / Σ_j |o_j|) · [sg[φ]·A·log r]; ℓ = 0; u = ∞; φ = W^k·exp(λ·(1 − W)); W = Π_t r;
    k = k_negative if A < 0, else k_positive; λ = λ_negative if A < 0, else λ_positive
Unbiased KL: J = (1 / (B·|o_i|)) · [CLIPPED − β·r·(π_ref / π_θ − log(π_ref / π_θ) − 1)]
MaxRL: J = (1 / (B·|o_i|)) · [CLIPPED]; A = (R − mean(R)) / mean(R)
Pass@k: J = (1 / (B·|o_i|)) · [CLIPPED]; A = (pass_with_it − pass_at_k) / √(pass_at_k·(1 − pass_at_k));
    pass_at_k = 1 − C(wrong, k) / C(G, k); pass_with_it = 1 if R > 0, else 1 − C(wrong − 1, k − 1) / C(G − 1, k − 1)
RFT: J = (1 / Σ_j |o_j|) · [r·A]; A = R; ℓ = 0; u = ∞
ECHO: J = (1 / (B·|o_i|)) · [CLIPPED − K3]; loss = −J + mean over observed tokens of (−λ·log π_θ)
OPO: J = (1 / (B·|o_i|)) · [r·A]; A = R − mean_by_length; ℓ = 0; u = ∞; mean_by_length = Σ_j∈g |o_j|·R_j / Σ_j∈g |o_j|
KL-Cov: J = (1 / Σ_j |o_j|) · [r·A − β·[chosen]·|log r|]; ℓ = 0; u = ∞; [chosen] = 1(covariance ≥ quantile(1 − share));
    covariance = (A − mean_batch A)·(log π_old − mean_batch log π_old)
GDPO: J = (1 / Σ_j |o_j|) · [CLIPPED]; A = whiten(answer·z(correct) + format·z(well_formed)); z(R) = GROUP;
    R ← answer·correct + format·well_formed
Entropy bonus: J = (1 / (B·|o_i|)) · [CLIPPED + c_H·H]
Forking tokens: J = (1 / Σ_j |o_j|) · [CLIPPED]; A = (GROUP)·1(H_old ≥ quantile(1 − share));
    S = sampled_until_P({g : max R > min R}, max_rounds); R ← R + clip(−factor·(|o_i| − (max_length − cache)) / cache, floor, 0)
Distillation: J = (1 / Σ_j |o_j|) · [r·A]; A = log(π_ref / π_old); ℓ = 0; u = ∞
KDRL: J = (1 / Σ_j |o_j|) · [CLIPPED − β·(log(π_ref / π_θ)² / 2)]
TIS: J = (1 / (B·|o_i|)) · [CLIPPED − K3]; A = (GROUP)·min(π_old / π_sampler, cap)
IcePop: J = (1 / (B·|o_i|)) · [CLIPPED − K3]; A = (GROUP)·(w if lowest ≤ w ≤ highest, else 0); w = π_old / π_sampler
Decoupled PPO: J = (1 / (B·|o_i|)) · [CLIPPED − K3]; A = (GROUP)·(π_old / π_sampler)
Sequence mask: J = (1 / (B·|o_i|)) · [(CLIPPED if A ≥ 0 or away ≤ δ, else 0) − K3]; away = 1/|o_i| Σ_t log(π_sampler / sg[π_θ])
IPO: loss = mean over pairs of ((R_w − R_l − 1 / (2·β))²); R(o) = log(π_θ / π_ref)
SimPO: loss = mean over pairs of (−log σ(R_w − R_l − γ)); R(o) = β·log π_θ / |o|
ORPO: loss = mean over pairs of (chosen_nll − weight·log σ(R_w − R_l)); R(o) = log(p / (1 − p)); p = exp(log π_θ / |o|)
GRPO (process): J = (1 / (B·|o_i|)) · [CLIPPED − K3]; A = Σ_t'≥t z; z = (step_reward − mean_of_steps) / (std_of_steps + ε)
DPO (linear): loss = mean over pairs of (R_l − R_w); R(o) = β·log(π_θ / π_ref)
"""
ROWS = ROWS.replace("CLIPPED", CLIPPED).replace("K3", K3).replace("GROUP", GROUP).replace("J = ", "J = Σ_g∈S Σ_i,t m·")


def expected_rows():
    """Return algorithm's name → left side and sign → right side."""
    tables = {}
    for line in re.sub(r";\n +", "; ", ROWS.strip()).splitlines():
        name, _, rows = line.partition(": ")
        tables[name] = dict(re.match(r"(.+? [=←]) (.+)", row).groups() for row in rows.split("; "))
        if "J =" in tables[name]:
            tables[name] = {"r =": "π_θ / π_old", "A =": GROUP, "S =": "all groups"} | tables[name]
    return tables


@pytest.mark.parametrize("algorithm", EVERY, ids=command_name)
def test_the_rows_are_those_of_the_papers(algorithm):
    rows, expected = {}, expected_rows()[algorithm.name]
    for row in rows_of(algorithm):
        text = " ".join(row.parts(tex=False))
        left, right = ("values =", text) if row.left is None else re.match(r"(.+? [=←]) (.+)", text).groups()
        rows[left] = right
    assert {left: rows[left] for left in expected} == expected
    # the numbers of most are in the names of their pieces, test_family.py
    assert rows.keys() - expected.keys() <= {"values =", "β ←"}


@pytest.mark.parametrize(
    ("algorithm", "against", "expected"),
    [
        (
            DAPO,
            GRPO,
            """objective GRPO J = Σ_g∈S Σ_i,t m·«(1 / (B·|o_i|))» · [min(r·A, clip(r, 1 − ε_low, «1 + ε_high»)·A) «− K3»]
            objective DAPO J = Σ_g∈S Σ_i,t m·«(1 / Σ_j |o_j|)» · [min(r·A, clip(r, 1 − ε_low, «1 + ε_high»)·A)]
            ratio both r = π_θ / π_old
            advantage both A = (R − mean(R)) / (std(R) + ε)
            shape DAPO R ← «R + clip(−factor·(|o_i| − (max_length − cache)) / cache, floor, 0)»
            select GRPO S = «all groups»
            select DAPO S = «sampled_until_P({g : max R > min R}, max_rounds)»
            values GRPO ε_low = 0.2, «ε_high = 0.2», ε = 1e−06, «β = 0.04»
            values DAPO ε_low = 0.2, «ε_high = 0.28», ε = 1e−06, «max_length = 16», «cache = 4», «factor = 1», «floor = −1»,
            «max_rounds = 10»""",
        ),
        (
            replace(DR_GRPO, kl=GRPO.kl),
            GRPO,
            """objective GRPO J = Σ_g∈S Σ_i,t m·(1 / (B·«|o_i|»)) · [CLIPPED − K3]
            objective Dr.GRPO J = Σ_g∈S Σ_i,t m·(1 / (B·«max_length»)) · [CLIPPED − K3]
            ratio both r = π_θ / π_old
            advantage GRPO A = (R − mean(R)) / «(std(R) + ε)»
            advantage Dr.GRPO A = R − mean(R)
            select both S = all groups
            values GRPO ε_low = 0.2, ε_high = 0.2, «ε = 1e−06», β = 0.04
            values Dr.GRPO ε_low = 0.2, ε_high = 0.2, β = 0.04, «max_length = 16»""",
        ),
    ],
    ids=("DAPO, GRPO", "Dr.GRPO with a KL, GRPO"),
)
def test_differences_are_marked_and_nothing_else(algorithm, against, expected):
    rows = []
    for slot, name, row in row_texts(algorithm, against):
        rows.append(f"{slot} {name} {row}".replace(K3, "K3").replace(CLIPPED, "CLIPPED"))
    assert rows == [line.strip() for line in re.sub(r",\n\s+«", ", «", expected).splitlines()]


# each text gives what its piece does, worked out at each token of a group


def pieces_of(algorithm):
    weights = ("value_weight", "entropy_weight") if isinstance(algorithm, ActorCritic) else ()
    return {**algorithm.slots(), **algorithm.beyond_the_slots(), **{name: getattr(algorithm, name) for name in weights}}


MORE = (
    *(("kl", KLInLoss(0.1, k3_plus)), ("kl", KLToOld(0.3)), ("shape", LengthCost(0.1)), ("reward", mean_log_ratio)),
    *(("surrogate", SequenceMask(0.2, unclipped)), ("ratio", ratio_to_sampler), ("pair loss", SigmoidPreference(0.1))),
)
# of these the rows above stand alone: they look at other prompts, at tokens that come later, or at the whole rollout
BY_ROWS_ALONE = {
    *("BestOfK", "CovariancePenalty", "DynamicSampling", "ForkingTokens", "GAE", "GammaWeight", "LengthWeighted"),
    *("ProcessAdvantage", "SmoothStandardization", "StandardizedApart", "WhitenedReturn", "drop_all_equal"),
    *("duplicate_informative", "geometric_mean", "keep_all"),
}
PIECES = {
    f"{slot}: {getattr(piece, '__name__', None) or type(piece).__name__}": (slot, piece)
    for slot, piece in (*(item for algorithm in EVERY for item in pieces_of(algorithm).items()), *MORE)
    if callable(piece)
}


def a_group():
    """Return tensors of three responses of 3, 1 and 2 tokens, [1, 3, 3], and of each of these six the numbers by name."""
    draw = torch.Generator().manual_seed(0)
    mask, rewards = torch.tensor([[[1, 1, 1], [1, 0, 0], [1, 1, 0]]]).bool(), torch.tensor([[1.0, 0.25, 0]]).double()
    x = {"mask": mask, "rewards": rewards, "lengths": mask.sum(-1)}
    for name in "old_logp sampler_logp ref_logp logp entropy values old_values returns rejected".split():
        x[name] = torch.rand((1, 3, 3), generator=draw, dtype=torch.double) * (-1 if "logp" in name else 1)
    x |= {"ratio": (x["logp"] - x["old_logp"]).exp(), "advantages": x["values"] - x["returns"]}
    x |= {"lower": torch.full_like(x["logp"], 0.8), "upper": torch.full_like(x["logp"], 1.2)}
    x |= {"chosen": x["old_values"], "chosen_nll": x["returns"]}
    x |= {"correct": (rewards > 0.5).double(), "well_formed": (rewards < 0.5).double()}
    std = float(rewards.std())
    rows = []
    for i, t in mask[0].nonzero().tolist():
        numbers = {name: float(value[(0, i, t)[: value.dim()]]) for name, value in x.items()}
        numbers |= {"mean": 1.25 / 3, "std": std, "std_of_batch": std, "inf": math.inf, "G": 3, "B": 3, "tokens": 6}
        pairs = ("logp", "old_logp"), ("sampler_logp", "logp")
        log_ratio, away = ((x[a] - x[b])[0, i][mask[0, i]].mean() for a, b in pairs)
        numbers |= {"mean_log_ratio": float(log_ratio), "away": float(away), "length": numbers["lengths"]}
        rows.append(numbers | {"reward": numbers["rewards"], "truncated": 0.0})
    return x, rows


EVALUATED = [
    name for name, (slot, _) in PIECES.items() if name.split(": ")[1] not in BY_ROWS_ALONE and slot != "controller"
]


@pytest.mark.parametrize("name", EVALUATED)
def test_a_text_gives_the_numbers_of_its_piece(name):
    (slot, piece), (x, rows) = PIECES[name], a_group()
    formula, mask = formula_of(piece), x["mask"]
    if slot in ("reward", "pair loss"):  # one number a response
        x = {key: (v if v.dim() == 3 else v.unsqueeze(-1).expand_as(mask))[mask] for key, v in x.items()}
    result = piece(**{key: x[key] for key in inspect.signature(piece).parameters if key in x})
    functions = FUNCTIONS | {"sigmoid": lambda x: 1 / (1 + math.exp(-x)), "sum": lambda x: x}
    results = result if isinstance(result, tuple) else (result,)
    for part, tensor in zip(terms_of(formula.main, "list"), results, strict=True):
        values = tensor if tensor.dim() != 2 else tensor.unsqueeze(-1).expand_as(mask)
        known = [Defined(formula, functions, numbers | numbers_in(piece)) for numbers in rows]
        ours = [part.evaluate(numbers, functions) for numbers in known]
        assert ours == pytest.approx((values if values.dim() == 1 else values[mask]).tolist(), rel=1e-9)


class Defined(dict):
    """Numbers by name; a definition of the formula is evaluated when its name is looked up."""

    def __init__(self, formula, functions, numbers):
        super().__init__(numbers)
        self.rights, self.functions = {left.text: right for left, right in formula.defined}, functions

    def __missing__(self, name):
        return self.rights[name].evaluate(self, self.functions)


@pytest.mark.parametrize("controller", [PPO_PENALTY.controller, ProportionalController(0.02, 100.0)], ids=str)
def test_a_controller_s_text(controller):
    for kl in (0.001, 0.0149, 0.02, 0.031, 5.0):
        known = {"beta": 0.3, "kl": kl, "count": 8, **numbers_in(controller)}
        assert formula_of(controller).main.evaluate(known) == pytest.approx(controller(0.3, kl, 8), rel=1e-12)


# a law of any two algorithms


def count_atoms(result, side):
    """Return slot → (atom, whether it is marked) → how often it is in one side's rows."""
    counts = {}
    for pair in result.rows:
        for part in pair[side].right if pair[side] is not None else ():
            for slot, text, is_marked in atoms(part):
                counts.setdefault(slot, Counter())[text, is_marked] += 1
    return counts


def without_marks(counts):
    return Counter(text for (text, _), count in counts.items() for _ in range(count))


# half of them with GRPO, half with another one: no pair is special to the comparison
@pytest.mark.parametrize("half", [0, 1])
def test_atoms_are_marked_in_changed_slots_alone(half):
    for i, a in enumerate(EVERY):
        if i % 2 != half:
            continue
        b = EVERY[(i + 10) % len(EVERY)] if half else GRPO
        result, ours, theirs = formulas(b, against=a), pieces_of(a), pieces_of(b)
        before, after = (count_atoms(result, side) for side in (0, 1))
        for slot in ours.keys() | theirs.keys():
            old, new = before.get(slot, Counter()), after.get(slot, Counter())
            marked = [text for text, is_marked in old | new if is_marked]
            if ours.get(slot) == theirs.get(slot):  # a surrogate may name a limit once, another twice
                assert not marked and old.keys() == new.keys(), (b.name, slot)
            elif ours.get(slot) or theirs.get(slot):  # a weight of 0 has no term
                assert marked and without_marks(old) != without_marks(new), (b.name, slot)
        shared = before.get("", Counter()) & after.get("", Counter())
        assert not any(is_marked for _, is_marked in shared), b.name


def test_nothing_is_marked_against_itself():
    for algorithm in (DCPO, PPO_PENALTY, DPO_LINEAR):
        result = formulas(algorithm, against=algorithm)
        assert "«" not in str(result) and "textcolor" not in result._repr_markdown_()
        assert {name for slot, name, _ in result.lines() if slot} == {"both"}
        assert [row for row, _ in result.rows] == rows_of(algorithm)


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("unbiased-kl", ["«r»"]),  # which stands in the other formula, too, in another slot
        ("cispo", ["«(1 / Σ_j |o_j|)»", "«sg[clip(r, 0, max_ratio)]»", "«log»"]),
    ],
)
def test_what_stands_elsewhere_in_the_other_formula_differs_too(name, marks):
    algorithm = next(one for one in RELATIVES if command_name(one) == name)
    (objective,) = [text for *row, text in row_texts(algorithm, GRPO) if row == ["objective", algorithm.name]]
    assert re.findall("«[^»]*»", objective) == marks


def test_a_changed_number_alone_is_marked_in_the_formula_and_in_the_numbers():
    wider = GRPO.with_parameters(beta=0.1)
    marked = [re.findall("«[^»]*»", row) for *_, row in row_texts(wider, GRPO) if "«" in row]
    assert marked == [["«β»"], ["«β»"], ["«β = 0.04»"], ["«β = 0.1»"]]
    in_a_notebook = formulas(wider, against=GRPO)._repr_markdown_()
    assert in_a_notebook.count(r"\textcolor{#1A7EBB}{\underline{\beta") == 4 == in_a_notebook.count("textcolor")
    mixed = replace(GRPO, advantage=REINFORCE_PP.advantage)
    numbers = rows_of(mixed)[-1].parts(tex=False)
    assert numbers == ["ε_low = 0.2,", "ε_high = 0.2,", "β_advantage = 0.01,", "β_kl = 0.04"]


# rules of one's own, and of others


def rule(text=None, name="leaky"):
    def surrogate(ratio, advantages, lower, upper):
        return ratio * advantages

    surrogate.__name__ = surrogate.__qualname__ = name
    return surrogate if text is None else explained(formula=text)(surrogate)


@dataclass(frozen=True)
class HalfOf:
    share: float = 0.5

    def __call__(self, rewards):
        return self.share * rewards


@pytest.mark.parametrize(
    ("slot", "piece", "expected"),
    [
        ("surrogate", rule(), "[leaky(r, A, 1 − ε_low, 1 + ε_high) − β"),
        ("surrogate", rule("max(ratio, slope) · advantages; slope = 1 if ratio > 2 else 0"), "[max(r, slope)·A − β"),
        (
            "surrogate",
            rule("unclipped(ratio, upper, 1, 2) + advantages"),
            "[r·(1 + ε_high) + A − β",
        ),  # a piece beside it
        ("surrogate", SequenceMask(0.2, SoftGate()), "[((4 / τ)·σ(τ·(r − 1))·A if A ≥ 0 or away ≤ δ, else 0) − β"),
        ("bounds", lambda old_logp, advantages: (0.5, 1.5), "ℓ, u = lambda(log π_old, A)"),
        ("advantage", HalfOf(), "A = HalfOf(R)"),
        ("advantage", HalfOf(), "share = 0.5"),
        ("kl", KLInLoss(0.1, lambda logp, ref_logp: logp), "− β·lambda(log π_θ, log π_ref)]"),
        ("shape", OverlongFilter(), "m = m·(1 − truncated)"),
    ],
)
def test_a_rule_of_one_s_own_is_typeset_and_without_a_formula_a_function_by_its_name(slot, piece, expected):
    assert expected in str(formulas(replace(GRPO, **{slot: piece})))


def test_two_rules_of_one_name_differ_and_so_do_two_that_are_written_alike():
    result = formulas(replace(GRPO, surrogate=rule()), against=replace(GRPO, surrogate=rule()))
    assert "[«leaky»(«r», «A», 1 − ε_low, 1 + ε_high)" in str(result)
    assert [slot for slot, counts in count_atoms(result, 1).items() if any(m for _, m in counts)] == ["surrogate"]
    alike = replace(GRPO, surrogate=rule("ratio · advantages"))
    assert "[«r»·«A» − β" in str(formulas(alike, against=replace(GRPO, surrogate=unclipped)))


def test_a_text_that_is_no_formula_is_refused_in_a_sentence():
    broken = rule()
    for text in (
        *(" + ".join(["ratio"] * 5000), "sg(1, 2)", "[ratio]", "ratio · advantages, says who?", "", "a b", "(" * 500),
        *("ratio.real", "(lambda: 1)()", "ratio; slope", "1j", "ratio; x = __import__('os').x", "f(x=1)", "ratio % 2"),
    ):
        with pytest.raises(ValueError, match=r"^formula must (be an expression|be made|have fewer|give).{1,150}$"):
            rule(text)
        broken.formula = text
        assert "leaky(r, A" in str(formulas(replace(GRPO, surrogate=broken)))


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, attrs))


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "$x$ a",
    "| a | b |",
    "`x` *a* _b_ ~~c~~",
    "[a](javascript:alert(1))",
    r"\href{javascript:alert(1)}{a} \(a\) \[b\]",
    "https://example.org www.example.org a@example.org",
    "a\nb\x1b[31mc &lt;b&gt;",
)
COMMAND = re.compile(r"\\[a-zA-Z]+|\\.")


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_name_brings_no_markup_no_mathematics_and_no_escape(hostile):
    result = formulas(replace(GRPO, name=hostile, surrogate=rule(name=hostile)), against=DAPO)
    harmless = formulas(replace(GRPO, name="own", surrogate=rule(name="own")), against=DAPO)
    text = result._repr_markdown_()
    page = Tags(markdown2html(text))
    assert {tag for tag, _ in page.tags} == {"table", "thead", "tbody", "tr", "th", "td", "p"}
    assert all(name in ("style", "align") for _, attributes in page.tags for name, _ in attributes)
    assert text.count("$") == harmless._repr_markdown_().count("$")
    assert set(COMMAND.findall(text)) <= set(COMMAND.findall(harmless._repr_markdown_()))
    rows = [part for *_, row in result.lines() for part in row.parts(tex=False)]
    assert all(sign.isprintable() for line in (*text.splitlines(), *rows) for sign in line)


@pytest.mark.parametrize(
    ("text", "unicode", "tex"),
    [
        ("a − (b − c)", "a − (b − c)", "a - (b - c)"),
        ("a · (b + c) / d", "a·(b + c) / d", r"\frac{a\,(b + c)}{d}"),
        ("a / (b / c)", "a / (b / c)", r"\frac{a}{\frac{b}{c}}"),
        ("a / b · c", "(a / b)·c", r"\frac{a}{b}\,c"),
        ("(a + b)²", "(a + b)²", "{(a + b)}^{2}"),
        ("−(a + b) · c", "−(a + b)·c", r"-(a + b)\,c"),
        ("2 · 3 · a", "2·3·a", r"2 \cdot 3\,a"),
        ("log(a · b)", "log(a·b)", r"\log (a\,b)"),
        ("(a if b > c else d) + a", "(a if b > c, else d) + a", r"(a\text{ if }b > c\text{, else }d) + a"),
        ("logp − old_logp", "log(π_θ / π_old)", r"\log \frac{\pi_\theta}{\pi_{\text{old}}}"),
        ("1e-7 · a", "1e−07·a", r"10^{-7}\,a"),
    ],
)
def test_brackets_and_symbols(text, unicode, tex):
    node = typeset(parse_formula(text).main, "", {}, {})
    assert (Unicode().write(node), LaTeX().write(node)) == (unicode, tex)
