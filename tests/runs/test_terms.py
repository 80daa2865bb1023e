"""Where a token's numbers come from, and what other algorithms would have done: by hand, and against the losses that train."""

import math
from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import ALGORITHMS, DCPO, DR_GRPO, GRPO, GSPO, KL_COV, PPO, PPO_PENALTY, GroupPolicyGradient
from rlviz.pieces.bounds import no_bounds
from rlviz.pieces.formula import parse_formula
from rlviz.pieces.kl import KLToOld
from rlviz.pieces.shaping import OverlongFilter, SoftOverlongPunishment
from rlviz.pieces.surrogate import unclipped
from rlviz.pieces.words import explained
from rlviz.runs.counterfactual import RecordedGroup, evaluate_group
from rlviz.runs.formula import FormulaLine, describe_gradient, fill_template, format_numbers
from rlviz.runs.terms import token_terms
from rlviz.training import TrainSettings, train
from rlviz.types import GroupRecord, ResponseRecord, TokenRecord
from small_models.policies import load_policy
from small_models.tasks import Chain

NO_KL = replace(GRPO, kl=None)
SETTINGS = TrainSettings(
    steps=2, num_prompts=4, group_size=4, updates_per_rollout=4, lr=1e-3, lr_warmup_steps=0, evaluate_every=0,
    details_every=2, details_groups=4,
)  # fmt: skip


def trained(algorithm, settings=SETTINGS):
    return list(train(load_policy("chain", device="cpu"), Chain(), algorithm, settings))


@pytest.fixture(scope="module")
def grpo():
    return trained(GRPO)[-1]


def token(ratio, *, old=0.5, advantage=1.0, weight=0.25, **more):
    """A token of GRPO without KL whose objective and push follow from its ratio by hand."""
    cut = (advantage > 0 and ratio > 1.2) or (advantage < 0 and ratio < 0.8)
    objective = min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)
    numbers = {
        "token": "7", "old_prob": old, "new_prob": old * ratio, "ref_prob": None, "ratio": ratio, "lower": 0.8, "upper": 1.2,
        "advantage": advantage, "clipped": cut, "objective": objective, "weight": weight,
        "push": 0.0 if cut else weight * ratio * advantage,
    }  # fmt: skip
    return TokenRecord(**numbers | more)


def find(terms, key):
    """Return the term with this key, wherever it stands; None where there is none."""
    return next((one for term in terms if (one := term if term.key == key else find(term.parts, key))), None)


def lines(terms, key):
    """Return the lines of a token's term with its numbers in them."""
    return fill_template(find(terms.terms, key).text, terms.numbers)


def response(reward, *tokens, correct=True, length=None):
    count = len(tokens) if length is None else length
    return ResponseRecord("7", reward, tokens[0].advantage, count, correct, True, False, tokens)


@pytest.fixture(scope="module")
def by_hand():
    """Two responses, one right: mean .5, std √.5 = .7071, A = ±.7071; ratios 1.1, 1.3 (clipped); .9, 1.0, .7 (clipped)."""
    a = math.sqrt(0.5)
    right = response(1.0, token(1.1, advantage=a), token(1.3, advantage=a))
    weights = {"advantage": -a, "weight": 1 / 6}
    wrong = response(0.0, token(0.9, **weights), token(1.0, **weights), token(0.7, old=0.01, **weights), correct=False)
    return GroupRecord("3+4=", "7", (right, wrong))


