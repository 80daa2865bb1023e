"""An algorithm in the words of TRL and verl: against their own losses and gradients, frozen; tables, scripts, refusals."""

from __future__ import annotations

import inspect
import json
import math
import re
from dataclasses import is_dataclass, replace
from functools import reduce
from importlib import import_module
from operator import getitem
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from rlviz import DAPO, DCPO, DPO, DR_GRPO, DUPO, GRPO, PPO, PairSettings, RunFolder, TrainSettings, train
from rlviz.algorithms import ALGORITHMS, RELATIVES, GroupPolicyGradient, PreferenceOptimization, find_algorithm
from rlviz.algorithms.describe import from_json, to_json
from rlviz.algorithms.slots import SLOTS
from rlviz.interop import exporting, to_trl, to_verl
from rlviz.interop.trl import PAIRS, TABLE as TRL
from rlviz.interop.verl import TABLE as VERL
from rlviz.interop.writing import script, yaml_text
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.bounds import FixedBounds, UpperBound
from rlviz.pieces.preference import SigmoidPreference
from rlviz.pieces.surrogate import DualClip, SoftGate, clipped_weight
from rlviz.training import default_settings
from rlviz.training.files import write_json
from tests.interop.batch import BADLY_FORMED, HERE, compared, frozen, ours

SETTINGS = TrainSettings(num_prompts=8, group_size=8, updates_per_rollout=2, lr=3e-4)
CASES = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))
GRADIENTS = load_file(HERE / "gradients.safetensors")
FAMILY = (*ALGORITHMS, *RELATIVES)
EXPORTS = {"trl": to_trl, "verl": to_verl}
# not seen in one update on this batch: how long is sampled, rounding of groups that are all equal, a choice of few tokens
SAME_BATCH = (("verl", {"select"}), ("trl", {"shape"}), ("verl", {"surrogate"}))
OTHER_VALUE = "the gradient"  # words of a row whose loss is another number with the same gradient


@pytest.mark.parametrize("place", range(len(CASES)), ids=[f"{c['to']}-{c['way']}-{c['name']}" for c in CASES])
def test_what_is_called_exact_is_what_the_library_computes(place):
    """Frozen by TRL 1.16.0's trainer and verl 0.9.1's functions: exact slots and carried algorithms are equal to 1e-6."""
    case, row = CASES[place], exporting.measurements()["rows"][place]
    algorithm = from_json(case["algorithm"])
    theirs = torch.tensor(case["loss"]), GRADIENTS[str(place)], GRADIENTS.get(f"{place} by entropy")
    apart = compared(ours(algorithm, frozen(case.get("batch", ""))), theirs)
    export = EXPORTS[case["to"]](algorithm, SETTINGS)
    fields = export.run_fields if case["way"] == "carried" else export.fields
    assert fields == case["fields"], "changed: measure again"
    inexact = {line.slot for line in export.slots if line.fit != "exact" and not line.slot.startswith("settings")}
    inexact = set() if case["way"] == "carried" else inexact
    assert (row["algorithm"], row["to"], row["way"]) == (case["algorithm"], case["to"], case["way"])
    if not inexact:
        assert apart["gradient"] < 1e-6
        whys = [line.why for line in export.slots if line.slot in ("bounds", "surrogate")]
        same_value = case["way"] == "carried" or not any(OTHER_VALUE in why for why in whys)
        assert (apart["loss"] < 1e-6) == same_value
    elif (case["to"], inexact) not in SAME_BATCH:
        assert max(apart["gradient"], apart["loss"]) > 1e-6  # a slot called less than exact is
    assert apart["gradient"] == pytest.approx(row["gradient"], rel=0.05, abs=1e-7)
    assert apart["loss"] == pytest.approx(row["loss"], rel=0.01, abs=1e-6)


def measured_on(name, batch=None):
    """Return how far the gradient of this algorithm in TRL is from ours, and the cosine between them."""
    rows = exporting.measurements()["rows"]
    rows = [row for row in rows if (row["to"], row["way"], row.get("batch")) == ("trl", "exported", batch)]
    (row,) = (row for row in rows if row["algorithm"]["name"] == name and row["algorithm"]["advantage"]["eps"] == 1e-4)
    return row["gradient"], row["cosine"]


