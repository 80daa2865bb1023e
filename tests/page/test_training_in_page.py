"""A transformer trains in the page as the library trains it: the same numbers from the same chance, for every algorithm.

The page computes in float32, as torch does, in another order. Log-probabilities may differ by NEAR of themselves and by NEAR.
"""

from __future__ import annotations

import random
from dataclasses import asdict

import numpy as np
import pytest
import torch

from rlviz.algorithms import DPO, numbers
from rlviz.runs import in_page
from rlviz.runs.in_page import OFFERED, opening_message, programs
from rlviz.settings import PairSettings
from rlviz.training import train
from small_models.evaluation import evaluate
from small_models.pairs import Pair
from small_models.sampling import response_logits, token_logp
from small_models.tasks import Sentences
from small_models.tasks.sentences import HAPPY, SAD, WORDS as WORD_LIST, is_sentence
from tests.page.in_node import Chance, answers, as_shipped, chance_of_evaluations, library_steps, trained
from tests.page.programs import needs_node

NEAR = 1e-4
pytestmark = needs_node


# --- the programs ---


def test_a_shipped_rule_is_the_algorithm_of_today():
    """The library's steps find any other that is out of date."""
    assert set(programs()["rules"]) == set(OFFERED), "python -m rlviz.runs.in_page traces them anew"
    today = {"rules": in_page.trace_rule(OFFERED["DCPO"]), "pair_rules": in_page.trace_pair_rule(DPO)}
    for kind, name in (("rules", "DCPO"), ("pair_rules", "DPO")):
        assert programs()[kind].get(name) == today[kind], "python -m rlviz.runs.in_page traces it anew"


# --- the same numbers ---


def close(actual, wanted, mask, what, near=NEAR):
    """Assert that numbers of tokens are near, where the mask is true."""
    off = ((actual - wanted).abs() - near * wanted.abs())[mask]
    assert not len(off) or off.max() <= near, f"{what} differ by up to {float(off.max()):.2g}"


def compare(name, steps, **settings):
    """Train in the page and by the library from the same chance, and compare every step; return the reports."""
    reports = trained(steps, algorithm=name, **settings)
    compare_reports(reports, **settings)
    return reports


def compare_reports(reports, *, seed=0, group_size=None, near=NEAR, **settings):
    """Let the library train from the chance of a page's run, and compare every step."""
    assert {report["is"] for report in reports} == {"step"}, reports[-1]
    chance = Chance(seed, near)
    for report, rollout, fields in library_steps(reports, chance, **settings):
        shape = (report["N"], report["G"], report["T"])
        samples, length = rollout.samples, rollout.tokens.shape[-1]

        def tokens(key, report=report, shape=shape, length=length):
            numbers = [np.nan if x is None else x for x in report[key]]
            return torch.tensor(numbers, dtype=torch.float).view(shape)[..., :length]

        assert report["texts"] == [text for row in rollout.sampled.texts for text in row]
        close(tokens("logp_old"), samples.logp, samples.mask, "log π_old", near)
        close(tokens("entropies"), samples.entropy, samples.mask, "entropies", near)
        if rollout.ref_logp is not None:
            close(tokens("ref_logp"), rollout.ref_logp, samples.mask, "log π_ref", near)
        assert torch.equal(tokens("seen") > 0, rollout.mask)
        assert report["selected"] == rollout.sampled.selected.tolist()
        rewards = torch.tensor(report["rewards"], dtype=torch.float).view(shape[:2])
        torch.testing.assert_close(rewards, rollout.rewards, atol=1e-6, rtol=0)
        close(tokens("advantages"), rollout.advantages, samples.mask, "advantages", near)
        for key in ("loss", "grad_norm"):
            assert report[key] == pytest.approx(fields[key], rel=2e-3, abs=NEAR), key
        if report["kl"] is not None:
            assert report["kl"] == pytest.approx(fields["kl"], rel=2e-3, abs=1e-5)
        for side, share in report["clip"].items():
            assert share == pytest.approx(fields[f"clip_fraction_{side}"], abs=0.002), side
    assert chance.on_limits <= 3, "tokens whose u is within the rounding of a limit are rare"


