"""A configuration read: the exports undone, texts of every form, defaults of both libraries, batches, real configurations."""

from __future__ import annotations

import inspect
import itertools
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from rlviz import GRPO
from rlviz.algorithms import ALGORITHMS, RELATIVES, PreferenceOptimization, find_algorithm
from rlviz.interop import Explanation, explain_config, rows, to_trl, to_verl
from rlviz.interop.configs import KINDS, VERL, defaults
from rlviz.interop.reading import BEYOND, NEUTRAL, differing_slots, is_same, parts
from rlviz.interop.writing import script, yaml_text
from tests.interop.fields import trl_defaults, verl_defaults, verl_folder

FAMILY = (*ALGORITHMS, *RELATIVES)
PAGE = Path(__file__).parents[2] / "notebooks" / "symptoms.md"
A, R = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
ENOUGH = {R + "name": "vllm", A + "ppo_micro_batch_size_per_gpu": 4}  # for verl to start


def overrides(options):
    return "\n".join(f"{name}={json.dumps(value)}" for name, value in options.items())


def exported(algorithm, to):
    """Return an export as its reader has it: for TRL the options, with vLLM where it speaks of it; for verl the YAML."""
    export = to_trl(algorithm) if to == "trl" else to_verl(algorithm)
    engine = {"use_vllm": True} if export.fields.get("vllm_importance_sampling_correction") else {}
    return export, json.dumps(export.fields | engine) if to == "trl" else yaml_text(export)


WITH_ROLLOUTS = [a for a in FAMILY if not isinstance(a, PreferenceOptimization)]  # verl trains no pairs
WRITTEN = [(a, "trl") for a in FAMILY] + [(a, "verl") for a in WITH_ROLLOUTS]


@pytest.mark.parametrize(("algorithm", "to"), WRITTEN, ids=lambda value: getattr(value, "name", value))
def test_reading_undoes_writing(algorithm, to):
    """Each slot that an export calls exact is read back, one that is wholly expressible has its name, deviations are named."""
    export, text = exported(algorithm, to)
    explanation = explain_config(text, kind=export.kind)
    written, read = parts(algorithm), {"value loss": None, **parts(explanation.algorithm)}
    lines = {line.slot: line for line in export.slots if line.slot in written}
    twin = {"ratio"} if algorithm.name == "GSPO-token" else set()  # the same options, value and gradient
    exact = {slot for slot, line in lines.items() if line.fit == "exact" and not line.rewards} - twin
    assert {slot for slot in exact if not is_same(written[slot], read[slot])} == set()
    if all(line.fit != "inexpressible" for line in export.slots):
        kl_alone = set(differing_slots(algorithm, GRPO)) == {"kl"}  # no name of its own
        assert explanation.name == ("GSPO" if twin else "GRPO" if kl_alone else algorithm.name)
        by_rewards = {slot for slot, line in lines.items() if line.rewards}
        assert set(explanation.differing) - ({"kl"} if kl_alone else set()) <= by_rewards
    whys = {why for _, why in explanation.beyond}
    for slot, line in lines.items():
        std = "TRL adds 1e-4" in line.why  # a std's eps is no difference here
        if line.fit == "approximate" and algorithm in WITH_ROLLOUTS and not std:
            assert line.why.replace(" (measured below)", "") in whys or not is_same(written[slot], read[slot]), slot


def test_a_script_that_was_exported_is_read():
    explanation = explain_config(script(to_trl(GRPO), GRPO))
    assert (explanation.name, explanation.differing, explanation.config.unknown) == ("GRPO", (), {})
    carried = explain_config(script(to_trl(find_algorithm("dcpo")), find_algorithm("dcpo")))
    assert any("carried" in note for note in carried.config.notes)


