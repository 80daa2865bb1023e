"""Refusals that no declaration gives: names with the nearest one, files with their line, what does not fit together."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rlviz import (
    DAPO,
    DCPO,
    DPO,
    GRPO,
    PPO,
    Contender,
    TrainSettings,
    compare,
    diagnose,
    explore_clip,
    inspect_run,
    resume,
    train,
    train_in_page,
)
from rlviz.algorithms import (
    DISTILLATION,
    DUPO,
    GRPO_PROCESS,
    ORPO,
    PPO_PENALTY,
    SIMPO,
    find_algorithm,
)
from rlviz.algorithms.describe import from_json, to_json
from rlviz.interop import carried, explain_config
from rlviz.lessons import Predictions, save_solution, show_bug
from rlviz.parallel import check_engine
from rlviz.pictures import explore_bounds, explore_dpo, explore_length
from rlviz.pictures.catalogue import find_explorer
from rlviz.pieces.bounds import FixedBounds
from rlviz.study.claims import find_claim
from rlviz.study.verdicts import quoted
from rlviz.tabular import train_table
from rlviz.training import find_task
from rlviz.types import Batch
from small_models.pairs import Pair, read_pairs
from small_models.policies import choose_device, load_policy
from small_models.sampling import sample
from small_models.scorers import RewardModel
from tests.refusals.sentence import refused
from tests.refusals.things import PAIRS, SHORT, done, done_on_pairs, file, policy, reward_model
from tests.small_models.real import chat_policy

FREE = replace(GRPO, name="Mine", kl=None)
LOGP, MASK = torch.zeros(1, 2, 3), torch.ones(1, 2, 3, dtype=torch.bool)
ALIASES = [f"a{n}: &a{n} {{{', '.join(f'y{i}: *a{n - 1}' for i in range(9))}}}" for n in range(1, 9)]
BOMB = "\n".join(["algorithm: {x: 1}", "a0: &a0 {x: 1}", *ALIASES])
GOOD_PAIR = '{"prompt": "1=", "chosen": "2", "rejected": "3"}'
EGGS = '{"prompt": "a?", "answer": 0}\n{"prompt": "b?", "answer": 1}\n'
RULES = """
def even(prompt, response, answer):
    return len(response) % 2 == 0
def raises(prompt, response, answer):
    raise KeyError("no such key")
def half(prompt, response, answer):
    return 0.5