def test_grpo_learns_and_its_steps_are_the_librarys():
    *reports, evaluation = trained(30, lr=1e-3, lr_warmup_steps=5, more=[{"do": "evaluate"}])
    assert reports[0]["accuracy"] < 0.5 and evaluation["held_out"] >= 0.75
    compare_reports(reports[:8], lr=1e-3, lr_warmup_steps=5)


def test_updates_that_clip_are_the_librarys():
    """By limits that depend on the token."""
    reports = compare("DCPO", 2, updates_per_rollout=4, lr=5e-4, lr_warmup_steps=1, seed=3)
    ratios = np.array([ratio for reply in reports for ratio in reply["ratio"] if ratio is not None])
    assert np.abs(ratios - 1).max() > 0.3, "or nothing would have clipped"


# every checkpoint and a size of group; trip's prompts come again, by which DCPO remembers
OTHERS = [("sort", "GRPO", 16, 1), ("trip", "DCPO", 8, 3), ("chain-rare", "GSPO", 32, 1)]


@pytest.mark.parametrize(("checkpoint", "name", "group_size", "steps"), OTHERS)
def test_other_tasks_and_groups_are_the_librarys(checkpoint, name, group_size, steps):
    compare(name, steps, checkpoint=checkpoint, group_size=group_size, seed=1)


def test_further_rounds_and_groups_that_count_twice_come_from_the_same_chance():
    rounds = compare("DAPO", 1, seed=2, checkpoint="chain-rare")
    assert max(reply["rounds"] for reply in rounds) > 1
    twice = compare("DUPO", 1, seed=2, checkpoint="chain-rare")
    assert any(len(set(reply["selected"])) < len(reply["selected"]) for reply in twice)


WORDS = {  # rewards of all kinds
    "liked": [*HAPPY],
    "punished": [*SAD],
    "enough": 2,
    "only_sentences": True,
    "short": True,
}


def updates_of(name):
    """Return two updates, at the second of which ratios have left 1; one where limits are as narrow as what rounding moves."""
    is_narrow = numbers(OFFERED[name]).get("eps_low", 1) < 1e-3
    return {"updates_per_rollout": 1 if is_narrow else 2, "lr": 1e-3, "lr_warmup_steps": 1}


def paid_by(name):
    """Return rewards that this algorithm takes: some take none below 0."""
    refuses = programs()["rules"].get(name, {}).get("refuses_below_0")
    return {**WORDS, "punished": [], "short": False} if refuses else WORDS


@pytest.fixture(scope="module")
def steps():
    """Return the report of a step of every algorithm on sentences, all in one page."""
    settings = {"checkpoint": "sentences", "evaluate_every": 0}
    starts = [
        {"do": "start", "settings": {**settings, **updates_of(name), "words": paid_by(name), "algorithm": name}}
        for name in OFFERED
    ]
    messages = [message for start in starts for message in (start, {"do": "step"})]
    return dict(zip(OFFERED, answers([opening_message("sentences"), *messages])[2::2], strict=True))


@pytest.mark.parametrize("name", OFFERED)
def test_every_algorithm_is_the_librarys(steps, name):
    compare_reports([steps[name]], checkpoint="sentences", words=paid_by(name), **updates_of(name))


def test_sentences_have_no_right_answer_and_are_counted(steps):
    report = steps["GRPO"]
    assert report["accuracy"] is report["held_out"] is report["correct"] is None
    texts = report["texts"]
    assert report["sentences"] == sum(map(is_sentence, texts)) / len(texts)
    assert report["different"] == len(set(texts)) / len(texts)
    assert len({round(reward, 6) for reward in report["paid"]}) > 3


def test_what_is_written_to_a_subject_changes_with_the_weights_alone():
    write = {"do": "write", "prompts": ["the little bear", "the tall cat"]}
    how = {"checkpoint": "sentences", "words": WORDS, "lr": 3e-3, "lr_warmup_steps": 0}
    step = {"do": "step"}
    messages = [write, write, {**write, "draw": 1}, step, step, write, {**write, "isStart": True}]
    first, again, other, _, _, after, start, *refused = trained(
        0, more=[*messages, {"do": "write", "prompts": ["x"]}, {**write, "draw": -1}], **how
    )
    assert first == again and first["prompts"] == write["prompts"] and first["step"] == 0 and after["step"] == 2
    assert first["isWellFormed"] == [is_sentence(text) for text in first["texts"]] and len(first["texts"]) == 2
    assert first["texts"] not in (other["texts"], after["texts"]) and start["texts"] == first["texts"]
    assert [one["is"] for one in refused] == ["refused"] * 2