def test_unknown_names_get_the_nearest_known():
    explanation = explain_config(
        "num_generation: 8\nbeta: 0.1\nmodel_name_or_path: x\nmy_own_thing: 1\nloss_type: grpo"
    )
    nearest = "the nearest known is num_generations"
    assert explanation.config.unknown == {"num_generation": nearest, "my_own_thing": ""}
    explanation = explain_config(f"{A}clip_ratio_hgh=0.3 +{A}other.thing=1 actor_rollout_ref.model.override_config.x=1")
    assert explanation.config.unknown[A + "clip_ratio_hgh"] == f"the nearest known is {A}clip_ratio_high"
    assert "added by +" in explanation.config.unknown[A + "other.thing"] and len(explanation.config.unknown) == 2


def test_defaults_are_trls():
    trl = pytest.importorskip("trl", reason="TRL is not installed: pip install 'rlviz[trl]'")
    if trl.__version__ != "1.16.0":
        pytest.skip("another version of TRL")
    theirs = trl_defaults()
    for kind in (trl.GRPOConfig, trl.DPOConfig):
        bases = [base for base in kind.__mro__ if base.__module__.startswith("trl.")]
        names = {name for base in bases for name in getattr(base, "__annotations__", {})}
        names &= {field.name for field in fields(kind)}
        names -= {"gradient_checkpointing_kwargs"}  # other names come from transformers
        assert len(names) > 25
        for name in names:
            assert defaults(kind.__name__)[name] == theirs[kind.__name__][name], name


def test_defaults_are_verls():
    folder = verl_folder()
    if folder is None:
        pytest.skip("verl is not installed")
    assert verl_defaults(folder) == defaults(VERL)


def test_a_batch_starts_where_trl_starts():
    trl = pytest.importorskip("trl", reason="TRL is not installed: pip install 'rlviz[trl]'")
    tried = {
        "per_device_train_batch_size": (1, 2, 6),
        "gradient_accumulation_steps": (1, 2),
        "num_generations": (1, 2, 4),
        "steps_per_generation": (None, 1, 2, 3),
        "generation_batch_size": (None, 4, 6),
    }
    for values in itertools.product(*tried.values()):
        options = dict(zip(tried, values, strict=True))
        explanation = explain_config(json.dumps(options)).batch
        try:
            built = trl.GRPOConfig(output_dir="unused", report_to="none", use_cpu=True, bf16=False, **options)
        except (ValueError, ZeroDivisionError):
            assert explanation.refused, options
        else:
            assert not explanation.refused, options
            assert explanation.prompts * explanation.group == built.generation_batch_size


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "accumulated = 8 responses an update = 1 prompt × 8; a rollout of 8 responses serves 1 update"),
        ("--gradient_accumulation_steps 4 --steps_per_generation 8 --num_iterations 2", "serves 4 updates (2 passes)"),
        ("--gradient_accumulation_steps 4 --steps_per_generation 1", "serves 1 update, which takes 4 of them"),
        (f"{A}ppo_epochs=2 {R}n=8", "256 prompts × 8 = 2,048 responses an update; 8 updates"),
        ("data.train_batch_size=64", "(64) must be >= actor.ppo_mini_batch_size (256)"),
        ("data.train_batch_size=384", "384 prompts must be a multiple of ppo_mini_batch_size (256)"),
        ("trainer.n_gpus_per_node=7", "must be divisible by the 7 GPUs"),
        (f"{A}ppo_micro_batch_size_per_gpu=null", "ppo_micro_batch_size_per_gpu must be set"),
    ],
)
def test_batches_in_a_line_and_why_they_would_not_start(text, words):
    explanation = explain_config(f"{overrides(ENOUGH)} {text}" if "=" in text else f"--num_generations 8 {text}")
    refused = " ".join(explanation.batch.refused)
    assert words in (refused if "must" in words else explanation.batch.words)
    assert "must" in words or not refused