def test_terms_by_hand(by_hand, grpo):
    record = replace(grpo, groups=(by_hand,), responses_used=2, responses_sampled=2, response_length=2.5)
    terms = token_terms(NO_KL, record, by_hand)[0][1]
    assert lines(terms, "advantages") == "= (reward − mean) / (std + eps)\n= (1 − 0.500) / (0.707 + 1e−06)"
    assert lines(terms, "mean") == "of the 2 rewards of the group: 1, 0"
    assert lines(terms, "ratio") == "= exp(logp − old_logp)\n= exp(−0.431 − (−0.693))\n= exp(0.262)"
    assert lines(terms, "logp") == "= log(new_prob) = log(0.650), after this step's updates"
    assert (lines(terms, "lower"), lines(terms, "upper")) == (
        "= 1 − eps_low\n= 1 − 0.200",
        "= 1 + eps_high\n= 1 + 0.200",
    )
    assert lines(terms, "J").endswith("= min(0.919, 0.849)")  # 1.3 · .7071 and 1.2 · .7071
    assert lines(terms, "weight") == "= 1 / (B · length)\n= 1 / (2 · 2)"
    pushed = token_terms(NO_KL, record, by_hand)[1][0]
    assert lines(pushed, "push") == "= weight · ∂objective/∂log π = 0.167 · (−0.636)"  # .9 · −.7071
    # |push|: .25 · 1.1 · .7071 = .1945 of the right one; .9/6 and 1/6 of .7071: .1061 and .1179; .1061 / .4184 = 25.4 %
    assert pushed.numbers["share_of_push"] == "25.4%"
    assert lines(pushed, "share_of_push") == (
        "|push| among the 5 recorded tokens of this step, of 2 of the 2 responses in the loss"
    )


def test_a_long_response_names_its_first_log_ratios(grpo):
    one = response(1.0, *[token(1.0)] * 70)
    group = GroupRecord("3+4=", "7", (one, response(0.0, token(1.0))))
    terms = token_terms(GSPO, replace(grpo, groups=(group,)), group)[0][69]
    assert terms.numbers["log_ratios"] == ", ".join(["0"] * 60) + ", and 10 more"
    assert terms.numbers["mean_log_ratio"] == "0" and terms.numbers["length"] == "70"


def test_a_formula_that_does_not_give_the_record_is_not_shown(by_hand, grpo):
    record = replace(grpo, groups=(by_hand,), responses_used=7)
    terms = token_terms(NO_KL, record, by_hand)[0][0]
    assert lines(terms, "weight") == "= [sequence_mean](mask), of the whole rollout"  # 1 / (7 · 2) is not .25
    better = replace(by_hand, responses=(by_hand.responses[0], replace(by_hand.responses[1], reward=1.0)))
    terms = token_terms(NO_KL, replace(record, groups=(better,)), better)[0][0]
    assert lines(terms, "advantages").startswith("= [(R − mean) / std of group](rewards), which looks at more than")
    assert find(find(terms.terms, "advantages").parts, "reward")
    moved = replace(by_hand.responses[0].tokens[0], ratio=1.15, objective=1.15 * math.sqrt(0.5))
    other = replace(by_hand, responses=(replace(by_hand.responses[0], tokens=(moved,)), by_hand.responses[1]))
    terms = token_terms(NO_KL, replace(record, groups=(other,)), other)[0][0]
    assert lines(terms, "ratio") == "= [token_ratio](logp −0.598, old_logp −0.693)"
    terms = alone(replace(NO_KL, surrogate=unclipped), grpo, 1.3)
    assert lines(terms, "objective").startswith("GRPO gives 0.650 at this token's numbers, its record says 0.600")


def alone(algorithm, record, ratio, **more):
    """Return the terms of a token that is alone in its group; its advantage is .5 unless it is said."""
    one = token(ratio, **{"advantage": 0.5, **more})
    group = GroupRecord("3+4=", "7", (response(1.0, one),))
    return token_terms(algorithm, replace(record, groups=(group,)), group)[0][0]


def with_surrogate(text, call=lambda ratio, advantages, lower, upper: torch.tanh(ratio) * advantages):
    def mine(ratio, advantages, lower, upper):
        return call(ratio, advantages, lower, upper)

    return replace(NO_KL, surrogate=mine if text is None else explained(formula=text)(mine))