"""


def begin(**arguments):
    return train(**{"policy": policy(), "task": "chain", "algorithm": GRPO, "out": "run", **arguments})


def credited(rule):
    return replace(FREE, advantage=rule).advantages(torch.zeros(2, 3), torch.ones(2, 3, 4, dtype=torch.bool))


def from_description(**changed):
    return from_json({**to_json(GRPO), **changed})


def third_pair(line):
    return read_pairs(file("pairs.jsonl", f"{GOOD_PAIR}\n\n{line}\n{GOOD_PAIR}"))


def third_prompt(line):
    return find_task(file("eggs.jsonl", EGGS + line), rule="last-number", policy=chat_policy())


def by_rule(name):
    return find_task(file("eggs.jsonl", EGGS), rule=f"{file('rules.py', RULES)}:{name}")


# a call, and words of its refusal, joined by …
NAMES = (
    (lambda: find_algorithm("grop"), "algorithm 'grop' is not known; did you mean …grpo"),
    (lambda: train("chian", GRPO), "task 'chian' is not known; did you mean chain…known: "),
    (lambda: find_explorer("clpi"), "picture 'clpi' is not known; did you mean clip"),
    (lambda: find_claim("length_bais"), "'length_bais' is not known; did you mean length_bias"),
    (lambda: quoted("starved", folder="."), "folder…no verdicts.md…rlviz experiment --all"),
    (lambda: replace(GRPO, bound=FixedBounds()), "unknown slot 'bound'; did you mean bounds…slots: "),
    (lambda: TrainSettings(max_new_token=3), "no setting 'max_new_token'; did you mean max_new_tokens"),
    (lambda: begin(steps=2), "train has no argument 'steps'…TrainSettings(steps=…"),
    (lambda: begin(group_sise=2), "'group_sise'; did you mean group_size"),
    (lambda: show_bug("99"), "lesson must be one of …; got '99'"),
    (lambda: Predictions("03", dead="Which?").take("dea", ".5"), "name must be one of dead; got 'dea'"),
    (lambda: save_solution("../x", third_pair), "name must be a Python name…got '../x'"),
    (lambda: load_policy("no/such"), "policy: 'no/such' is no folder here, no shipped policy"),
    (lambda: choose_device("tpu"), "device must be one of auto, cpu, cuda; got 'tpu'"),
    (lambda: check_engine("dask"), "on must be local, ray, or ray:HOST:PORT…got 'dask'"),
    (lambda: train_in_page(GRPO, "lookup"), "task must be one of chain…got 'lookup'"),
    (lambda: explain_config("num_generations: 8", kind="PPOConfig"), "kind must be one of GRPOConfig…got 'PPOConfig'"),
)
FILES = (
    (lambda: third_pair("{'prompt': 1}"), "pairs.jsonl, line 3 is not JSON"),
    (lambda: third_pair('{"prompt": "1=", "chosen": "2"}'), "line 3 lacks rejected"),
    (lambda: read_pairs(file("p.jsonl", b"\xff")), "p.jsonl, line 1 is not UTF-8 text"),
    (lambda: third_prompt("oops"), "eggs.jsonl, line 3 is not JSON"),
    (lambda: third_prompt('{"prompt": [{"role": "user"}], "answer": 1}'), "line 3: prompt[0] lacks content"),
    (lambda: third_prompt('{"prompt": "c?", "answer": "yes"}'), "line 3: answer must hold a number…got 'yes'"),
    (lambda: third_prompt('{"prompt": "a?", "answer": "7"}'), "line 3: the prompt is that of line 1"),
    (lambda: find_task(file("eggs.jsonl", EGGS[:30]), rule="exact"), "eggs.jsonl holds one prompt; two are needed"),
    (lambda: find_task(file("eggs.jsonl", EGGS)), "rule is missing…Give last-number"),
    (lambda: find_task("chain", rule="exact"), "rule is for a task from a file…got the task 'chain'"),
    (lambda: find_task(file("e.jsonl", EGGS), rule="last"), "rule must be last-number, exact, or FILE.py…got 'last'"),
    (lambda: find_task(file("e.jsonl", EGGS), rule=file("r.py", "def e(:") + ":e"), "cannot be imported (SyntaxError"),
    (lambda: by_rule("evn"), "rules.py has no function evn; it has even"),
    (lambda: by_rule("raises"), "raised KeyError: 'no such key'…eggs.jsonl, line 1"),
    (lambda: RewardModel.load("nothing", device="cpu"), "there is no folder nothing"),
    (lambda: diagnose(file("log.jsonl", "oops")), "log.jsonl"),
    (lambda: inspect_run("."), "holds no run"),
    (lambda: inspect_run(done_on_pairs(), done()), "other must learn from what run learns from…one had pairs"),
    (lambda: resume("."), "run folder . holds no run"),
    (lambda: resume(done(), steps=3, algorithm=FREE), "algorithm: the run in …was trained with another one"),
    (lambda: from_description(kl={"piece": "os:system"}), "algorithm.kl: 'os:system' is not a piece of rlviz"),
    (lambda: from_description(kl={"piece": "rlviz.pieces.kl:torch.load"}), "is not a piece of rlviz"),
    (lambda: from_description(select=None), "algorithm.select must be a function; got None"),
    (lambda: from_json(json.loads(json.dumps(to_json(GRPO))) | {"groups": 3}), "no 'groups' in this version"),
    (lambda: explain_config("beta: ["), "cannot be parsed: line "),
    (lambda: explain_config("a: 1"), "nothing in it says whose it is"),
    (lambda: explain_config("beta: 0.1"), "GRPOConfig and DPOConfig alike: say which with kind"),
    (lambda: explain_config(BOMB), "at most 10,000 options"),
)
TOGETHER = (
    (lambda: replace(GRPO, surrogate=lambda ratio, advantages: ratio), "surrogate must take 4 arguments (ratio, adv"),
    (lambda: replace(GRPO, bounds=FixedBounds), "bounds must be a function of 1 argument (old_logp) or a built piece"),
    (lambda: replace(PPO_PENALTY, kl=None), "controller changes the beta of the KL term…controller=None"),
    (lambda: credited(lambda rewards: rewards[:1]), "advantage…must return a tensor [2, 3] or [2, 3, 4]; got …[1, 3]"),
    (lambda: replace(GRPO, select=lambda rewards: [0]).select_groups(LOGP[0]), "select must return indices of groups"),
    (lambda: train_table(replace(FREE, surrogate=lambda ratio, advantages, lower, upper: advantages * 2), steps=2),
     "Mine's surrogate…must have a gradient by the ratio"),
    (lambda: GRPO.loss(LOGP, Batch(LOGP, LOGP, MASK)), "GRPO's kl…needs ref_logp; got None"),
    (lambda: SIMPO.loss(torch.zeros(3), torch.zeros(3)), "SimPO's reward…needs lengths; got None"),
    (lambda: GRPO.with_parameters(eps=0.2), "eps must be at most 0.01…the widths of the clip are eps_low and eps_high"),
    (lambda: TrainSettings(updates_per_rollout=3, minibatches=2), "must be a multiple of minibatches (2)…got 3"),
    (lambda: TrainSettings(prompt_pool=5), "prompt_pool must be 0 (all prompts) or at least num_prompts (32); got 5"),
    (lambda: begin(pairs=PAIRS), "pairs: GRPO learns from responses that it samples"),
    (lambda: begin(algorithm=DISTILLATION), "reference: Distillation learns from a teacher…--reference"),
    (lambda: begin(algorithm=DPO, reward_model=reward_model()), "reward_model: DPO learns from pairs"),
    (lambda: begin(algorithm=DUPO, settings=replace(SHORT, reward_format=0.5)), "DUPO weighs the rules itself"),
    (lambda: begin(algorithm=replace(DAPO, advantage=GRPO_PROCESS.advantage)), "takes no shaping of whole responses'"),
    (lambda: begin(settings=replace(SHORT, num_prompts=100_000)), "num_prompts must be at most 90000…got 100000"),
    (lambda: begin(out=""), "out must be the path of a folder; got ''"),
    (lambda: sample(policy(), ["35271="], max_new_tokens=100), "100 after a prompt of 6 tokens exceeds the 64 positions"),
    (lambda: sample(policy(), ["3É="], max_new_tokens=2), "text '3É=' holds ['É']; this vocabulary has"),
    (lambda: sample(policy(), ["1="], group_size=10**9, max_new_tokens=4), "would take … GB…lower group_size"),
    (lambda: train_table(DPO), "algorithm must learn from groups of responses, as GRPO does; got DPO"),
    (lambda: train_table(GRPO, replicas=10**9), "…GB…lower steps, group_size, groups or replicas"),
    (lambda: Pair("1=", "1", "1"), "chosen and rejected must differ; both are '1'"),
    (lambda: find_task("chain").gold("abc"), "prompt must be written as …is; got 'abc'"),
    (lambda: compare([Contender("GRPO", FREE)] * 2, "chain", out="out"), "contenders must have names of their own"),
    (lambda: compare([Contender("DPO", DPO)], "chain", out="out"), "budget: DPO learns from pairs…choose seconds"),
    (lambda: explore_bounds(DPO), "algorithm must have limits on the ratio of each token by itself, as …have; got DPO"),
    (lambda: explore_dpo(ORPO), "algorithm must have what this picture shows, as …have; got ORPO"),
    (lambda: explore_length(PPO), "algorithm must have advantages from rewards of a group alone, as …have; got PPO"),
    (lambda: explore_clip(beside="dapo"), "beside must be a list of algorithms, such as GRPO; got 'dapo'"),
    (lambda: train_in_page(PPO), "algorithm: PPO needs a critic"),
    (lambda: carried(object, PPO), "algorithm must be one of groups, such as DCPO…no critic"),
    (lambda: carried(object, DAPO), "DAPO samples further prompts (max_rounds=10)…give…max_rounds=1"),
    (lambda: diagnose(train("chain", DCPO, SHORT)), "run must be a run folder…a list of step records…got RolloutRun"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("call", "words"), [*NAMES, *FILES, *TOGETHER], ids=lambda part: part if isinstance(part, str) else ""
)
def test_what_no_declaration_refuses(call, words, tmp_path, monkeypatch):
    """Before anything is written."""
    monkeypatch.chdir(tmp_path)
    refused(call, *words.split("…"))
    assert not list(Path().iterdir())