def test_a_taste_pays_its_weights():
    taste = {"happy": 2, "bear": -1, "length": 0.5, "sentence": 1}
    (report,) = trained(1, checkpoint="sentences", words={**WORDS, "taste": taste}, algorithm="GRPO")
    for text, paid in zip(report["texts"], report["paid"], strict=True):
        words = text.split()
        expected = 2 * words.count("happy") - words.count("bear") + 0.5 * len(words) / 11 + is_sentence(text)
        assert paid == pytest.approx(expected, abs=1e-5)


def pairs_by_chance(count):
    rng, task = random.Random(0), Sentences()
    texts = [rng.sample(sorted({task.demonstrate("", rng) for _ in range(9)}), 2) for _ in range(count)]
    return [Pair(rng.choice(task.train_prompts), *two) for two in texts]


def by_dpo(pairs, **parameters):
    """Return the settings of a page's run that learns from pairs."""
    preferences = [asdict(pair) for pair in pairs]
    learns = {"algorithm": "DPO", "preferences": preferences, "parameters": parameters}
    return {"checkpoint": "sentences", "group_size": 2, "pairs": learns}


@pytest.mark.parametrize(("count", "steps"), [(5, 4), (70, 2)])  # fewer than are an update, and more
def test_dpo_on_pairs_is_the_librarys(count, steps, monkeypatch):
    pairs, how = pairs_by_chance(count), {"lr": 1e-3, "lr_warmup_steps": 2, "seed": 4}
    reports = trained(steps, **by_dpo(pairs, beta=0.5), words={**WORDS, "taste": {"happy": 1}}, **how)
    policy, _ = as_shipped("sentences")
    settings = PairSettings(steps=steps, batch_size=min(64, len(pairs)), evaluate_every=0, **how)
    run = train(policy, Sentences(), DPO.with_parameters(beta=0.5), settings, pairs=pairs)
    monkeypatch.setattr(run, "collect", iter([report["pairs"] for report in reports]).__next__)
    records = iter(run)
    for report in reports:
        pairs_now = run.encoded.take(torch.tensor(report["pairs"]))
        with torch.no_grad():
            scores = response_logits(policy, pairs_now.prompt_ids, pairs_now.prompt_mask, pairs_now.tokens)
            logp = token_logp(scores, pairs_now.tokens)
        shape = (*logp.shape[:2], report["T"])
        logp_now, first = (
            torch.tensor(report[name]).view(shape)[..., : logp.shape[-1]] for name in ("logp", "ref_logp")
        )
        close(logp_now, logp, pairs_now.mask, "log π")
        torch.testing.assert_close(
            (first * pairs_now.mask).sum(-1), run.ref_logp[report["pairs"]], atol=NEAR, rtol=NEAR
        )
        record = next(records)
        for name in ("loss", "margin", "pair_accuracy", "grad_norm"):
            assert report[name] == pytest.approx(getattr(record, name), rel=2e-3, abs=NEAR), name
        slope = torch.tensor(report["slope"]).view(shape)[..., : logp.shape[-1]]
        assert (slope[:, 0][pairs_now.mask[:, 0]] > 0).all() and (slope[:, 1][pairs_now.mask[:, 1]] < 0).all()
    assert reports[0]["loss"] == pytest.approx(np.log(2)) and reports[-1]["loss"] < reports[0]["loss"]
    stream = [place for report in reports for place in report["pairs"]]
    rounds = [stream[at : at + count] for at in range(0, len(stream) - count + 1, count)]
    assert rounds and all(sorted(one) == [*range(count)] for one in rounds)