LEAKY = "min(ratio, upper) · advantages + 0.1 · (ratio − 1)"
LEAKS = with_surrogate(
    LEAKY, lambda ratio, advantages, lower, upper: ratio.minimum(upper) * advantages + 0.1 * (ratio - 1)
)
# ref .325 against new .65: x = log ½ = −.693, k3 = ½ + .693 − 1 = .193, · .04 = .00773
K3 = {"ref_prob": 0.325, "objective": 0.6 - 0.04 * (0.5 + math.log(2) - 1)}
# PPO-Penalty's: r − 1 − log r of 1.3 = .0376, · .01
TO_OLD = {"lower": 0.0, "upper": None, "objective": 0.65 - 0.01 * (0.3 - math.log(1.3))}
TANH, IN_NAMES = math.tanh(1.3) * 0.5, "[mine](ratio 1.300, advantages 0.500, lower 0.800, upper 1.200)"
# what trained a token of ratio 1.3 and A = .5, its record, a number of it, the lines of that number, and the number
LINES = (  # 1.3 · .5 = .65, clip(1.3, .8, 1.2) · .5 = .6, and the lesser of the two is .6
    (NO_KL, {}, "J", "min(ratio · advantages, clip(ratio, lower, upper) · advantages) | "
     "min(1.300 · 0.500, clip(1.300, 0.800, 1.200) · 0.500) | min(0.650, 0.600)", "0.600"),
    (GRPO, K3, "KL", "beta · (exp(ref_logp − logp) − (ref_logp − logp) − 1) | "
     "0.04 · (exp(−1.124 − (−0.431)) − (−1.124 − (−0.431)) − 1)", "0.00773"),
    (GRPO, K3, "objective", "0.600 − 0.00773", "0.592"),
    (PPO_PENALTY, TO_OLD, "KL", "beta · (exp(logp − old_logp) − (logp − old_logp) − 1) | "
     "0.01 · (exp(−0.431 − (−0.693)) − (−0.431 − (−0.693)) − 1)", "0.000376"),
    (replace(LEAKS, bounds=no_bounds), {"lower": 0.0, "objective": 0.63}, "upper", "[no_bounds](old_logp −0.693)", "1.200"),
    (LEAKS, {"objective": 0.63}, "J", f"{LEAKY} | min(1.300, 1.200) · 0.500 + 0.1 · (1.300 − 1)", "0.630"),  # .6 + .03
    # without a formula, with one that lies, that cannot be worked out, with a name or a function that nobody knows
    *((with_surrogate(text), {"objective": TANH}, "J", IN_NAMES, "0.431")
      for text in (None, "ratio · advantages", "advantages / (lower − lower)", "ratio · slope", "softplus(ratio)")),
)  # fmt: skip


@pytest.mark.parametrize(("algorithm", "more", "key", "text", "number"), LINES)
def test_the_lines_of_a_token_by_hand(algorithm, more, key, text, number, grpo):
    terms = alone(algorithm, grpo, 1.3, **more)
    assert lines(terms, key) == "\n".join(f"= {line}" for line in text.split(" | "))
    assert terms.numbers[key] == number


def test_the_slope_is_that_of_j_less_that_of_the_kl(grpo):
    """Of a token whose gradient is not cut, ratio · A; of β · k3 (k3 = e^d − d − 1, d = log π_ref − log π), β · (1 − e^d)."""
    k3 = {"ref_prob": 0.275, "objective": 0.55 - 0.04 * (0.5 + math.log(2) - 1), "push": 0.25 * (0.55 - 0.02)}
    terms = alone(GRPO, grpo, 1.1, **k3)  # new .55, e^d = ½
    assert fill_template(terms.sentence, terms.numbers) == (
        "Its gradient ∂(J − KL)/∂log π = 0.550 − 0.02 = 0.530; times its weight 0.250, it is pushed up by 0.133."
    )


