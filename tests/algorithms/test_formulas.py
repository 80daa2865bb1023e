"""Algorithms as mathematics: rows written by hand from the papers, the numbers that the rows give, and what is marked."""

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from html.parser import HTMLParser

import pytest
import torch
from nbconvert.filters import markdown2html

from rlviz import DAPO, DCPO, DPO, DR_GRPO, GRPO, GRPO_PROCESS, GSPO, GSPO_TOKEN, LITE_PPO, PPO, PPO_PENALTY
from rlviz.algorithms import (
    ALGORITHMS,
    CISPO,
    DPO_LINEAR,
    ECHO,
    FORKING_TOKENS,
    ICE_POP,
    RELATIVES,
    RLOO,
    TIS,
    ActorCritic,
    PreferenceOptimization,
    command_name,
    formulas,
)
from rlviz.algorithms.formulas import Row
from rlviz.algorithms.notation import LaTeX, Unicode, read
from rlviz.pieces.advantages import GroupAdvantage, ProcessAdvantage, PromptHistory, SmoothStandardization
from rlviz.pieces.bounds import FixedBounds
from rlviz.pieces.gae import GAE
from rlviz.pieces.kl import KLInLoss, KLInReward, ProportionalController, k1, k2, k3_plus
from rlviz.pieces.mismatch import FullWeight, sequence_weight
from rlviz.pieces.preference import SigmoidPreference, mean_log_ratio
from rlviz.pieces.selection import drop_all_equal
from rlviz.pieces.shaping import LengthCost, OverlongFilter
from rlviz.pieces.surrogate import SequenceMask, unclipped
from rlviz.pieces.words import says
from rlviz.types import Batch

EVERY = (*ALGORITHMS, *RELATIVES, GRPO_PROCESS, DPO_LINEAR)
SAMPLED = [one for one in EVERY if not isinstance(one, PreferenceOptimization)]


def rows_of(algorithm):
    return [row for (row,) in formulas(algorithm).rows]


def said(algorithm, **against):
    """Return (slot, algorithm, row) of each row, the slot in all of its rows."""
    told, slot = [], ""
    for begins, name, row in formulas(algorithm, **against).lines():
        slot = begins or slot
        told.append((slot, name, " ".join(row.parts(tex=False))))
    return told


# from ALGORITHMS.md §1 to §3, by hand: r, A, R, m for r_{i,t}, A_{i,t}, R_i, m_{i,t}; S is the groups that the sum is over
CLIPPED = "min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)"
K3 = "β·(π_ref / π_θ − log(π_ref / π_θ) − 1)"
TOKEN, GROUP, ALL = "π_θ / π_old", "(R − mean(R)) / (std(R) + ε)", "all groups"
BY_HAND = {
    PPO: {
        "J": f"Σ_g∈S Σ_i,t m·(1 / Σ_j |o_j|) · [{CLIPPED}]",
        "r": TOKEN,
        "A": "whiten(A_raw)",
        "A_raw": "δ_t + γ·λ·A_raw,t+1",
        "δ_t": "R_t + γ·V_t+1 − V_t",
        "S": ALL,
        "R_t": "R·[t last]",
        "R_t ←": "R_t − β·log(π_old / π_ref)",
        "loss": "−J + c_V·aggregate(L_value)",
        "L_value": "max((V − returns)², (clip(V, V_old − ε_value, V_old + ε_value) − returns)²) / 2",
        "values": "ε_low = 0.2, ε_high = 0.2, γ = 1, λ = 0.95, β = 0.02, ε_value = 0.2, c_V = 0.5",
    },
    GRPO: {
        "J": f"Σ_g∈S Σ_i,t m·(1 / (B·|o_i|)) · [{CLIPPED} − {K3}]",
        "r": TOKEN,
        "A": GROUP,
        "S": ALL,
        "values": "ε_low = 0.2, ε_high = 0.2, ε = 1e−06, β = 0.04",
    },
    DR_GRPO: {
        "J": f"Σ_g∈S Σ_i,t m·(1 / (B·max_length)) · [{CLIPPED}]",
        "r": TOKEN,
        "A": "R − mean(R)",
        "S": ALL,
        "values": "ε_low = 0.2, ε_high = 0.2, max_length = 16",
    },
    DAPO: {
        "J": f"Σ_g∈S Σ_i,t m·(1 / Σ_j |o_j|) · [{CLIPPED}]",
        "r": TOKEN,
        "A": GROUP,
        "R ←": "R + clip(−factor·(|o_i| − (max_length − cache)) / cache, floor, 0)",
        "S": "sampled_until_P({g : max R > min R}, max_rounds)",
        "values": "ε_low = 0.2, ε_high = 0.28, ε = 1e−06, max_length = 16, cache = 4, factor = 1, floor = −1, max_rounds = 10",
    },
    GSPO: {
        "J": f"Σ_g∈S Σ_i,t m·(1 / (B·|o_i|)) · [{CLIPPED}]",
        "r": "exp(1/|o_i| Σ_t log(π_θ / π_old))",
        "A": GROUP,
        "S": ALL,
        "values": "ε_low = 0.0003, ε_high = 0.0004, ε = 1e−06",
    },
    DCPO: {
        "J": "Σ_g∈S Σ_i,t m·(1 / |o_i|) · [max(min(r·A, clip(r, ℓ, u)·A), c·min(A, 0))]",
        "ℓ": "0.5 + 0.5·√(max(1 − 4·ε_low / π_old, 0))",
        "u": "min(0.5 + 0.5·√(1 + 4·ε_high / π_old), max_ratio)",
        "r": TOKEN,
        "A": "SA_new if |SA_new| < |SA_total|, else SA_total",
        "SA_new": "(1 − 1 / visits)·A_new + (1 / visits)·A_total",
        "SA_total": "(1 / visits)·A_new + (1 − 1 / visits)·A_total",
        "A_new": "(R − mean(R)) / std(R, ddof)",
        "A_total": "(R − mean_so_far) / std_so_far(R, ddof)",
        "S": ALL,
        "values": "ε_low = 0.16, ε_high = 0.2, max_ratio = 10, c = 10, ddof = 0",
    },
    DPO: {"loss": "mean over pairs of (−log σ(R_w − R_l))", "R(o)": "β·log(π_θ / π_ref)", "values": "β = 0.1"},
}