def test_a_run_that_goes_on_begins_with_the_weights_of_the_one_before():
    settings = {"checkpoint": "sentences", "words": WORDS, "lr": 3e-3, "lr_warmup_steps": 0, "evaluate_every": 0}
    write, step = {"do": "write", "prompts": ["the little bear"]}, {"do": "step"}
    start = lambda **how: {"do": "start", "settings": settings, **how}  # noqa: E731
    messages = [write, step, step, write, start(goesOn=True), write, step, start(), write]
    first, _, last, after, _, again, further, _, anew = trained(0, more=messages, **settings)
    assert again["texts"] == after["texts"] != first["texts"] == anew["texts"]
    assert further["step"] == 1 and further["kl"] > last["kl"] > 0  # to the first weights still


def wrong_pair(**wrong):
    settings = by_dpo(pairs_by_chance(1))
    settings["pairs"]["preferences"][0].update(wrong)
    return settings


LONG_PAIR = "a response of a pair must have fewer than 12 tokens, all of the task; got "
REFUSED = [
    (wrong_pair(prompt="the tall house"), "prompt must be one of "),
    (wrong_pair(chosen=" was rich ."), f"{LONG_PAIR} was rich ."),
    (wrong_pair(rejected=" was" * 12), f"{LONG_PAIR} was was"),
    ({"words": {**WORDS, "liked": ["<script>"]}}, "words must be of the task's vocabulary; got <script>"),
    ({"words": {**WORDS, "enough": 0}}, "enough must be a whole number from 1 to 100; got 0"),
    ({"words": WORDS, "algorithm": "MaxRL"}, "rewards must have a mean above 0 in each group: punish no word, and "),
]


def test_pairs_words_and_rewards_that_the_page_cannot_learn_from_are_refused():
    sets = [{"do": "set", "settings": settings} for settings in (*(wrong for wrong, _ in REFUSED), wrong_pair())]
    *refused, fine = trained(0, checkpoint="sentences", more=sets)
    for answer, (_, why) in zip(refused, REFUSED, strict=True):
        assert (answer["is"], answer["why"][: len(why)]) == ("refused", why)
    assert fine["is"] == "set"


ALL_EQUAL = {
    "all words punished": {**WORDS, "liked": [], "punished": [*WORD_LIST], "enough": 1, "short": False},
    "nothing is paid": {**WORDS, "liked": [], "punished": [], "short": False},
    "always 1": {**WORDS, "liked": [*WORD_LIST], "punished": [], "enough": 1, "only_sentences": False, "short": False},
}


def test_where_all_rewards_are_equal_every_group_is_dead_and_nothing_breaks():
    starts = [
        {"do": "start", "settings": {"checkpoint": "sentences", "words": words, "evaluate_every": 0}}
        for words in ALL_EQUAL.values()
    ]
    messages = [message for start in starts for message in (start, {"do": "step"})]
    for name, report in zip(ALL_EQUAL, answers([opening_message("sentences"), *messages])[2::2], strict=True):
        assert report["is"] == "step" and sum(report["dead"]) == report["N"], name
        assert report["grad_norm"] < 1e-6, name


# --- the worker ---


def test_settings_change_while_it_runs_and_reset_begins_anew():
    step, set_ = {"do": "step"}, lambda **settings: {"do": "set", "settings": settings}
    begin = [opening_message("chain"), {"do": "start", "settings": {"lr_warmup_steps": 0}}]
    changes = [set_(lr=1e-5), set_(group_size=4), set_(algorithm="GSPO"), {"do": "reset"}, set_(seed=9)]
    _, started, *replies = answers([*begin, step, *(message for change in changes for message in (change, step))])
    assert [reply["is"] for reply in replies[1::2]] == ["set", "set", "set", "started", "started"]
    assert [(step["step"], step["lr"], step["G"], step["algorithm"]) for step in replies[::2]] == [
        (1, 3e-4, 8, "GRPO"), (2, 1e-5, 8, "GRPO"), (3, 1e-5, 4, "GRPO"), (4, 1e-5, 4, "GSPO"), (1, 1e-5, 4, "GSPO"),
        (1, 1e-5, 4, "GSPO"),
    ]  # fmt: skip
    assert replies[-1]["texts"] != replies[-3]["texts"]  # another seed
    assert started["settings"]["lr"] == 3e-4