BAD, CUT, PUSHED = {"advantage": -0.5, "clipped": False}, "Its gradient is cut: the ", "it is pushed down by"
WORDS = (  # algorithm, ratio, the token's record, what is said of it
    (NO_KL, 1.3, {}, f"{CUT}ratio 1.300 is above the upper limit 1.200, and A > 0."),
    (DCPO, 1.3, {**BAD, "clipped": True, "push": 0.0}, f"{CUT}surrogate is flat at the ratio 1.300, and A < 0."),
    (GRPO, 1.3, {"push": -0.005}, f"{CUT}ratio 1.300 is above the upper limit 1.200, and A > 0. The KL term still counts: "
     f"{PUSHED} 0.005."),
    (NO_KL, 1.3, BAD, "Its gradient ∂J/∂log π = ratio · ∂J/∂ratio = 1.300 · (−0.500) = −0.650; times its weight 0.250, "
     f"{PUSHED} 0.163."),
    (NO_KL, 1.3, {"observed": True}, "It is not in the loss: the task's environment wrote it, and the policy only read it."),
)  # fmt: skip


@pytest.mark.parametrize(("algorithm", "ratio", "more", "words"), WORDS)
def test_what_the_loss_does_in_words(algorithm, ratio, more, words):
    template, numbers = describe_gradient(algorithm, token(ratio, **{"advantage": 0.5, **more}))
    assert fill_template(template, format_numbers(numbers)) == words


def whole_rollout(logp, old_logp, mask):
    raise ValueError("logp must be of the whole rollout")


@pytest.mark.parametrize("more", [{}, {"old_prob": 1e-45, "new_prob": 1e-45}], ids=["a ratio of one's own", "rounded"])
def test_the_recorded_ratio_stands_in_for_what_a_group_does_not_give(more, grpo):
    """A ratio piece that needs all groups, and probabilities so small that float32 rounds them: J is .9 · .5."""
    algorithm = NO_KL if more else replace(NO_KL, ratio=whole_rollout)
    assert alone(algorithm, grpo, 0.9, **more).terms[0].key == "J"


def test_a_parameter_below_0_stands_in_brackets_behind_a_sign_and_below_a_power():
    node = parse_formula("shift² + ratio · shift + min(shift, ratio)").main
    assert FormulaLine({"shift": -0.5}).line(node) == "= (−0.500)² + {ratio!} · (−0.500) + min(−0.500, {ratio})"


def test_a_probability_that_vanished_is_no_error(grpo):
    gone = {"new_prob": 0.0, "ref_prob": 0.5, "advantage": -0.5, "objective": -0.4, "clipped": False, "push": -0.1}
    diverged = "The run had diverged: its numbers are not finite, so there is nothing to work out."
    assert alone(NO_KL, grpo, 0.0, **gone).sentence == diverged
    assert alone(NO_KL, grpo, 1e-30, **gone).numbers["J"] == "−0.400"


def worked_out(text):
    """Evaluate what stands in a line, as a reader with a calculator would."""
    python = text.removeprefix("= ").replace("·", "*").replace("−", "-").replace("∞", "math.inf")
    functions = {"min": min, "max": max, "clip": lambda x, low, high: min(max(x, low), high), "math": math}
    return eval(python, {"__builtins__": {}}, functions)


# one of each objective: the lines of a token depend on these pieces alone
TRAINABLE = {
    tuple(map(repr, (a.ratio, a.bounds, a.surrogate, a.kl))): a
    for a in reversed(ALGORITHMS)
    if isinstance(a, GroupPolicyGradient) and not a.asks_for("advantage", "step_ends")
}.values()


@pytest.mark.parametrize(
    "algorithm", [*TRAINABLE, replace(GRPO, kl=KLToOld(0.5)), replace(NO_KL, bounds=no_bounds)], ids=lambda a: a.name
)
def test_the_numbers_in_every_line_give_the_recorded_value(algorithm):
    record, counted = trained(algorithm, replace(SETTINGS, steps=1, num_prompts=2, details_every=1))[-1], 0
    for group in record.groups:
        for one, row in zip(group.responses, token_terms(algorithm, record, group), strict=True):
            for recorded, terms in zip(one.tokens, row, strict=True):
                if not recorded.weight:
                    continue
                penalty = worked_out(terms.numbers["KL"]) if algorithm.kl else 0.0
                if "log_ratios" in terms.numbers:  # of a sequence
                    logs = [worked_out(log) for log in terms.numbers["log_ratios"].split(", ")]
                    assert sum(logs) / len(logs) == pytest.approx(math.log(recorded.ratio), abs=1e-3)
                    assert len(logs) == one.length and "exp(mean_log_ratio)" in lines(terms, "ratio")
                size = max(1.0, recorded.ratio, abs(recorded.advantage))
                first, *more = lines(terms, "J").split("\n")
                assert more and first.startswith(("= min(", "= max(min("))
                for line in (*more, terms.numbers["J"]):
                    assert worked_out(line) == pytest.approx(recorded.objective + penalty, abs=1e-3 * size)
                if algorithm.kl is not None:
                    assert worked_out(lines(terms, "objective")) == pytest.approx(recorded.objective, abs=2e-3)
                counted += 1
    assert counted > 20