@pytest.mark.parametrize("kind", KINDS)
def test_rows_name_options_that_there_are(kind):
    names = [*defaults(kind), "reward.reward_kwargs.overlong_buffer_cfg.enable"]
    for options, _, _ in rows.rows(rows.IDLE[kind]):
        for option in map(rows.full_name, options.split()):
            assert any(name.startswith(option.rstrip("*")) for name in names), option
    lines = [
        line for table in (rows.IDLE, rows.LOG, rows.FIRST, rows.SYMPTOMS) for line in table[kind].splitlines() if line
    ]
    conditions = [words for line in lines for words in f"{line} | ".split(" |")[1].strip().split(", ") if ": " in words]
    for option in (rows.full_name(words.partition(": ")[0]) for words in conditions):
        assert option in (*names, "use_peft"), option
    assert set(NEUTRAL[kind]) <= set(names)
    assert set(BEYOND) <= {name for options in NEUTRAL.values() for name in options}


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("num_generations: 8\nepsilon: .2\nbeta: .1", {"epsilon"}),
        ("num_generations: 8\nepsilon: .2\nnum_iterations: 2", set()),
        ("--use_vllm false --vllm_mode server --ref_model_sync_steps 4", {"vllm_mode", "ref_model_sync_steps"}),
        ("GRPOConfig(loss_type='cispo', epsilon=.2, epsilon_high=5., num_iterations=2)", {"epsilon"}),
        (overrides({A + "clip_ratio": 0.1}), {A + "clip_ratio"}),
        (overrides({A + "clip_ratio": 0.1, A + "clip_ratio_low": None, A + "clip_ratio_high": None}), set()),
        (
            f"{A}kl_loss_coef=0.1 critic.optim.lr=1 algorithm.adv_estimator=grpo",
            {A + "kl_loss_coef", "critic.optim.lr"},
        ),
        (f"{A}policy_loss.loss_mode=sapo {A}loss_agg_mode=token-mean {A}tau_pos=2", {A + "loss_agg_mode"}),
        ("DPOConfig(label_smoothing=.1, beta=.1)", {"label_smoothing"}),
        ("DPOConfig(label_smoothing=.1, loss_type=['sigmoid', 'robust'])", set()),  # the second of the losses reads it
    ],
)
def test_what_is_set_and_has_no_effect(text, without):
    assert {name for name, _ in explain_config(text).idle} == without