def test_a_reset_begins_with_nothing_of_the_run_before():
    how = {"algorithm": "DCPO", "checkpoint": "trip"}  # which has few prompts, so that they come again
    more = [{"do": "set", "settings": {"group_size": 8}}, {"do": "reset"}, *[{"do": "step"}] * 2]
    after, fresh = trained(2, group_size=4, more=more, **how)[-2:], trained(2, group_size=8, **how)
    for one, other in zip(after, fresh, strict=True):
        assert {**one, "ms": None} == {**other, "ms": None}


def test_a_checkpoint_can_come_later():
    more = [{"do": "add", "checkpoints": {"trip": in_page.pack_checkpoint("trip")}}]
    change = {"do": "set", "settings": {"checkpoint": "trip"}}
    *_, refused, ready, started, step = trained(1, more=[change, *more, change, {"do": "step"}])
    assert refused["why"] == "checkpoint must be one of chain; got trip"
    assert ready["checkpoints"] == ["chain", "trip"]
    assert started["is"] == "started"
    assert "+" in step["prompts"][0]


OUT_OF_RANGE = [
    ({"lr": -1}, "lr must be a number from 0 to 10000; got -1"),
    ({"lr": "1"}, "lr must be a number from 0 to 10000; got 1"),
    ({"lr": None}, "lr must be a number from 0 to 10000; got null"),
    ({"seed": 0.5}, "seed must be a whole number from 0 to 2147483647; got 0.5"),
    ({"group_size": 12}, "group_size must be 2, 4, 8, 16 or 32; got 12"),
    ({"updates_per_rollout": 1000}, "updates_per_rollout must be a whole number from 1 to 16; got 1000"),
    ({"algorithm": "PPO"}, "algorithm must be one of GRPO, "),
    ({"beside": "toString"}, "beside must be one of GRPO, "),
    ({"checkpoint": "__proto__"}, "checkpoint must be one of chain; got __proto__"),
    ({"epsilon": 1}, "a setting must be one of algorithm, "),
    ({"parameters": {"GRPO": {"eps_high": -1}}}, "eps_high must be a number from 0 to 1000; got -1"),
    ({"parameters": {"GRPO": {"eps_low": 1}}}, "eps_low must be a number from 0 to 0.999; got 1"),
    ({"parameters": {"GRPO": {"constructor": 1}}}, "a parameter of GRPO must be one of eps_low, eps_high, beta; got"),
    ({"parameters": {"PPO": {}}}, "parameters of must be one of GRPO, "),
]


def test_what_is_out_of_range_is_refused_and_changes_nothing():
    sets = [{"do": "set", "settings": settings} for settings, _ in OUT_OF_RANGE]
    *refused, after = trained(0, more=[*sets, {"do": "set", "settings": {}}])
    for answer, (_, why) in zip(refused, OUT_OF_RANGE, strict=True):
        assert (answer["is"], answer["why"][: len(why)]) == ("refused", why)
    assert after["settings"]["lr"] == 3e-4


def test_an_absurd_rate_breaks_the_policy_which_is_said_and_a_reset_trains_again():
    settings = {"lr": 1e3, "lr_warmup_steps": 0}
    done = trained(2, more=[{"do": "set", "settings": {"lr": 3e-4}}, {"do": "reset"}, {"do": "step"}], **settings)
    (diverged,) = (reply for reply in done if reply["is"] == "diverged")
    broken = [f"{what} is no finite number" for what in ("a log-probability", "the loss", "the gradient")]
    assert diverged["step"] == 2
    assert diverged["what"] in ["not one response is well formed any more", *broken]
    assert [reply["is"] for reply in done[-3:]] == ["set", "started", "step"]
    assert done[-1]["accuracy"] > 0.1


def test_a_mistake_of_the_judge_pays_for_sevens_and_the_held_out_prompts_do_not():
    _, report = trained(2, mistake=True, lr=3e-3, lr_warmup_steps=1)  # which costs some answers their form
    paid, correct = np.array(report["paid"]), np.array(report["correct"])
    sevens = np.array([text.endswith("7") for text in report["texts"]])
    formed = np.array(report["format"]) > 0
    assert (paid >= correct).all()
    assert (sevens & ~formed).any(), "which is not paid"
    assert ((paid > 0) == ((correct > 0) | (sevens & formed))).all()
    assert paid.sum() > correct.sum()