def test_what_a_line_says_was_measured_is_what_was_measured():
    off, cosine = measured_on("DAPO, punished from 3 tokens on")
    assert f"off by {off:.0%} of its length, cosine {cosine:.2f} (measured)" in to_trl(DAPO).at("select").why
    small, large = (measured_on(name)[0] for name in ("Entropy bonus", "Entropy bonus of weight 1"))
    bonus = to_trl(find_algorithm("entropy-bonus"))
    assert f"off by {small:.2%} of its length with a weight of 0.01, by {large:.0%} with" in bonus.at("surrogate").why
    assert bonus.measured.gradient == pytest.approx(small, rel=0.05)
    off, _ = measured_on("DUPO, all groups", BADLY_FORMED)
    assert f"off by {off:.2%} of its length (measured)" in to_trl(DUPO).at("shape").why
    assert measured_on("DUPO, all groups")[0] < 1e-6  # a batch without such groups does not show it


def test_the_table_of_the_readme_is_what_was_measured():
    readme = (Path(exporting.__file__).parent / "README.md").read_text(encoding="utf-8")
    rows = [line.strip("| \n").split(" | ") for line in readme.splitlines() if line.startswith("| ")][1:]
    family = {algorithm.name: algorithm for algorithm in FAMILY}
    for name, *cells, _ in rows:
        for to, cell in zip(EXPORTS, cells, strict=True):
            exported, number = EXPORTS[to](family[name]), re.search(r"\(([\d.e-]+)\)", cell)
            far = exported.measured is not None and exported.measured.gradient > 1e-6 and exported.fit != "exact"
            assert number is not None if far else number is None, (name, to)
            assert not far or float(number[1]) == float(f"{exported.measured.gradient:.1g}")
    assert len(rows) > 25


def test_dpo_is_what_trl_computes():
    case = json.loads((HERE / "pairs.json").read_text(encoding="utf-8"))
    parts = [torch.tensor(case[name]) for name in ("chosen", "rejected", "ref_chosen", "ref_rejected")]
    assert float(DPO.loss(*parts).loss) == pytest.approx(case["loss"], abs=1e-6)
    assert case["loss"] != pytest.approx(math.log(2), abs=1e-3)
    assert case["gradient"] < 1e-6  # by the weights


def test_every_algorithm_was_measured_in_both_libraries():
    """`python -m tests.interop.measure` writes cases.json anew; its docstring says what it needs."""
    names = {}
    for case in CASES:
        names.setdefault((case["to"], case["way"]), set()).add(case["name"])
    # what learns from a tool's tokens is GRPO on a batch without them; there is but one engine in the batch
    members = [a for a in FAMILY if not isinstance(a, PreferenceOptimization) and not a.learns_observations]
    groups = {a.name for a in members if isinstance(a, GroupPolicyGradient)}
    assert names["trl", "carried"] == groups
    assert names["trl", "exported"] >= groups - {a.name for a in members if a.asks_for("advantage", "sampler_logp")}
    estimated = {a.name for a in members if "algorithm.adv_estimator" in to_verl(a).fields}
    assert names["verl", "exported"] == estimated | {"TIS, whole responses"} and len(estimated) > 15


@pytest.mark.parametrize("table", [TRL | PAIRS, VERL | PAIRS], ids=["trl", "verl"])
def test_every_piece_of_rlviz_has_a_row(table):
    """A piece without a row would be taken for the reader's own."""
    rows = {kind for slot in table.values() for kind in slot if kind is not None}
    no_pieces = set(
        """label reason says whiten all_equal weighted_sum is_clipped PromptHistory StraightThrough standardized pass_at_k
        sequence_weight capped_weight sign_weighted response_logp bradley_terry
        k1 k2 k3 k3_plus AdaptivePenalty ProportionalController""".split()
    )
    modules = "ratios bounds surrogate advantages mismatch gae kl aggregation shaping selection preference".split()
    for module in (import_module(f"rlviz.pieces.{name}") for name in modules):
        pieces = {n: p for n, p in vars(module).items() if n[0] != "_" and (inspect.isfunction(p) or is_dataclass(p))}
        assert {n for n, p in pieces.items() if p.__module__ == module.__name__ and p not in rows} <= no_pieces
    assert set(table) == {*SLOTS, *PAIRS}