# the others, by what their papers have in place of GRPO's: weights, what is weighed, and further rows
SEQUENCES, TOKENS, CONSTANT = "1 / (B·|o_i|)", "1 / Σ_j |o_j|", "1 / (B·max_length)"
SEQUENCE, FREE = "1/|o_i| Σ_t log(π_θ / π_old)", {"ℓ": "0", "u": "∞"}
CHANGE = {"ℓ": "max(1 − δ / π_old, 0)", "u": "1 + δ / π_old"}
CRITIC = {name: BY_HAND[PPO][name] for name in ("A", "A_raw", "δ_t", "R_t", "loss", "L_value")}
PAPERS = {
    "Lite PPO": (TOKENS, CLIPPED, {"A": "(R − mean(R)) / (std_batch(R) + ε)"}),
    "DUPO": (
        TOKENS,
        CLIPPED,
        {"R ←": "answer·correct + format·well_formed", "S": "repeated_to_P({g : max R > min R})"},
    ),
    "GSPO-token": (SEQUENCES, CLIPPED, {"r": f"sg[exp({SEQUENCE})]·(π_θ / sg[π_θ])"}),
    "PPO-Penalty": (TOKENS, f"r·A − β·({TOKEN} − log({TOKEN}) − 1)", {**FREE, **CRITIC}),
    "GRPO (process)": (
        SEQUENCES,
        f"{CLIPPED} − {K3}",
        {"A": "Σ_t'≥t z", "z": "(step_reward − mean_of_steps) / (std_of_steps + ε)"},
    ),
    "RLOO": (CONSTANT, "r·A", {**FREE, "A": "(R − mean(R))·G / (G − 1)", "R ←": "R − Σ_t β·log(π_old / π_ref)"}),
    "REINFORCE++": (TOKENS, CLIPPED, {"A": "whiten(R − β·Σ_t'≥t log(π_old / π_ref))"}),
    "CISPO": (TOKENS, "sg[clip(r, 0, max_ratio)]·A·log r", {}),
    "GMPO": (
        SEQUENCES,
        "exp(1/|o_i| Σ_t log clipped)·A",
        {"clipped": "min(r, 1 + ε_high) if A > 0, else max(r, 1 − ε_low)"},
    ),
    "SAPO": (SEQUENCES, "(4 / τ)·σ(τ·(r − 1))·A", {**FREE, "τ": "positive if A > 0, else negative"}),
    "DPPO-TV": (SEQUENCES, "min(r·A, clip(r, ℓ, u)·A)", CHANGE),
    "prime-rl": (TOKENS, f"min(r·A, clip(r, ℓ, u)·A) − β·(log({TOKEN})² / 2)", {**CHANGE, "A": "R − mean(R)"}),
    "LUSPO": (CONSTANT, CLIPPED, {"r": f"exp({SEQUENCE})"}),
    "VESPO": (
        TOKENS,
        "sg[φ]·A·log r",
        {
            **FREE,
            "φ": "W^k·exp(λ·(1 − W))",
            "W": "Π_t r",
            "k": "k_negative if A < 0, else k_positive",
            "λ": "λ_negative if A < 0, else λ_positive",
        },
    ),
    "Unbiased KL": (SEQUENCES, f"{CLIPPED} − {K3.replace('β', 'β·r')}", {}),
    "MaxRL": (SEQUENCES, CLIPPED, {"A": "(R − mean(R)) / mean(R)"}),
    "Pass@k": (
        SEQUENCES,
        CLIPPED,
        {
            "A": "(pass_with_it − pass_at_k) / √(pass_at_k·(1 − pass_at_k))",
            "pass_at_k": "1 − C(wrong, k) / C(G, k)",
            "pass_with_it": "1 if R > 0, else 1 − C(wrong − 1, k − 1) / C(G − 1, k − 1)",
        },
    ),
    "RFT": (TOKENS, "r·A", {**FREE, "A": "R"}),
    "ECHO": (SEQUENCES, f"{CLIPPED} − {K3}", {"loss": "−J + mean over observed tokens of (−λ·log π_θ)"}),
    "OPO": (
        SEQUENCES,
        "r·A",
        {**FREE, "A": "R − mean_by_length", "mean_by_length": "Σ_j∈g |o_j|·R_j / Σ_j∈g |o_j|"},
    ),
    "KL-Cov": (
        TOKENS,
        "r·A − β·[chosen]·|log r|",
        {
            **FREE,
            "[chosen]": "1(covariance ≥ quantile(1 − share))",
            "covariance": "(A − mean_batch A)·(log π_old − mean_batch log π_old)",
        },
    ),
    "GDPO": (
        TOKENS,
        CLIPPED,
        {
            "A": "whiten(answer·z(correct) + format·z(well_formed))",
            "z(R)": GROUP,
            "R ←": "answer·correct + format·well_formed",
        },
    ),
    "Entropy bonus": (SEQUENCES, f"{CLIPPED} + c_H·H", {}),
    "Forking tokens": (
        TOKENS,
        CLIPPED,
        {"A": f"({GROUP})·1(H_old ≥ quantile(1 − share))", **{row: BY_HAND[DAPO][row] for row in ("R ←", "S")}},
    ),
    "Distillation": (TOKENS, "r·A", {**FREE, "A": "log(π_ref / π_old)"}),
    "KDRL": (TOKENS, f"{CLIPPED} − β·(log(π_ref / π_θ)² / 2)", {}),
    "TIS": (SEQUENCES, f"{CLIPPED} − {K3}", {"A": f"({GROUP})·min(π_old / π_sampler, cap)"}),
    "IcePop": (
        SEQUENCES,
        f"{CLIPPED} − {K3}",
        {"A": f"({GROUP})·(w if lowest ≤ w ≤ highest, else 0)", "w": "π_old / π_sampler"},
    ),
    "Decoupled PPO": (SEQUENCES, f"{CLIPPED} − {K3}", {"A": f"({GROUP})·(π_old / π_sampler)"}),
    "Sequence mask": (
        SEQUENCES,
        f"({CLIPPED} if A ≥ 0 or away ≤ δ, else 0) − {K3}",
        {"away": "1/|o_i| Σ_t log(π_sampler / sg[π_θ])"},
    ),
    "DPO (linear)": {"loss": "mean over pairs of (R_l − R_w)", "R(o)": "β·log(π_θ / π_ref)"},
    "IPO": {"loss": "mean over pairs of ((R_w − R_l − 1 / (2·β))²)", "R(o)": "log(π_θ / π_ref)"},
    "SimPO": {"loss": "mean over pairs of (−log σ(R_w − R_l − γ))", "R(o)": "β·log π_θ / |o|"},
    "ORPO": {
        "loss": "mean over pairs of (chosen_nll − weight·log σ(R_w − R_l))",
        "R(o)": "log(p / (1 − p))",
        "p": "exp(log π_θ / |o|)",
    },
}