OTHERS = {  # what each option that decides an algorithm may be, where it is not the default
    "GRPOConfig": {
        "delta": 4.0, "beta": 0.3, "mask_truncated_completions": True, "multi_objective_aggregation": "normalize_then_sum",
        "top_entropy_quantile": 0.2, "entropy_coef": 0.01, "use_adaptive_entropy": True, "off_policy_mask_threshold": 0.5,
        "use_vllm": True, "repetition_penalty": 1.1, "sync_ref_model": True, "use_bias_correction_kl": False, "epsilon": 0.1,
        "epsilon_high": 0.3, "importance_sampling_level": "sequence", "loss_type": "luspo", "scale_rewards": "batch",
    },
    "DPOConfig": {
        "loss_weights": [0.5], "label_smoothing": 0.1, "use_weighting": True, "ld_alpha": 0.5, "f_divergence_type": "js",
        "sync_ref_model": True, "max_length": 512, "loss_type": "hinge", "beta": 0.3,
    },
    VERL: {
        A + "clip_ratio_c": 5.0, A + "entropy_coeff": 0.01, A + "use_kl_loss": True, "algorithm.use_kl_in_reward": True,
        "algorithm.gamma": 0.9, "algorithm.filter_groups.enable": True, "algorithm.rollout_correction.rollout_is": "token",
        "algorithm.rollout_correction.rollout_rs": "token_k1", "algorithm.rollout_correction.bypass_mode": True,
        A + "clip_ratio_low": 0.1, A + "clip_ratio_high": 0.3, A + "loss_agg_mode": "seq-mean-token-sum", A + "tau_pos": 2.0,
        "algorithm.norm_adv_by_std_in_grpo": False, "algorithm.lam": 0.5, A + "clip_ratio": 0.1, A + "loss_scale_factor": 9,
    },
}  # fmt: skip
BASES = {
    "GRPOConfig": [
        *({"num_iterations": 2, "loss_type": kind, "beta": 0.1} for kind in ("dapo", "cispo", "sapo", "vespo")),
        {"num_iterations": 2, "beta": 0}, {"num_iterations": 2, "entropy_coef": 0.1},
        {"num_iterations": 2, "off_policy_mask_threshold": 0.1}, {"use_vllm": True},
    ],
    "DPOConfig": [{}, {"loss_type": "ipo"}, {"loss_type": "robust"}],
    VERL: [
        {"algorithm.adv_estimator": adv, A + "policy_loss.loss_mode": mode, R + "n": 4}
        for adv, mode in (
            ("grpo", "vanilla"), ("gae", "vanilla"), ("rloo", "gspo"), ("reinforce_plus_plus", "cispo"), ("remax", "sapo"),
            ("grpo", "geo_mean"), ("gae", "gpg"), ("opo", "kl_cov"), ("grpo", "dppo_tv"),
        )
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_decides_is_passed_over_in_silence(kind):
    """Another value of an option changes a slot or what is said beyond them, or it is named as without effect or refused."""
    write, headings = overrides if kind == VERL else json.dumps, set()
    for base in BASES[kind]:
        plain = explain_config(write({**ENOUGH, **base} if kind == VERL else base or {"beta": 0.1}), kind=kind)
        for name, value in OTHERS[kind].items():
            changed = {**(ENOUGH if kind == VERL else {}), **base, name: value}
            explanation = explain_config(write(changed), kind=kind)
            headings |= {heading for heading, _ in explanation.symptoms}
            named = str((explanation.idle, explanation.batch.refused))
            apart = explanation.slots != plain.slots or explanation.beyond != plain.beyond or base.get(name) == value
            assert apart or name.rpartition(".")[2] in named, (base, name)
    entries = {line[3:] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("## ")}
    assert headings and headings <= entries  # what is said of symptoms points to an entry of the page


@pytest.mark.parametrize(
    ("text", "columns", "first"),
    [
        ("--num_generations 8 --loss_type grpo --logging_steps 1", "clip_ratio/high_mean -kl -clip_ratio/dual_mean",
         "clip_ratio/* stay at 0; loss is 0, while"),
        ("--num_generations 8 --beta .1 --num_iterations 2 --warmup_steps 10", "kl",
         "kl is about 0 at step 1; rollout's 2 updates; learning_rate of the first step is 0"),
        ("--num_generations 8 --loss_type cispo --epsilon_high 5.0", "cispo_clip_ratio", "loss is of either sign"),
        ("DPOConfig(beta=.1)", "rewards/margins", "loss begins at 0.693"),
        ("DPOConfig(beta=.1, loss_type='ipo')", "rewards/margins", "loss begins at 25, "),  # (1 / 2β)²
        ("algorithm.adv_estimator=grpo trainer.critic_warmup=5", "actor/entropy -critic/vf_loss", "absent until step 5"),
        # the older names, which verl 0.9.1 does not write, are none
        ("algorithm.adv_estimator=gae", "critic/vf_loss -actor/kl_loss -critic/kl -actor/entropy_loss", "explained_var begins"),
        # the two passes over a batch may differ in rounding
        (f"{A}ppo_mini_batch_size=1024", "actor/ppo_kl", "actor/ppo_kl are about 0 (1e-4)"),
    ],
)  # fmt: skip
def test_columns_and_first_steps(text, columns, first):
    explanation = explain_config(f"{overrides(ENOUGH)} {text}" if "=" in text and "(" not in text else text)
    for name in columns.split():
        assert (name.lstrip("-") in explanation.columns) == (name[0] != "-"), name
    for words in first.split("; "):
        assert any(words in line for line in explanation.first), words


@pytest.mark.parametrize(("text", "is_high"), [("3e-5", True), ("2e-6", False), ("3e-5\nuse_peft: true", False)])
def test_a_high_learning_rate_is_a_symptom_unless_an_adapter_is_trained(text, is_high):
    read = explain_config(f"num_generations: 8\nbeta: 0.04\nlearning_rate: {text}")
    assert any("lr 3e-05 is 30 times" in why for _, why in read.symptoms) == is_high


@pytest.mark.parametrize("length", [4096, None])
def test_an_overlong_buffer_longer_than_a_response_is_no_piece_and_leaves_the_rest_readable(length):
    buffer = f"reward_model.reward_manager=dapo %enable=true {f'%len={length}' if length else ''}".replace(
        "%", rows.FOLDERS["&"]
    )
    explanation = explain_config(f"{overrides(ENOUGH)} {buffer} data.max_response_length=512")
    (line,) = (line for line in explanation.slots if line.slot == "shape")
    assert line.here == f"1 off in the last {length} of 512 tokens"


def test_no_length_is_not_a_short_one():
    explanation = explain_config("num_generations: 8\nmax_completion_length: null\nlearning_rate: null")
    assert not {"All responses are cut off", "The entropy rises, and the reward falls"} & {*dict(explanation.symptoms)}


@pytest.mark.parametrize(("mode", "is_mean"), [("vanilla", False), ("geo_mean", True), ("sapo", True)])
def test_a_mean_over_responses_is_a_symptom_whatever_asks_for_it(mode, is_mean):
    text = overrides({**ENOUGH, A + "policy_loss.loss_mode": mode, A + "loss_agg_mode": "token-mean"})
    assert ("Responses grow longer and longer" in dict(explain_config(text).symptoms)) == is_mean


# The facts of public configurations, in our words: what they set that decides the algorithm | its name | what differs. Of verl,
# . stands for actor_rollout_ref.actor. and @ for algorithm., as in the rows of rlviz.interop.rows.
REAL = """
TRL examples/scripts/gspo.py
    | --importance_sampling_level sequence --epsilon 3e-4 --epsilon_high 4e-4 --loss_type grpo | GSPO |
TRL docs, DeepSeek-R1 | --beta 0.001 --use_vllm true --num_generations 16 | GRPO | advantage kl aggregate
TRL docs, Dr. GRPO | --loss_type dr_grpo --beta 0.0 --max_completion_length 3000 | GRPO | kl aggregate
TRL docs, ScaleRL | --loss_type cispo --epsilon_high 5.0 --scale_rewards batch | CISPO | advantage
open-r1 config_demo | --use_vllm true --num_generations 16 | GRPO | advantage kl aggregate
open-r1 codeforces
    | --loss_type dr_grpo --scale_rewards false --use_vllm true --mask_truncated_completions true --max_completion_length 8192
    | Dr.GRPO | advantage shape
alignment-handbook zephyr | --beta 0.01 --max_length 1024 --precompute_ref_log_probs false | DPO | reward
verl run_qwen2-7b_math | @adv_estimator=grpo .use_kl_loss=true rollout.n=5 | GRPO | surrogate kl aggregate
verl gspo_3b_math
    | @adv_estimator=grpo .policy_loss.loss_mode=gspo .loss_agg_mode=seq-mean-token-mean
      .clip_ratio_low=3e-4 .clip_ratio_high=4e-4 rollout.n=16 | GSPO |
verl cispo
    | @adv_estimator=grpo .policy_loss.loss_mode=cispo .clip_ratio_low=10 .clip_ratio_high=0.2 .use_kl_loss=true rollout.n=5
    | CISPO | bounds kl
verl ppo, reward model | @adv_estimator=gae | PPO | surrogate advantage kl value loss
verl-recipe char_count
    | @adv_estimator=grpo .use_kl_loss=false @use_kl_in_reward=false rollout.n=8 | GRPO | surrogate kl aggregate
verl gmpo
    | @adv_estimator=grpo .policy_loss.loss_mode=geo_mean .clip_ratio_low=0.4 .clip_ratio_high=0.4
      reward_model.reward_manager=dapo reward_model.reward_kwargs.overlong_buffer_cfg.enable=true
      reward_model.reward_kwargs.overlong_buffer_cfg.len=4096 data.max_response_length=8192 rollout.n=16 | GMPO | shape
"""
SHORT = {"rollout.": R, **rows.FOLDERS}


def facts():
    """Return text, algorithm and what differs of the rows of REAL, by their names."""
    params = []
    for row in re.split(r"\n(?=\S)", REAL.strip()):
        name, options, algorithm, differing_ = (" ".join(cell.split()) for cell in f"{row} ".split("|"))
        words = [next((f + w.removeprefix(s) for s, f in SHORT.items() if w.startswith(s)), w) for w in options.split()]
        params.append(pytest.param(" ".join(words), algorithm, differing_, id=name))
    return params


@pytest.mark.parametrize(("text", "algorithm", "differing_"), facts())
def test_public_configurations(text, algorithm, differing_):
    explanation = explain_config(text)
    assert (explanation.name, " ".join(explanation.differing)) == (algorithm, differing_)
    if "max_completion_length 3000" in text:  # Dr. GRPO's, which leaves scale_rewards at its default
        assert explanation.also == "Dr.GRPO, but for advantage"


def test_a_punishment_among_the_reward_functions_is_the_shape():
    text = """
    args = GRPOConfig(loss_type="dapo", epsilon_high=0.28, mask_truncated_completions=True)
    GRPOTrainer(args=args, reward_funcs=[right, get_soft_overlong_punishment(max_completion_len=20480, soft_punish_cache=4096)])
    """
    explanation = explain_config(inspect.cleandoc(text))
    assert explanation.name == "DAPO" and explanation.differing == ("select",)  # lengths go by the task
    assert ("mask_truncated_completions=True", "truncated responses leave the loss") in explanation.beyond


def test_it_prints_and_shows():
    explanation = explain_config("num_generations: 8\nbeta: 0.04\nfoo: <b>", devices=8)
    assert isinstance(explanation, Explanation) and str(explanation) == repr(explanation)
    assert str(explanation).startswith("GRPOConfig, read as trl 1.16.0 has it: GRPO, but for kl, aggregate.")


@pytest.mark.parametrize(
    ("options", "slot", "words"),
    [
        # β(e − 2): the slopes β(1 − e^Δ) and −βΔ at Δ = 1
        ("beta=0.001, use_bias_correction_kl=True", "kl", "0.00072 apart"),
        ("beta=0.4, use_bias_correction_kl=True", "kl", "0.29 apart"),
        ("loss_type='dapo', epsilon_high=0.28, max_completion_length=4096", "shape", "from 3277 to 4096 tokens"),
        ("loss_type='maxent'", "surrogate", "no piece of rlviz"),
        ("loss_type='cispo'", "bounds", "weight ≤ 0.2"),
        ("delta=1.2", "surrogate", "ratios cut at 1.2"),  # the upper limit itself: no dual clip
        ("use_vllm=True, vllm_importance_sampling_clip_min=.5", "advantage", "where w is below 0.5 or above 3"),
        (
            "use_vllm=True, vllm_importance_sampling_clip_min=5.0",
            "advantage",
            "w, sequence mask 5 … 3",
        ),  # an empty range
        ("DPO beta=.2", "reward", "begins at 2 times the length, and fades at 0.5 times"),  # the paper's is 0.1
    ],
)
def test_what_is_said_of_a_slot_is_computed_of_the_run(options, slot, words):
    group = f"GRPOConfig(num_generations=8, {options})"
    explanation = explain_config(f"DPOConfig({options[4:]})" if options.startswith("DPO") else group)
    (line,) = (line for line in explanation.slots if line.slot == slot)
    assert words in f"{line.here} | {line.paper} | {line.effect}"