@pytest.mark.parametrize(
    ("algorithm", "to", "name", "value"),
    [
        (DR_GRPO, "trl", "max_completion_length", 16),
        (DCPO, "trl", "max_grad_norm", 1 / 256),  # a mean in place of a sum over 32 × 8 responses
        (find_algorithm("gmpo"), "verl", "actor_rollout_ref.actor.clip_ratio_high", pytest.approx(0.4)),  # e^.4 as a logarithm
        (find_algorithm("cispo"), "verl", "actor_rollout_ref.actor.clip_ratio_high", 4.0),  # a width from 1
        (find_algorithm("cispo"), "trl", "epsilon_high", 5.0),  # the limit itself
        (replace(GRPO, bounds=UpperBound(3.5)), "trl", "epsilon", 1.0),  # 1 − epsilon … 1 + epsilon_high
        (replace(GRPO, bounds=UpperBound(3.5)), "trl", "epsilon_high", 2.5),
    ],
)  # fmt: skip
def test_fields_that_say_a_piece(algorithm, to, name, value):
    assert EXPORTS[to](algorithm).fields[name] == value


@pytest.mark.parametrize("size", [4, 16])
def test_how_much_the_eps_of_trl_takes_off_is_computed(size):
    """By the group in which it is most: of 1 to G − 1 right responses one alone has the smallest std, as has one wrong."""
    groups = torch.tensor([[1.0] * right + [0.0] * (size - right) for right in range(1, size)]).double()
    ours, theirs = (GroupAdvantage(eps=eps)(groups) for eps in (1e-6, 1e-4))
    most = float((1 - theirs / ours).max())
    line = to_trl(replace(GRPO, advantage=GroupAdvantage(eps=1e-6)), TrainSettings(group_size=size)).at("advantage")
    assert line.fit == "approximate" and f" {most:.2%} smaller" in line.why


WHOLE = TrainSettings(num_prompts=8, group_size=4)
LONGER = replace(WHOLE, max_new_tokens=32)
HALVES = replace(WHOLE, minibatches=2, updates_per_rollout=2)
GATE = replace(GRPO, surrogate=SoftGate(), aggregate=DAPO.aggregate)
WEIGHT = replace(GRPO, surrogate=clipped_weight, bounds=UpperBound(5.0))
TOKENS = replace(WEIGHT, aggregate=DAPO.aggregate)


def dual_clip(c):
    return replace(GRPO, bounds=FixedBounds(0.2, 0.5), surrogate=DualClip(c))


SMOOTHED = replace(DPO, pair_loss=SigmoidPreference(label_smoothing=0.1))