def rows_by_name(algorithm):
    told = {}
    for row in rows_of(algorithm):
        left, sign, right = " ".join(row.parts(tex=False)).partition(f" {row.sign} ")
        told |= (
            {"values": left + sign + right} if row.left is None else {left + sign.rstrip() * (row.sign == "←"): right}
        )
    return told


@pytest.mark.parametrize("algorithm", BY_HAND, ids=command_name)
def test_the_rows_are_those_of_the_papers(algorithm):
    assert rows_by_name(algorithm) == BY_HAND[algorithm]


@pytest.mark.parametrize("algorithm", [one for one in EVERY if one not in BY_HAND], ids=command_name)
def test_the_rows_of_the_others_too(algorithm):
    expected = PAPERS[algorithm.name]
    if isinstance(expected, tuple):
        weights, weighed, rows = expected
        expected = {"J": f"Σ_g∈S Σ_i,t m·({weights}) · [{weighed}]", "r": TOKEN, "A": GROUP, "S": ALL, **rows}
    told = rows_by_name(algorithm)
    assert set(told) - set(expected) <= {"values", "β ←"}  # the numbers are in the names of the pieces, test_family.py
    assert {name: told[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("algorithm", "against", "expected"),
    [
        (
            DAPO,
            GRPO,
            """objective GRPO J = Σ_g∈S Σ_i,t m·(1 / «(B·|o_i|)») · [min(r·A, clip(r, 1 − ε_low, 1 + «ε_high»)·A) «− K3»]
            objective DAPO J = Σ_g∈S Σ_i,t m·(1 / «Σ_j |o_j|») · [min(r·A, clip(r, 1 − ε_low, 1 + «ε_high»)·A)]
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
        (
            replace(LITE_PPO, surrogate=DCPO.surrogate),
            LITE_PPO,
            """objective Lite PPO before J = Σ_g∈S Σ_i,t m·(1 / Σ_j |o_j|) · [CLIPPED]
            objective Lite PPO after J = Σ_g∈S Σ_i,t m·(1 / Σ_j |o_j|) · [«max»(CLIPPED, «c·min(A, 0)»)]
            ratio both r = π_θ / π_old
            advantage both A = (R − mean(R)) / (std_batch(R) + ε)
            select both S = all groups
            values Lite PPO before ε_low = 0.2, ε_high = 0.2, ε = 1e−06
            values Lite PPO after ε_low = 0.2, ε_high = 0.2, «c = 10», ε = 1e−06""",
        ),
    ],
    ids=("DAPO, GRPO", "Dr.GRPO with a KL, GRPO", "dual clip"),
)
def test_what_differs_is_marked_and_nothing_else(algorithm, against, expected):
    told = []
    for slot, name, row in said(algorithm, against=against):
        told.append(f"{slot} {name} {row}".replace(K3, "K3").replace(CLIPPED, "CLIPPED"))
    assert told == [line.strip() for line in re.sub(r",\n\s+«", ", «", expected).splitlines()]


# the rows give numbers: worked out on tensors, and compared with what the pieces make of these

P, G, T = 3, 4, 5
SIGNS = {">": torch.gt, "≥": torch.ge, "<": torch.lt, "≤": torch.le}
OF_NUMBERS = {
    "log": torch.log,
    "exp": torch.exp,
    "sqrt": torch.sqrt,
    "abs": torch.abs,
    "sigmoid": torch.sigmoid,
    "min": torch.minimum,
    "max": torch.maximum,
    "clip": lambda x, lower, upper: torch.minimum(torch.maximum(x, lower), upper),
    "sg": torch.Tensor.detach,
    "one": lambda x: x.double(),
    "choose": lambda n, k: torch.tensor([math.comb(int(one), int(k)) for one in n.flatten()]).view_as(n).double(),
    "sum_of_group": lambda x: x.sum(1, keepdim=True),
    "sum_of_batch": lambda x: x.sum(),
    "mean_of_pairs": torch.mean,
}


def made_up(seed=0):
    """Return tensors by the names that formulas have for them; the rewards of each group differ."""
    draw = torch.Generator().manual_seed(seed)

    def normal(scale, *of):
        return scale * torch.randn(of or (P, G, T), generator=draw, dtype=torch.double)

    mask = torch.arange(T) < torch.randint(2, T + 1, (P, G, 1), generator=draw)
    mask[0, 0, 1] = mask[2, 3] = False  # a hole, and a response without tokens
    old_logp = -normal(1.0).abs() - 0.05
    others = {"logp": normal(0.6), "ref_logp": normal(0.3), "sampler_logp": normal(0.5)}
    logs = {"old_logp": old_logp} | {name: old_logp + by for name, by in others.items()}
    rewards = torch.tensor([[0.0, 1, 0.5, 0], [1, 0, 0, 0], [0.25, 0, 0, 0.5]], dtype=torch.double)
    return mask, logs, rewards, {"advantages": normal(2.0) * mask, "entropy": normal(1.0).abs(), "values": normal(0.5)}


def of_group(reward):
    """Return what is made of rewards [P, G, 1], by the names in formulas."""
    std = reward.std(1, keepdim=True)
    return {
        "reward": reward,
        "reward_j": reward,
        "mean": reward.mean(1, keepdim=True),
        "std": std,
        "std_of_batch": reward.std(),
        "max_reward": reward.amax(1),
        "min_reward": reward.amin(1),
        "wrong": (reward <= 0).sum(1, keepdim=True).expand(P, G, 1),
        "G": torch.full((P, G, 1), G),
    }


@dataclass
class Worked:
    """Works out the rows of an algorithm. known: name → tensor; other names are those of parameters, or defined in a row."""

    algorithm: object
    known: dict
    mask: torch.Tensor

    def __post_init__(self):
        self.rows = rows_of(self.algorithm)
        lengths = self.mask.sum(-1, keepdim=True).double()
        self.known |= {"mask": self.mask.double(), "length": lengths.clamp(min=1), "length_j": lengths}
        self.known |= {"B": self.mask.any(-1).sum()}
        self.known |= {"inf": torch.tensor(math.inf).double()}

    def row(self, left, sign="="):
        return next(
            row for row in self.rows if row.left is not None and (Unicode().write(row.left), row.sign) == (left, sign)
        )

    def of(self, node):
        match node.op:
            case "name" if node.text in self.known:
                return self.known[node.text]
            case "name" if node.value is not None:
                return torch.tensor(float(node.value), dtype=torch.double)
            case "name":
                return self.of(self.row(Unicode().write(node)).right[0])
            case "number":
                return torch.tensor(float(node.text), dtype=torch.double)
            case "+":
                return sum(self.of(part) for part in node.parts)
            case "·":
                return math.prod(self.of(part) for part in node.parts)
            case "−":
                return -self.of(node.parts[0])
            case "/":
                return self.of(node.parts[0]) / self.of(node.parts[1])
            case "^":
                return self.of(node.parts[0]) ** self.of(node.parts[1])
            case "if":
                value, test, other = map(self.of, node.parts)
                return torch.where(test, value, other)
            case "or":
                return torch.stack(torch.broadcast_tensors(*map(self.of, node.parts))).any(0)
            case "is" if node.parts[-1].text == "quantile":
                left, share = self.of(node.parts[0]), self.of(node.parts[-1].parts[0])
                return left >= torch.quantile(left[self.mask], share, interpolation="higher")
            case "is":
                values = torch.broadcast_tensors(*map(self.of, node.parts))
                return torch.stack(
                    [SIGNS[sign](a, b) for sign, a, b in zip(node.text.split(), values, values[1:], strict=False)]
                ).all(0)
        assert node.op == "call"
        if node.text == "z":
            return replace(self, known=self.known | of_group(self.of(node.parts[0]))).of(self.row("z(R)").right[0])
        parts = [self.of(part) for part in node.parts]
        if node.text in OF_NUMBERS:
            return OF_NUMBERS[node.text](*parts)
        return getattr(self, node.text)(*parts)

    def sum(self, x):
        return (x * self.mask).sum(-1, keepdim=True)

    def mean(self, x):
        return self.sum(x) / self.known["length"]

    def prod(self, x):
        return x.masked_fill(~self.mask, 1.0).prod(-1, keepdim=True)

    def mean_of_batch(self, x):
        return x[self.mask].mean()

    def sum_to_come(self, x):
        return torch.stack([(x * self.mask)[..., t:].sum(-1) for t in range(T)], -1)

    def whiten(self, x):
        values = x[self.mask] if x.shape == self.mask.shape else x
        return (x - values.mean()) / (values.var() + 1e-8).sqrt()


def known_of(logs, **more):
    return {f"π_{name}": logs[which].exp() for name, which in (
        ("θ", "logp"), ("old", "old_logp"), ("ref", "ref_logp"), ("sampler", "sampler_logp"),
    )} | more  # fmt: skip


VARIANTS = [
    replace(GRPO, name="k3+", kl=KLInLoss(0.1, k3_plus)),
    replace(GRPO, name="masked by response", advantage=ICE_POP.advantage, surrogate=SequenceMask(0.2, unclipped)),
    replace(GRPO, name="nearly nothing clipped", bounds=FixedBounds(0.9, 5.0)),
]


@pytest.mark.parametrize("algorithm", [*SAMPLED, *VARIANTS], ids=command_name)
def test_the_objective_gives_what_the_loss_is_made_of(algorithm):
    """And its gradient, by log π and by the entropy."""
    mask, logs, _, made = made_up()
    leaves = logs["logp"].requires_grad_(), made["entropy"].requires_grad_()
    batch = Batch(
        logs["old_logp"],
        made["advantages"],
        mask,
        logs["ref_logp"],
        entropy=made["entropy"],
        sampler_logp=logs["sampler_logp"],
    )
    value = algorithm.objective(logs["logp"], batch).value
    expected = (value * algorithm.aggregate(mask)).masked_fill(~mask, 0.0)
    worked = Worked(algorithm, known_of(logs, advantages=made["advantages"], entropy=made["entropy"]), mask)
    weights, *weighed = worked.row("J").right
    ours = (worked.of(weights) * sum(worked.of(part) for part in weighed)).expand(P, G, T)
    ours = ours.masked_fill(~mask, 0.0)
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)
    slopes, theirs = (
        torch.autograd.grad(values.sum(), leaves, allow_unused=True, materialize_grads=True)
        for values in (ours, expected)
    )
    torch.testing.assert_close(slopes, theirs, rtol=1e-8, atol=1e-12)
    assert expected.any() and theirs[0].any()


ADVANTAGES = [
    *(one for one in SAMPLED if not isinstance(one, ActorCritic) and one is not GRPO_PROCESS),
    replace(GRPO, name="capped by response", advantage=replace(TIS.advantage, ratio=sequence_weight)),
    replace(GRPO, name="weighed by response", advantage=FullWeight(sequence_weight, GroupAdvantage("none"))),
    replace(GRPO, name="charged by length", shape=LengthCost(0.1), kl=KLInReward(0.5, k2)),
    replace(DCPO, name="DCPO without std", advantage=SmoothStandardization(ddof=1, scale="none")),
]


@pytest.mark.parametrize("algorithm", ADVANTAGES, ids=command_name)
def test_the_advantage_gives_what_the_algorithm_does(algorithm):
    mask, logs, rewards, made = made_up()
    if algorithm.name == "Pass@k":
        algorithm = algorithm.with_parameters(k=2)  # every group here has a set of four that passes
    right, formed = (rewards > 0.4).double(), (rewards < 0.6).double()
    graded = {"correct": right, "well_formed": formed}
    before = PromptHistory.empty(P).after(rewards.flip(0), 0)
    known = {name: logs[name] for name in ("old_logp", "ref_logp", "sampler_logp")}
    shaped = algorithm.shaped(rewards, mask.sum(-1), **graded)
    expected, _ = algorithm.advantages(shaped, mask, history=before, old_entropy=made["entropy"], **known, **graded)
    graded = {name: value.unsqueeze(-1) for name, value in graded.items()}
    worked = Worked(algorithm, known_of(logs, old_entropy=made["entropy"], **graded), mask)
    worked.known["length"] = mask.sum(
        -1, keepdim=True
    ).double()  # 0 where a response has no token: nothing divides by it
    reward = rewards.unsqueeze(-1)
    for row in worked.rows:  # the reward as it is made step by step
        if row.sign == "←":
            worked.known |= of_group(reward)
            reward = worked.of(row.right[0])
    worked.known |= of_group(reward)
    if algorithm.asks_for("advantage", "history"):
        ever = torch.cat([rewards.flip(0), rewards], 1).unsqueeze(-1)
        # pooled: the mean of the visits' variances, and the variance of their means
        variances, means = (
            torch.stack([getattr(one, of)(1) for one in (rewards.flip(0), rewards)]) for of in ("var", "mean")
        )
        ddof = algorithm.advantage.ddof
        pooled = (variances * (1 if ddof else (G - 1) / G)).mean(0) + means.var(0, correction=0)
        worked.known |= {"visits": torch.tensor(2.0), "mean_so_far": ever.mean(1, keepdim=True), "rewards": reward}
        worked.std = lambda x, ddof: x.std(1, correction=int(ddof), keepdim=True)
        worked.std_so_far = lambda x, ddof: pooled.sqrt().view(P, 1, 1)
    ours = worked.of(worked.row("A").right[0]).expand(P, G, T).masked_fill(~mask, 0.0)
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)
    assert expected.abs().sum() > 0


@pytest.mark.parametrize("combine", ["sum", "mean"])
def test_the_advantage_of_steps(combine):
    mask, logs, _, made = made_up()
    algorithm = replace(GRPO_PROCESS, advantage=ProcessAdvantage(combine))
    ends = mask & (made["values"] > -0.2)
    rewards = made["entropy"]
    expected, _ = algorithm.advantages(rewards, mask, step_ends=ends)
    steps = [rewards[p][ends[p]] for p in range(P)]
    known = {
        "step_reward": rewards,
        "mean_of_steps": torch.stack([one.mean() for one in steps]).view(P, 1, 1),
        "std_of_steps": torch.stack([one.std() for one in steps]).view(P, 1, 1),
    }
    worked = Worked(algorithm, known_of(logs, **known), ends)
    worked.mean_to_come = lambda x: worked.sum_to_come(x) / worked.sum_to_come(torch.ones_like(x)).clamp(min=1)
    torch.testing.assert_close(worked.of(worked.row("A").right[0]) * mask, expected, rtol=1e-9, atol=1e-12)


def test_what_observed_tokens_add():
    mask, logs, _, made = made_up()
    observed = ~mask & (made["entropy"] > 0.5)
    batch = Batch(logs["old_logp"], made["advantages"], mask, logs["ref_logp"], observed=observed)
    worked = Worked(ECHO, known_of(logs), mask)
    worked.mean_of_observed = lambda x: x[observed].mean()
    worked.known["J"] = -GRPO.loss(logs["logp"], batch).loss
    torch.testing.assert_close(worked.of(worked.row("loss").right[0]), ECHO.loss(logs["logp"], batch).loss)
    assert observed.any()


@pytest.mark.parametrize(
    "algorithm",
    [PPO, PPO_PENALTY, replace(PPO, advantage=GAE(0.9, 0.5, whiten=False))],
    ids=("PPO", "penalty", "not whitened"),
)
def test_what_a_critic_adds(algorithm):
    _, logs, scores, made = made_up()
    mask = torch.ones(P, G, T, dtype=torch.bool)
    values = made["values"]
    zero = torch.zeros_like(values[..., :1])
    later = lambda x: torch.cat([x[..., 1:], zero], -1)  # noqa: E731
    rewards = algorithm.token_rewards(scores, mask, logs["old_logp"], logs["ref_logp"])
    raw, returns = replace(algorithm.advantage, whiten=False)(rewards, values, mask)
    known = known_of(logs, value=values, next_value=later(values), next_A_raw=later(raw), token_reward=rewards)
    worked = Worked(algorithm, known, mask)
    torch.testing.assert_close(worked.of(worked.row("A").right[0]), algorithm.advantage(rewards, values, mask)[0])
    at_end = torch.zeros(P, G, T).double()
    at_end[..., -1] = scores
    worked.known |= {"score_at_end": at_end}
    del worked.known["token_reward"]
    made_of = worked.of(worked.row("R_t").right[0])
    if algorithm.kl_in_reward:
        worked.known |= {"token_reward": made_of}
        made_of = worked.of(worked.row("R_t", "←").right[0])
    torch.testing.assert_close(made_of, rewards)
    old = values + 0.4 * made["advantages"].sign()
    worked.known |= {"values": values, "old_values": old, "returns": returns}
    of_value = worked.of(worked.row("L_value").right[0])
    torch.testing.assert_close(of_value, algorithm.value_loss(values, old, returns))
    bonus = replace(algorithm, entropy_weight=0.01)
    total = bonus.total_loss(torch.tensor(-2.0).double(), values, old, returns, made["entropy"], mask).loss
    worked = Worked(bonus, {"J": torch.tensor(2.0).double(), "value_loss": of_value, "entropy": made["entropy"]}, mask)
    worked.aggregate = lambda x: (x * bonus.aggregate(mask)).sum()
    torch.testing.assert_close(worked.of(worked.row("loss").right[0]), total)


@pytest.mark.parametrize("controller", [PPO_PENALTY.controller, ProportionalController(0.02, 100.0)], ids=str)
def test_what_moves_beta(controller):
    for kl in (0.001, 0.0149, 0.02, 0.031, 5.0):
        known = {
            name: torch.tensor(value, dtype=torch.double) for name, value in (("beta", 0.3), ("kl", kl), ("count", 8))
        }
        worked = Worked(replace(PPO_PENALTY, controller=controller), known, torch.ones(P, G, T, dtype=torch.bool))
        assert float(worked.of(worked.row("β", "←").right[0])) == pytest.approx(controller(0.3, kl, 8), rel=1e-12)


OF_PAIRS = [
    *(one for one in EVERY if isinstance(one, PreferenceOptimization)),
    replace(DPO, name="smoothed", pair_loss=SigmoidPreference(0.1)),
    replace(DPO, name="per token", reward=mean_log_ratio),
]


@pytest.mark.parametrize("algorithm", OF_PAIRS, ids=command_name)
def test_pairs(algorithm):
    chosen, rejected, ref_chosen, ref_rejected = -torch.tensor([[3.0, 2], [2.5, 4], [2.0, 2.5], [3.5, 1]]).double()
    lengths = torch.tensor([[3, 4], [5, 2]])
    expected = algorithm.loss(
        chosen, rejected, ref_chosen, ref_rejected, chosen_lengths=lengths[0], rejected_lengths=lengths[1]
    ).loss
    found = []
    for logp, ref_logp, length in ((chosen, ref_chosen, lengths[0]), (rejected, ref_rejected, lengths[1])):
        worked = Worked(
            algorithm, {"π_θ": logp.exp(), "π_ref": ref_logp.exp(), "lengths": length}, torch.ones(1, 1, 1).bool()
        )
        found.append(worked.of(worked.row("R(o)").right[0]))
    known = dict(zip(("reward_of_chosen", "reward_of_rejected"), found, strict=True), chosen_nll=-chosen / lengths[0])
    worked = Worked(algorithm, known, torch.ones(1, 1, 1).bool())
    torch.testing.assert_close(worked.of(worked.row("loss").right[0]), expected, rtol=1e-9, atol=0)


def test_groups_and_masks():
    rewards = torch.tensor([[1.0, 1, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]]).double()
    worked = Worked(replace(GRPO, select=drop_all_equal), of_group(rewards.unsqueeze(-1)), torch.ones(P, G, T).bool())
    (of_groups,) = worked.row("S").right[0].parts  # what holds of the groups in the sum
    assert worked.of(of_groups).flatten().nonzero().flatten().tolist() == drop_all_equal(rewards).tolist() == [1]
    filtered = replace(GRPO, shape=OverlongFilter())
    mask = torch.ones(P, G, T).bool()
    truncated = rewards > 0
    worked = Worked(filtered, {"truncated": truncated.unsqueeze(-1).double()}, mask)
    ours = worked.of(worked.row("m").right[0])
    assert torch.equal(ours.expand(P, G, T).bool(), filtered.loss_mask(mask, truncated))


# what holds of any two


def pieces_of(algorithm):
    weights = (
        {name: getattr(algorithm, name) for name in ("value_weight", "entropy_weight")}
        if isinstance(algorithm, ActorCritic)
        else {}
    )
    return {**algorithm.slots(), **algorithm.beyond_the_slots(), **weights}


def atoms_of(told, side):
    """Return slot → (atom, whether it is marked) → how often one side has it."""
    found = {}
    for beside in told.rows:
        row = beside[side]
        for slot, text, marked in row.atoms() if row is not None else ():
            found.setdefault(slot, Counter())[text, marked] += 1
    return found


def plainly(atoms):
    """Return how often each atom is there, marked or not."""
    counted = Counter()
    for (text, _), often in atoms.items():
        counted[text] += often
    return counted


# each with GRPO, and with those that are so many places behind it: no pair is special to the comparison
@pytest.mark.parametrize("places", ["GRPO", 1, 3, 10])
def test_equal_slots_have_equal_atoms_and_changed_ones_differ_to_be_seen(places):
    """An atom is marked in a slot that changed, and its atoms are others; nothing is marked elsewhere."""
    for place, a in enumerate(EVERY):
        b = GRPO if places == "GRPO" else EVERY[(place + places) % len(EVERY)]
        told, ours, theirs = formulas(b, against=a), pieces_of(a), pieces_of(b)
        before, after = (atoms_of(told, side) for side in (0, 1))
        for slot in ours.keys() | theirs.keys():
            old, new = before.get(slot, Counter()), after.get(slot, Counter())
            marked = [text for text, is_marked in old | new if is_marked]
            if ours.get(slot) == theirs.get(slot):  # a surrogate may name a limit once, another twice
                assert not marked and old.keys() == new.keys(), (b.name, slot)
            elif ours.get(slot) or theirs.get(slot):  # a weight of 0 has no term
                assert marked and plainly(old) != plainly(new), (b.name, slot)
        shared = before.get("", Counter()) & after.get("", Counter())
        assert not any(is_marked for _, is_marked in shared), b.name


def test_nothing_is_marked_against_itself():
    for algorithm in EVERY:
        told = formulas(algorithm, against=algorithm)
        assert "«" not in str(told) and "textcolor" not in told._repr_markdown_()
        assert {name for slot, name, _ in told.lines() if slot} == {"both"}
        assert [row for row, _ in told.rows] == rows_of(algorithm)


def test_a_changed_number_alone_is_marked_where_it_stands_and_in_the_numbers():
    told = [row for _, name, row in said(GRPO.with_parameters(beta=0.1), against=GRPO) if "«" in row]
    assert [re.findall("«[^»]*»", row) for row in told] == [["«β»"], ["«β»"], ["«β = 0.04»"], ["«β = 0.1»"]]
    same = formulas(GRPO.with_parameters(beta=0.1), against=GRPO)
    assert same.names == ("GRPO before", "GRPO after")


def test_two_numbers_of_one_name_are_told_apart():
    mixed = replace(GRPO, advantage=next(one for one in RELATIVES if one.name == "REINFORCE++").advantage)
    assert rows_of(mixed)[-1].parts(tex=False) == [
        "ε_low = 0.2,", "ε_high = 0.2,", "β_advantage = 0.01,", "β_kl = 0.04",
    ]  # fmt: skip


# rules of one's own, and of others


def test_a_rule_of_one_s_own_is_a_function_by_its_name():
    def my_bounds(old_logp, advantages):
        return 0.5, 1.5

    @dataclass(frozen=True)
    class HalfOf:
        share: float = 0.5

        def __call__(self, rewards):
            return self.share * rewards

    mine = replace(GRPO, bounds=my_bounds, advantage=HalfOf(), aggregate=lambda mask: mask.double(), kl=None)
    told = [" ".join(row.parts(tex=False)) for row in rows_of(mine)]
    assert told[0] == "J = Σ_g∈S Σ_i,t m·lambda(m) · [min(r·A, clip(r, ℓ, u)·A)]"
    assert told[1] == "ℓ, u = my_bounds(log π_old, A)"
    assert told[3] == "A = HalfOf(R)" and told[-1] == "share = 0.5"
    assert r"\text{my bounds}(\log \pi_{\text{old}},\ A_{i,t})" in formulas(mine)._repr_markdown_()
    estimated = replace(GRPO, kl=KLInLoss(0.1, lambda logp, ref_logp: logp))
    assert "− β·lambda(log π_θ, log π_ref)]" in str(formulas(estimated))


def test_two_rules_of_one_name_differ():
    one, other = (replace(GRPO, surrogate=lambda ratio, advantages, lower, upper, c=c: c * ratio) for c in (1, 2))
    told = formulas(one, against=other)
    assert "[«lambda»(r, A, 1 − ε_low, 1 + ε_high)" in str(told)
    assert [slot for slot, atoms in atoms_of(told, 1).items() if any(marked for _, marked in atoms)] == ["surrogate"]

    @says(formula="ratio · advantages")
    def alike(ratio, advantages, lower, upper):
        return ratio * advantages

    told = str(formulas(replace(GRPO, surrogate=alike), against=replace(GRPO, surrogate=unclipped)))
    assert "[«r»·«A» − β" in told


def test_a_formula_of_one_s_own_is_typeset_and_one_that_is_none_is_not():
    def rule(text):
        @says(formula=text)
        def leaky(ratio, advantages, lower, upper):
            return ratio * advantages

        return replace(GRPO, surrogate=leaky, kl=None)

    (first, *_), (second, *_) = (
        rows_of(rule(text))
        for text in ("max(ratio, slope) · advantages; slope = 1 if ratio > 2 else 0", "ratio · advantages, says who?")
    )
    assert first.parts(tex=False)[1] == "· [max(r, slope)·A]"
    assert second.parts(tex=False)[1] == "· [leaky(r, A, 1 − ε_low, 1 + ε_high)]"
    for none in (
        " + ".join(["ratio"] * 5000),
        "sqrt()",
        "sg(1, 2)",
        "choose(ratio)",
        "[ratio]",
        r"'\href{x}{y}' · ratio",
        "(" * 500,
        "ratio[0]",
        "ratio; x = __import__('os').x",
        "not ratio",
        "True",
        "1j",
    ):
        assert "leaky(r, A" in str(formulas(rule(none)))


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, attrs))

    def handle_data(self, data):
        self.words += data


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "$x$ a",
    "| a | b |",
    "`x`",
    "[a](javascript:alert(1))",
    r"\href{javascript:alert(1)}{a}",
    r"\(a\) \[b\]",
    "*a* _b_ ~~c~~",
    "https://example.org www.example.org a@example.org",
    "a\nb\x1b[31mc",
    "&lt;b&gt;",
)
COMMAND = re.compile(r"\\[a-zA-Z]+|\\.")


@pytest.fixture(scope="module")
def ordinary():
    """Return the commands of LaTeX in formulas of the family."""
    return {command for one in EVERY for command in COMMAND.findall(formulas(one, against=DAPO)._repr_markdown_())}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_name_brings_no_markup_no_mathematics_and_no_escape(hostile, ordinary):
    def rule(logp, old_logp, mask):
        return logp

    rule.__name__ = rule.__qualname__ = hostile
    told = formulas(replace(GRPO, name=hostile, ratio=rule), against=DAPO)
    text = told._repr_markdown_()
    page = Tags(markdown2html(text))
    assert {tag for tag, _ in page.tags} == {"table", "thead", "tbody", "tr", "th", "td", "p"}
    assert all(name in ("style", "align") for _, attributes in page.tags for name, _ in attributes)
    parts = [part for beside in told.rows for row in beside if row for part in row.parts(tex=True)]
    shown = [part for _, _, row in told.lines() for part in row.parts(tex=True)]
    assert text.count("$") == 2 * len(shown) and len(shown) <= len(parts)
    assert set(COMMAND.findall(text)) <= ordinary
    assert all(sign.isprintable() for line in text.splitlines() for sign in line)
    assert all(sign.isprintable() for _, _, row in told.lines() for part in row.parts(tex=False) for sign in part)


def test_brackets_stand_where_they_are_needed():
    for text, unicode, tex in (
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
    ):
        node = read(text, "", {})
        assert (Unicode().write(node), LaTeX().write(node)) == (unicode, tex)


def test_algorithms_by_name():
    assert str(formulas("dapo", against="GRPO")) == str(formulas(DAPO, against=GRPO))
    assert repr(formulas("grpo")) == str(formulas(GRPO))
    assert "sg[clip(r, 0, max_ratio)]·A·log r" in str(formulas(CISPO))
    assert isinstance(rows_of(FORKING_TOKENS)[0], Row) and "log(π_old / π_ref)" in str(formulas(RLOO))
    assert "1(H_old ≥ quantile(1 − share))" in str(formulas(FORKING_TOKENS)) and "log(π_θ / π_old)" in str(
        formulas(GSPO_TOKEN)
    )
    assert k1.formula in KLInReward(0.1).formula.replace("old_logp", "logp")