def test_other_algorithms_by_hand(by_hand):
    rows = {row.algorithm.name: row for row in evaluate_group(NO_KL, ALGORITHMS, by_hand)}
    a = math.sqrt(0.5)
    # one group of 2 responses: weights 1/(2·2), 1/(2·3); clipped: 1.3 with A > 0, .7 with A < 0
    expected = torch.tensor([[[1.1 * a / 4, 0, 0], [-0.9 * a / 6, -a / 6, 0]]]).double()
    torch.testing.assert_close(rows["GRPO"].pushes, expected, rtol=1e-6, atol=1e-9)
    # DAPO: 1/5 a token, and 1.28 above: 1.3 is clipped there too
    torch.testing.assert_close(
        rows["DAPO"].pushes, torch.tensor([[[1.1, 0, 0], [-0.9, -1, 0]]]).double() * a / 5, rtol=1e-6, atol=1e-9
    )
    assert rows["DAPO"].reasons["aggregate"][0, 0, 0] and not rows["DAPO"].reasons["bounds"].any()
    # Dr.GRPO: A = ±.5, 1/(2 · 16) a token
    torch.testing.assert_close(
        rows["Dr.GRPO"].pushes, torch.tensor([[[1.1, 0, 0], [-0.9, -1, 0]]]).double() * 0.5 / 32, rtol=1e-6, atol=1e-9
    )
    # GSPO: one ratio for a response, here √(1.1 · 1.3)
    assert float(rows["GSPO"].output.ratio[0, 0, 1]) == pytest.approx(math.sqrt(1.43))
    # DCPO: .7 at old probability .01 is within [.5, …]: it is pushed where fixed limits cut it, and the bounds are why
    assert float(rows["DCPO"].output.lower[0, 1, 2]) == 0.5
    assert float(rows["DCPO"].pushes[0, 1, 2]) == pytest.approx(-0.7 * a / 3)
    assert rows["DCPO"].reasons["bounds"][0, 1, 2] and not rows["DCPO"].reasons["bounds"][0, 1, 0]
    assert rows["DCPO"].needs == ("its A needs what this prompt earned before; here the run's A",)
    assert rows["PPO"].needs == ("its A needs probabilities under a reference; here the run's A",)
    assert rows["DPO"].pushes is None and "pairs of a chosen and a rejected response" in rows["DPO"].needs[0]
    # first visit: DCPO's std is the population's, ½: A = ±1
    first = {row.algorithm.name: row for row in evaluate_group(NO_KL, [DCPO], by_hand, first_visit=True)}["DCPO"]
    assert first.needs == () and float(first.advantages[0, 0, 0]) == pytest.approx(1.0)


PUNISHED = SoftOverlongPunishment(max_length=4, cache=2)  # from length 2 on: −½ at 3, −1 at 4
EARLIER = SoftOverlongPunishment(max_length=4, cache=4)  # from 0 on: −½ at 2, −¾ at 3
SHAPED = (  # recorded rewards of a right and a wrong answer, lengths, the other's shape, and its centred advantage by hand
    ("the same shape: as recorded, .5 and 0", (0.5, 0.0), (3, 2), PUNISHED, 0.25),
    ("none: 1 and 0, before the run's −½", (0.5, 0.0), (3, 2), None, 0.5),
    ("another: 1 − ¾ and 0 − ½", (0.5, 0.0), (3, 2), EARLIER, 0.375),
    ("nothing was shaped: .3 − ½ and 0 − ½", (0.3, 0.0), (2, 2), EARLIER, 0.15),
    ("from what cannot be known: as recorded", (0.7, 0.1), (3, 2), EARLIER, 0.3),
)