@pytest.mark.parametrize(
    ("algorithm", "settings", "accumulation", "slot", "fit", "why"),
    [
        (DAPO, WHOLE, 4, "aggregate", "exact", "divides by the tokens of the whole update"),
        (DAPO, HALVES, 1, "aggregate", "exact", "TRL's dapo would divide by the rollout's tokens / 2"),
        (DAPO, HALVES, 2, "aggregate", "approximate", "dapo divides by .* / 2, .* bnpo is exact without accumulation"),
        (TOKENS, WHOLE, 1, "aggregate", "exact", "divides by the tokens of the whole update"),
        (TOKENS, HALVES, 1, "aggregate", "approximate", "cispo divides by the rollout's tokens / 2, .* share$"),
        (GATE, WHOLE, 1, "aggregate", "inexpressible", "sapo takes the mean of responses"),
        (WEIGHT, WHOLE, 1, "aggregate", "inexpressible", "cispo takes the mean over tokens"),
        (replace(GRPO, surrogate=clipped_weight), WHOLE, 1, "bounds", "inexpressible", "no lower limit"),
        (DR_GRPO, LONGER, 1, "aggregate", "approximate", "loss and gradient are 0.5 of ours"),  # 16 / 32
        # TRL cuts every ratio at delta before it takes the minimum: one of a good token, too, where that is no higher
        (dual_clip(1.5), None, 1, "surrogate", "inexpressible", "not above 1 . eps_high"),
        (dual_clip(1.6), None, 1, "surrogate", "exact", "above the upper limit"),
        (SMOOTHED, None, 1, "pair loss", "inexpressible", "ignores label_smoothing"),
        (PPO, None, 1, "advantage", "inexpressible", "no critic"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_how_a_slot_fits_in_trl(algorithm, settings, accumulation, slot, fit, why):
    line = to_trl(algorithm, settings, accumulation=accumulation).at(slot)
    assert line.fit == fit and re.search(why, line.why), line


def test_sizes_of_accumulated_parts_and_of_pairs():
    fields = to_trl(DAPO, WHOLE, accumulation=4).fields
    sizes = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation")
    assert [fields[name] for name in sizes] == [8, 4, 4] and fields["loss_type"] == "dapo"
    assert to_trl(DAPO, HALVES).fields["loss_type"] == "bnpo"
    pairs = to_trl(DPO, PairSettings(batch_size=32), accumulation=2)
    assert pairs.kind == "DPOConfig" and pairs.at("pair loss").fit == "exact"
    assert pairs.fields["per_device_train_batch_size"] == 16
    assert to_verl(DPO).fit == "inexpressible" and to_verl(PPO).at("advantage").fit == "exact"
    tokens = to_verl(replace(find_algorithm("gmpo"), aggregate=DAPO.aggregate)).at("aggregate")
    assert tokens.fit == "inexpressible" and "geo_mean takes the mean of responses" in tokens.why


@pytest.mark.parametrize(
    ("settings", "rate", "words"),
    [
        (TrainSettings(), 1e-6, "models of billions"),
        (None, 1e-6, "models of billions"),
        (TrainSettings(lr=1e-4), 1e-4, "small models or LoRA"),  # from 1e-4 on
    ],
)
def test_the_learning_rate_is_that_of_a_large_model_unless_a_run_had_another(settings, rate, words):
    for to, name in (("trl", "learning_rate"), ("verl", "actor_rollout_ref.actor.optim.lr")):
        export = EXPORTS[to](DAPO, settings)
        assert export.fields[name] == rate and words in export.at("settings: optimizer").why


@pytest.mark.parametrize("algorithm", [a for a in FAMILY if "critic" not in a.models], ids=lambda a: a.name)
def test_scripts_are_python_and_yaml_is_nested(algorithm):
    if isinstance(algorithm, PreferenceOptimization) and to_trl(algorithm).fit == "inexpressible":
        with pytest.raises(ValueError, match=f"{algorithm.name} cannot be run by TRL"):
            script(to_trl(algorithm), algorithm)
        return
    source = script(to_trl(algorithm), algorithm)
    compile(source, algorithm.name, "exec")
    carries = to_trl(algorithm).fit == "inexpressible"
    assert ("carried(GRPOTrainer, ALGORITHM" in source) == carries and "checked with trl 1.16.0" in source
    refills = carries and algorithm.can.max_rounds > 1
    assert ("are not replaced by further prompts" in source) == refills and '"max_rounds": 10' not in source
    assert not carries or "max_grad_norm=1.0" in source  # what stood for a sum is not needed where the sum is carried
    if not isinstance(algorithm, PreferenceOptimization):
        # a learning rate that without a point would be a text in YAML
        export = to_verl(algorithm, default_settings(algorithm, lr=1e-5))
        text = yaml_text(export)
        tree, lines = yaml.safe_load(text), text.splitlines()
        for name, value in export.fields.items():
            assert reduce(getitem, name.split("."), tree) == value, name
        assert tree["defaults"] == ["ppo_trainer", "_self_"]
        is_named = any(line.startswith("# NOT the same algorithm") for line in lines)
        assert is_named == (to_verl(algorithm).fit == "inexpressible")


def test_what_verl_must_be_told_before_it_starts():
    """Its defaults leave batches without a size, the sampler without a name, and give the critic another model."""
    batches = {"num_prompts": 8, "group_size": 4, "updates_per_rollout": 4, "minibatches": 2}
    fields = to_verl(PPO, TrainSettings(**batches, lr_warmup_steps=3, steps=12), accumulation=4).fields
    part = 8 * 4 // 2 // 4  # responses of an update, in four parts
    actor, rollout, reference = (f"actor_rollout_ref.{name}." for name in ("actor", "rollout", "ref"))
    parts = (f"{actor}ppo", "critic.ppo", f"{rollout}log_prob", f"{reference}log_prob")
    assert [fields[f"{name}_micro_batch_size_per_gpu"] for name in parts] == [part] * 4
    assert fields[f"{rollout}name"] == "vllm"
    assert fields["critic.model.path"] == "${actor_rollout_ref.model.path}"
    assert fields[f"{actor}optim.lr_warmup_steps"] == 3  # rollouts: verl's scheduler goes on once in each
    devices = ("trainer.nnodes", "trainer.n_gpus_per_node", f"{rollout}tensor_model_parallel_size")
    assert [fields[name] for name in devices] == [1, 1, 1]  # those that the batches are for; verl's own are 1, 8, 2


def test_where_verl_has_no_such_advantage_its_yaml_asks_for_yours():
    """Left out, verl would take GAE and a critic."""
    lines = yaml_text(to_verl(find_algorithm("forking-tokens"))).splitlines()
    assert "  adv_estimator: forking_tokens" in lines
    assert any("until yours is registered there: @register_adv_est('forking_tokens')" in line for line in lines)
    lines = yaml_text(to_verl(GRPO)).splitlines()
    assert "  adv_estimator: grpo" in lines and not any("registered" in line for line in lines)


def own_bounds(old_logp):
    return 1 - 0.3 * old_logp.exp(), 1.5


def test_another_version_is_said(monkeypatch):
    monkeypatch.setattr(exporting, "version", lambda library: "2.0.0")
    with pytest.warns(UserWarning, match=r"trl 2\.0\.0 is installed, and the export was checked with 1\.16\.0"):
        to_trl(GRPO)


def test_the_command(rlviz, tmp_path):
    parameters = ("--set", "max_length=100", "--set", "cache=20")
    answer = json.loads(rlviz("export", "dapo", "--to", "trl", *parameters, "--lr", "3e-4", "--format", "json").output)
    assert answer["fields"]["max_completion_length"] == 100 and answer["fields"]["learning_rate"] == 3e-4
    assert answer["rewards"] == ["get_soft_overlong_punishment(100, 20)"]
    assert {"slot", "piece", "fit", "why"} == set(answer["slots"][0]) and answer["measured"] is None
    assert rlviz("export", "grpo", "--to", "verl", "--out", tmp_path / "g.yaml", "--strict").exit_code == 0
    assert "kl_loss_coef: 0.04" in (tmp_path / "g.yaml").read_text()
    assert "0.0e" not in rlviz("export", "grpo", "--to", "trl", "--beta", "0").output
    assert rlviz("export", "dapo", "--to", "trl", "--strict").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dapo", "--to", "trl", "--set", "eps_hgh=.3"], "--set 'eps_hgh' is not known; did you mean eps_high"),
        (["dapo", "--to", "trl", "--set", "cache=.5"], "--set cache must be a whole number; got '.5'"),
        (["dapo", "--to", "trl", "--out", "x.yaml"], "--out must end in .py for trl; got x.yaml"),
        (["ppo", "--to", "trl", "--out", "x.py"], "PPO cannot be run by TRL"),
        (["dapo", "--to", "trl", "--minibatches", "3", "--updates-per-rollout", "3"], "minibatches must divide num_prompts"),
        (["dapo", "--to", "trl", "--group-size", "1", "--out", "x.py"], "TRL with these settings: settings: batches"),
    ],
)  # fmt: skip
def test_refusals_in_a_sentence(rlviz, arguments, words):
    result = rlviz("export", *arguments)
    assert result.exit_code == 2 and words in " ".join(result.stderr.split())


def test_a_run_with_a_piece_of_one_s_own(rlviz, tmp_path):
    algorithm = replace(DR_GRPO, name="Own", bounds=own_bounds)
    settings = TrainSettings(steps=1, num_prompts=2, group_size=2, evaluate_every=0)
    list(train("chain", algorithm, settings, out=tmp_path / "run"))
    assert RunFolder.open(tmp_path / "run").config["algorithm"] == to_json(algorithm)
    for to, arguments in (("trl", []), ("verl", ["--strict"])):
        result = rlviz("export", tmp_path / "run", "--to", to, "--format", "json", *arguments)
        slots = {line["slot"]: line for line in json.loads(result.stdout)["slots"]}
        assert result.exit_code == 2 and "a piece of your own in bounds" in result.stderr
        assert slots["bounds"]["piece"] == "own bounds" and slots["bounds"]["fit"] == "inexpressible"
        assert slots["aggregate"]["fit"] == "exact"
    assert rlviz("export", tmp_path / "run", "--to", "trl", "--lr", "1").exit_code == 2
    imported = RunFolder.open(tmp_path / "run").config | {"imported": "trl"}
    write_json(Path(tmp_path) / "run" / "config.json", imported)
    assert "was imported from trl" in rlviz("export", tmp_path / "run", "--to", "trl").stderr