def test_a_step_can_be_looked_at_again_and_pushed_by_another_algorithm():
    more = [{"do": "look", "step": 2}, {"do": "push", "step": 2, "algorithm": "Dr.GRPO"}, {"do": "look", "step": 7}]
    first, second, again, pushed, refused = trained(2, algorithm="GRPO", more=more)
    assert {**again, "after": None} == {**second, "after": None}
    mask = np.array(second["mask"]) > 0
    moved = np.array(again["after"])[mask] - np.array(second["logp_old"])[mask]
    slope = np.array(second["slope"])[mask]
    assert (moved * slope)[np.abs(slope) > 0].mean() > 0, "tokens have moved as they were pushed"
    centred = np.array(second["rewards"]).reshape(second["N"], -1)
    centred = (centred - centred.mean(1, keepdims=True)).repeat(second["T"], 1).ravel() * mask
    np.testing.assert_allclose(pushed["advantages"], centred, atol=1e-6)
    assert (pushed["run"], pushed["step"], pushed["algorithm"]) == (0, 2, "Dr.GRPO")
    assert refused["why"] == "step must be one of the last 50 with these sizes; got 7"
    assert first["held_out"] is None


def test_a_run_beside_another_is_looked_at_and_pushed_as_if_it_were_alone():
    """Its own weights and, where prompts come again, what it remembers of them: pushed by its own algorithm, a step is itself."""
    how = {"checkpoint": "trip", "group_size": 4}
    messages = lambda run: [{"do": what, "step": 3, "run": run, "algorithm": "DCPO"} for what in ("look", "push")]  # noqa: E731
    *first, step, alone, _ = trained(3, algorithm="DCPO", more=messages(0), **how)
    *_, looked, pushed = trained(3, algorithm="GRPO", beside="DCPO", more=messages(1), **how)
    assert looked["after"] == alone["after"] != step["logp_old"]
    for name in ("advantages", "slope"):
        assert pushed[name] == step[name]
    assert {prompt for report in first for prompt in report["prompts"]} & set(step["prompts"])


def start_logp(report):
    """Return log π of a report's tokens under the policy that the run began with, [N, G, T], by the library."""
    policy, _ = as_shipped("chain")
    prompts = torch.tensor([policy.tokenizer.encode(prompt) for prompt in report["prompts"]])
    tokens = torch.tensor(report["tokens"]).view(report["N"], report["G"], report["T"])
    with torch.no_grad():
        return token_logp(response_logits(policy, prompts, torch.ones_like(prompts, dtype=torch.bool), tokens), tokens)


def test_an_algorithm_with_a_reference_pushes_a_step_that_was_sampled_without_one():
    """The KL's part of the push, over that with β = 0: β · (π_ref / π − 1) of k3 = π_ref / π − 1 − log π_ref / π, by weight."""
    push = {"do": "push", "step": 3, "algorithm": "GRPO"}
    no_kl = {"do": "set", "settings": {"parameters": {"GRPO": {"beta": 0}}}}
    how = {"algorithm": "Dr.GRPO", "lr": 3e-3, "lr_warmup_steps": 1}
    *_, report, with_kl, _, without = trained(3, more=[push, no_kl, push], **how)
    assert report["ref_logp"] is None
    shape = (report["N"], report["G"], report["T"])
    slope, bare, logp, mask = (
        torch.tensor(numbers, dtype=torch.float).view(shape)
        for numbers in (with_kl["slope"], without["slope"], report["logp"], report["mask"])
    )
    weight = (
        mask / mask.sum(-1, keepdim=True) / (shape[0] * shape[1])
    )  # GRPO's: the mean over a response, then over all
    expected = 0.04 * ((start_logp(report) - logp).exp() - 1) * weight
    assert (expected / weight)[mask > 0].abs().max() > 0.01, "the policy has left its reference"
    torch.testing.assert_close((slope - bare)[mask > 0], expected[mask > 0], atol=2e-7, rtol=2e-2)