@pytest.mark.parametrize(
    ("rewards", "lengths", "shape", "advantage"), [row[1:] for row in SHAPED], ids=[row[0] for row in SHAPED]
)
def test_rewards_are_shaped_once_by_the_other_algorithm_and_never_again(rewards, lengths, shape, advantage):
    run, other = replace(NO_KL, shape=PUNISHED), replace(DR_GRPO, kl=None, shape=shape)
    answers = [
        response(reward, *[token(1.0)] * length, correct=right)
        for reward, length, right in zip(rewards, lengths, (True, False), strict=True)
    ]
    _, row = evaluate_group(run, [other], GroupRecord("3+4=", "7", tuple(answers)))
    assert [float(x) for x in row.advantages[0, :, 0]] == pytest.approx([advantage, -advantage])
    assert bool(row.needs) == (rewards == (0.7, 0.1))


def test_what_the_record_of_a_run_with_a_reference_lacks(grpo):
    """Values of a critic for the two that have one, pairs for DPO; the others have all that they ask for."""
    rows = evaluate_group(GRPO, ALGORITHMS, grpo.groups[0], first_visit=True)
    assert {row.algorithm.name for row in rows if row.needs} == {"PPO", "PPO-Penalty", "DPO"}
    assert [row.algorithm.name for row in rows if row.pushes is None] == ["DPO"]
    valued = token(1.0, value=0.5, ref_prob=0.5)
    _, ppo = evaluate_group(NO_KL, [PPO], GroupRecord("3+4=", "7", (response(1.0, valued), response(0.0, valued))))
    assert not ppo.needs and not torch.equal(ppo.advantages, torch.ones(1, 2, 1))


def test_what_no_loss_saw_stays_out_of_a_group():
    """What a tool wrote in a group that was not selected, where nothing has a weight; a response that min_old_prob left out."""
    written, read = token(1.0, weight=0.0), token(1.0, weight=0.0, observed=True)
    group = GroupRecord("3+4=", "7", (response(1.0, written, read, written), response(0.0, written)))
    assert RecordedGroup.from_record(group).batch.mask.tolist() == [[[True, False, True], [True, False, False]]]
    group = GroupRecord("3+4=", "7", (response(1.0, token(1.0), token(1.0)), response(0.0, written)))
    pushes = evaluate_group(NO_KL, [], group)[0].pushes
    assert pushes[0, 0].all() and not pushes[0, 1].any()
    cut_off = replace(response(0.0, token(1.0)), truncated=True)
    group, filtered = (
        GroupRecord("3+4=", "7", (response(1.0, token(1.0)), cut_off)),
        replace(NO_KL, shape=OverlongFilter()),
    )
    assert evaluate_group(NO_KL, [filtered], group)[1].pushes.bool().tolist() == [[[True], [False]]]


def test_what_a_run_chose_among_all_its_tokens_stays_chosen_in_a_group():
    """Two equal tokens, of which the record says that the second was chosen: KL-Cov adds −β |log r| to it alone."""
    algorithm = KL_COV.with_parameters(share=0.3)
    group = GroupRecord("3+4=", "7", (response(1.0, token(1.1, chosen=False), token(1.1, chosen=True)),))
    pushes = evaluate_group(algorithm, [], group)[0].pushes[0, 0].tolist()
    assert pushes[0] == pytest.approx(1.1 / 2) and pushes[1] == pytest.approx((1.1 - KL_COV.surrogate.beta) / 2)
    *_, beside = evaluate_group(NO_KL, [algorithm], group)
    assert any("chooses among the tokens of the whole update" in need for need in beside.needs)