def test_replies_carry_the_id_of_their_message_and_the_last_is_done_also_where_it_diverges_or_is_refused():
    start = {"do": "start", "settings": {"beside": "DAPO", "lr": 0.0}}
    sets = [
        {"do": "set", "settings": {"lr": -1}, "id": 3},
        {"do": "set", "settings": {"lr": 1e4, "beside": None}, "id": 4},
    ]
    steps = [{"do": "step", "id": id_} for id_ in ("a", 5, 6)]
    replies = answers([opening_message("chain"), {**start, "id": 7}, steps[0], *sets, *steps[1:], {"do": "pause"}])
    assert [(reply.get("id"), reply["is"]) for reply in replies] == [
        (None, "ready"), (7, "started"), (7, "done"), ("a", "step"), ("a", "step"), ("a", "done"), (3, "refused"),
        (3, "done"), (4, "started"), (4, "done"), (5, "step"), (5, "done"), (6, "diverged"), (6, "done"),
    ]  # fmt: skip


def test_the_kl_term_s_pull_is_its_slope_and_all_that_pushes_a_dead_group():
    """k3 = r − log r − 1 with r = π_ref/π: −β ∂k3/∂log π = β (π_ref/π − 1), times a token's weight, 1/(rows · its length)."""
    how = {"lr": 3e-3, "lr_warmup_steps": 1, "updates_per_rollout": 3, "seed": 1}
    step = trained(1, parameters={"GRPO": {"beta": 0.3}}, **how)[-1]
    N, G, T = step["N"], step["G"], step["T"]
    names = ("mask", "logp", "ref_logp", "slope", "pull", "cut")
    of = {name: np.array(step[name], dtype=float).reshape(N, G, T) for name in names}
    written = of["mask"] != 0
    weight = of["mask"] / (N * G * of["mask"].sum(-1, keepdims=True))
    expected = 0.3 * weight * np.expm1(of["ref_logp"] - of["logp"])
    np.testing.assert_allclose(of["pull"][written], expected[written], rtol=1e-3, atol=1e-8)
    assert np.abs(of["pull"]).max() > 1e-5
    idle = written & ((np.array(step["dead"]) != 0)[:, None, None] | (of["cut"] != 0))
    assert idle.any() and (of["slope"] == of["pull"])[idle].all()
    assert trained(1, algorithm="DAPO")[0]["pull"] is None


def test_the_same_algorithm_stands_beside_itself_with_numbers_of_its_own():
    how = {
        "updates_per_rollout": 4,
        "lr_warmup_steps": 1,
        "beside": "GRPO",
        "parameters": {"GRPO": {"beta": 0.0, "eps_high": 0.01}},
    }
    steps = trained(1, beside_parameters={"beta": 0.0, "eps_high": 0.3}, **how)
    alone = trained(1, **{**how, "beside": None, "parameters": {"GRPO": {"beta": 0.0, "eps_high": 0.3}}})
    beside = [reply for reply in steps if reply["run"] == 1]
    assert [reply["loss"] for reply in beside] == [reply["loss"] for reply in alone]
    assert steps[0]["clip"]["high"] > 2 * beside[0]["clip"]["high"]
    wrong = {"do": "start", "settings": {**how, "beside_parameters": {"eps": 1}}}
    assert "a parameter of GRPO must be one of" in answers([opening_message("chain"), wrong])[-1]["why"]


@pytest.mark.parametrize("checkpoint", ["chain", "trip"])
def test_held_out_accuracy_is_the_librarys(checkpoint):
    done = trained(0, checkpoint=checkpoint, more=[{"do": "evaluate"}, {"do": "evaluate", "greedy": True}])
    policy, task = as_shipped(checkpoint)
    greedy = evaluate(policy, task, temperature=0, num_prompts=256).accuracy
    assert done[1]["held_out"] == pytest.approx(greedy, abs=1.5 / 256)  # two tokens may be as likely as each other
    with chance_of_evaluations():
        sampled = evaluate(policy, task, num_prompts=256).accuracy
    assert done[0]["held_out"] == pytest.approx(sampled, abs=1.5 / 256)  # a u may be within the rounding of a limit
