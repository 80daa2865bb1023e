# ruff: noqa: E501  a script is a row
"""Files of strangers: whose each is, bash as bash reads it, the option that an error names, and no more than a second.

The scripts are in our words; what is expected of each was said by the issue or the documentation of its framework.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest

from rlviz.interop import explain_config
from rlviz.interop.configs import VERL, read_config

A, R, N = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout.", "data.train_batch_size"
VERL_RUN = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo"
PARSED = '"""\npython run.py \\\n    --beta 0.05 --num_generations 8\n"""\nfrom trl import {0}Config, TrlParser\nTrlParser(({0}Config,))'

# a file → whose it is, as the sentence says that refuses it
STRANGERS = {
    "SkyRL": "uv run --extra fsdp -m skyrl.train.entrypoints.main_base trainer.algorithm.advantage_estimator=grpo",
    "SkyRL ": "trainer.algorithm.use_kl_loss=true generator.n_samples_per_prompt=5 trainer.train_batch_size=64",
    "OpenRLHF": "ray job submit --address=http://x -- python3 -m openrlhf.cli.train_ppo_ray --pretrain m --init_kl_coef 0.01",
    "ms-swift": "NPROC_PER_NODE=8 \\\nswift rlhf --loss_type dapo --num_generations 8 --reward_weights 1 0.2",
    "ms-swift ": "rlhf_type: grpo\nnum_generations: 8\nbeta: 0.001\nlearning_rate: 1e-6\n",
    "NeMo-RL": "uv run examples/run_grpo_math.py --config c.yaml grpo.num_prompts_per_step=32 policy.train_global_batch_size=64",
    "slime": "ARGS=(\n --advantage-estimator grpo\n --eps-clip 0.2\n --rollout-max-response-len 8192\n)\n"
    "ray job submit -- python3 train.py --actor-num-nodes 1 ${ARGS[@]}",
    "AReaL ": "from areal.api.cli_args import GRPOConfig\nGRPOConfig(beta=0.1, num_generations=8)",
    "ROLL  ": "seed: 1\nppo_epochs: 1\ninit_kl_coef: 0.0\nadv_estimator: step_reinforce\nactor_train:\n  training_args:\n    learning_rate: 1e-6\n"
    "reward_normalization:\n  method: mean\ntrain_env_manager:\n  group_size: 1\n",
    "OpenRLHF    ": "init_kl_coef: 0.01\nbeta: 0.1\n",  # ROLL has it, too: of several the first
    "prime-rl": '[orchestrator]\nbatch_size = 128\n[orchestrator.train.sampling]\nmax_completion_tokens = 2048\n',
    "open-instruct": "python mason.py --gpus 8 -- source x.sh \\&\\& python open_instruct/grpo_fast.py --beta 0.0 --num_mini_batches 1",
    "torchtune": "tune run --nproc_per_node 4 dev/grpo_full_finetune_distributed --config dev/3B_full_grpo epochs=1",
    "Trinity-RFT": "mode: both\nalgorithm:\n  algorithm_type: grpo\n  repeat_times: 8\nbuffer:\n  batch_size: 96\n",
    "EasyR1": "python3 -m verl.trainer.main config=c.yaml data.rollout_batch_size=512 worker.actor.clip_ratio_high=0.28",
    "LLaMA-Factory": "llamafactory-cli train --stage dpo --pref_beta 0.1 --learning_rate 5e-6",
    "axolotl": "base_model: m\nrl: grpo\ntrl:\n  beta: 0.001\n  num_generations: 8\n",
    "Tunix": "from tunix.rl.grpo import grpo_learner\nfrom tunix.rl.grpo.grpo_learner import GRPOConfig\nGRPOConfig(beta=0.1)",
    "verifiers": "import verifiers as vf\nargs = vf.GRPOConfig(beta=0.1, num_generations=8)\nvf.GRPOTrainer(args=args)",
    "OpenRLHF  ": "read -r -d '' words <<EOT\nopenrlhf.cli.train_dpo \\\n  --beta 0.1\nEOT\ndeepspeed --module $words",
    "TRL's KTOConfig ": "model_name_or_path: m\ndesirable_weight: 1.0\nbeta: 0.1\nlearning_rate: 5e-7",
    "the file itself": "class GRPOConfig:\n    pass\nGRPOConfig(beta=0.1, num_generations=8)",
    "TRL's RLOOConfig ": PARSED.format("RLOO"),
    "TRL's OnlineDPOConfig": PARSED.format("OnlineDPO"),
    "TRL's rloo": "trl rloo --num_generations 8 --beta 0.05 --learning_rate 1e-6",
    "TRL's online_dpo_vlm": "python online_dpo_vlm.py --beta 0.1 --learning_rate 5e-7",
    "verl's sft_trainer": "torchrun -m verl.trainer.sft_trainer data.train_batch_size=64 trainer.total_epochs=2",
}  # fmt: skip


def test_a_name_that_many_have_decides_nothing():
    read = explain_config("base_model: m\nnum_generations: 8\nbeta: 0.04\nlearning_rate: 1e-6\n")
    assert read.name == "GRPO" and "base_model" in read.config.unknown


@pytest.mark.parametrize("whose", STRANGERS)
def test_a_stranger_s_file_is_named_and_not_read(whose):
    with pytest.raises(ValueError, match=f"^this is {whose.strip()}") as refusal:
        explain_config(STRANGERS[whose])
    named = "In your config" in str(refusal.value)
    assert named == (whose.strip() in ("OpenRLHF", "SkyRL", "slime", "prime-rl"))  # whose names stand on that page


@pytest.mark.parametrize(
    "text", ["a: 1\nb: 2", "foo.bar=1 foo.baz=2", "server: x\nbeta: 0.1\n" + "".join(f"own_{i}: 1\n" for i in range(9))]
)
def test_what_nothing_recognises_is_named_with_what_is_read(text):
    with pytest.raises(ValueError, match=r"nothing in it says whose it is.*GRPOConfig.*verl.*--kind"):
        explain_config(text)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("x.yaml", "num_generations: 8\n" + "#" * 2**18, "must have at most 256 kB"),
        ("x.sh", "set -e\necho hello\n", "the configuration sets nothing"),
        ("x.ipynb", '{"cells": [{"cell_type": "code", "source": null}]}', "the notebook in it cannot be parsed"),
        ("x.ipynb", '{"cells": ' + "1" * 5_000 + "}", "the JSON in it cannot be parsed"),
        ("x.json", '{\n"beta": 0.1 "num_generations": 8}', "the JSON in it cannot be parsed: line 2"),
        ("x.json", "[1, 2]", "the JSON must be an object"),
        ("x.py", "GRPOConfig(beta=.1)\0", "the Python in it cannot be parsed: line \\?"),
    ],
)
def test_what_sets_nothing_is_refused_in_a_sentence(name, text, words, tmp_path):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        explain_config(tmp_path / name)


def test_a_file_s_name_is_no_configuration():
    with pytest.raises(ValueError, match=r"give Path\('runs/grpo\.yaml'\)"):
        explain_config("runs/grpo.yaml")


# a file that builds on TRL or verl: read, and the first line says whose it is
BUILT_ON = {
    "open-r1": "accelerate launch src/open_r1/grpo.py --num_generations 8 --beta 0.04 --use_vllm true",
    "unsloth": "from unsloth import FastLanguageModel\nfrom trl import GRPOConfig\nGRPOConfig(beta=.04, num_generations=8)",
    "verl-agent": f"{VERL_RUN} {A}ppo_mini_batch_size=256 env.env_name=x {N}=16",
    "rLLM": f"python3 -m rllm.trainer.verl.train_agent_ppo algorithm.adv_estimator=grpo {A}ppo_mini_batch_size=64",
}


@pytest.mark.parametrize("whose", BUILT_ON)
def test_what_builds_on_a_library_is_read_and_named(whose):
    explanation = explain_config(BUILT_ON[whose])
    assert whose in explanation.summary and explanation.name == "GRPO"


@pytest.mark.parametrize(
    ("text", "trainer"),
    [
        ("class Mine(GRPOTrainer): pass\nMine(args=GRPOConfig(beta=.1, num_generations=8))", "Mine"),
        ("from trl.experimental.gmpo import GMPOTrainer\nGMPOTrainer(args=GRPOConfig(beta=.1))", "GMPOTrainer"),
    ],
)
def test_a_trainer_that_is_not_trl_s_is_named(text, trainer):
    assert any(trainer in note for note in read_config(f"from trl import GRPOConfig, GRPOTrainer\n{text}").notes)


# bash → what the command that it starts is given, of verl
BASH = {
    "a default of an empty variable": (f"X=${{X:-}}\nn=${{X:-64}}\n{VERL_RUN} {N}=$n", {N: 64}),
    "a default of an unset one alone": (f"X=\nn=${{X-64}}\n{VERL_RUN} {R}n=${{Y-4}} {N}=${{n:-32}}", {R + "n": 4, N: 32}),
    "an alternative": (f"X=1\n{VERL_RUN} {N}=${{X:+64}} ${{Y:+{R}n=4}}", {N: 64}),
    "a comment ends the command": (f"{VERL_RUN} \\\n  {N}=64 \\\n  # {R}n=2 \\\n  {R}n=4", {N: 64}),
    "a blank after the backslash": (f"{VERL_RUN} \\ \n  {N}=64", {}),
    "a backslash at the end": (f"{VERL_RUN} {N}=64 \\", {N: 64}),
    "an array with comments": (f'A=( # one\n {N}=64 # "two\n # {R}n=2\n)\nA+=({R}n=4)\n{VERL_RUN} "${{A[@]}}" \\', {N: 64, R + "n": 4}),
    "an apostrophe in a comment": (f"# it's ours\n{VERL_RUN} {N}=64 # don't", {N: 64}),
    "words of a variable": (f'A="{N}=64 {R}n=4"\n{VERL_RUN} $A', {N: 64, R + "n": 4}),
    "arithmetic": (f"P=8; G=$((P * 2))\n{VERL_RUN} {N}=$((G / 3 * 3 + ${{Q:-1}} % 2))", {N: 16}),  # whole numbers
    "a command in a text": (f"CMD='{VERL_RUN} {N}=64'\nsrun bash -c \"$CMD\"", {N: 64}),
    "a here-document": (f"cat > x <<EOF\n{VERL_RUN} {N}=1 don't\nEOF\n{VERL_RUN} {N}=64", {N: 64}),
    "declared with an option": (f'declare -a A=({R}n=4)\nexport -p M=64\n{VERL_RUN} {N}=$M "${{A[@]}}"', {N: 64, R + "n": 4}),
    "words that begin with a blank": (f'X=" {R}n=4"\n{VERL_RUN} {N}=64$X', {N: 64, R + "n": 4}),
    "a log by a process": (f"{VERL_RUN} > >(tee log) {N}=64", {N: 64}),
    "line ends of Windows": (f"n=64\r\n{VERL_RUN} \\\r\n  {N}=$n\r\n", {N: 64}),
    "a variable of its environment": (f"X=1 {VERL_RUN} {N}=64", {N: 64}),
    "an assignment after use": (f"n=64\n{VERL_RUN} {N}=$n\nn=2", {N: 64}),
    "overrides alone": (f'{N}=64\n{R}n=4\nalgorithm.adv_estimator="grpo"', {N: 64, R + "n": 4}),
    "YAML": ("defaults: [ppo_trainer, _self_]\ndata:\n  train_batch_size: 64\nalgorithm: {adv_estimator: grpo}", {N: 64}),
    "a test": (f"if [[ -z $n && $# -lt 1 ]]; then n=64; fi\n{VERL_RUN} {N}=$n", {N: 64}),
}  # fmt: skip


@pytest.mark.parametrize("what", BASH)
def test_bash_as_bash_reads_it(what):
    script, options = BASH[what]
    config = read_config(script)
    assert (config.kind, dict(config.values)) == (VERL, {"algorithm.adv_estimator": "grpo", **options})
    assert config.unread == {}


def test_what_bash_would_not_pass_is_named():
    for text in (BASH["a comment ends the command"][0], BASH["a blank after the backslash"][0]):
        assert any("line" in note and "ends the command" in note for note in read_config(text).notes)
    below = f"{VERL_RUN} \\\n  {N}=64 \\\n#  {R}n=4 \\\n#  {R}name=vllm\n"
    (note,) = read_config(below).notes
    assert note.startswith("line 3: ") and "does not pass what is below" in note
    assert any(f"{R}n is 1, its default" in what for what, _ in explain_config(below).beyond)
    array = f"A=(\n {N}=64 \\\n # {R}n=4\n)\n{VERL_RUN} ${{A[@]}}\n"
    assert read_config(array).notes == [] == read_config(f"# a\n{VERL_RUN} {N}=64 # b\n# c").notes


@pytest.mark.parametrize("value", ["$(nproc)", "`nproc`", "$X", "${X%8}", "$((X * 2))", "$1", "${A[3]}", "${!X}"])
@pytest.mark.parametrize(
    "script", ["{run} {name}={value}", "n={value}\n{run} {name}=${{n:-8}}"]
)  # not known to be empty
def test_what_cannot_be_resolved_is_named_and_never_guessed(script, value):
    config = read_config(script.format(run=VERL_RUN, name=N, value=value))
    assert N not in config.values and config.unread == {N: value}


def test_words_that_may_hold_options_are_named():
    (note,) = read_config(f'n=8\nread n m <<< "64 2"\n{VERL_RUN} {N}=64 {R}n=$n $EXTRA').notes
    assert note.startswith("$EXTRA may hold options")
    assert read_config(f'n=8\nread n m <<< "64 2"\n{VERL_RUN} {N}=64 {R}n=$n "$@"').unread == {R + "n": "$n"}


@pytest.mark.parametrize(
    "beside",
    [
        "pip install trl vllm", "uv pip install trl vllm", "trl vllm-serve --model x &", "python sft.py --packing",
        'b=megatron\nif [[ $b == "megatron" ]]; then echo swift here; fi', 'rm -f "$(pwd)/reward.py"',
    ],
)  # fmt: skip
def test_what_a_script_does_before_it_trains_does_not_say_whose_it_is(beside):
    for run in ("trl grpo", "accelerate launch train.py")[: 2 - ("--" in beside)]:
        assert read_config(f"{beside}\n{run} --beta .1 --num_generations 8").values == BOTH
    page = f"Don't wait:\n\n```bash\n{beside}\ntrl sft --packing true\ntrl grpo --beta .1 --num_generations 8\n```\n"
    assert read_config(page).values == BOTH


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (f"if [ $X = 1 ]; then n=64; else n=32; fi\n{VERL_RUN} {N}=$n", "decides n ; of unset , 64 , 32 "),
        (f"n=16\n[ -z $X ] && n=64\nm=$((n * 2))\n{VERL_RUN} {N}=$m", "decides m ; of 16 , 64 "),
        (f"n=64\nif [ $X = 1 ]; then n=64; fi\n{VERL_RUN} {N}=$n", None),  # the same either way
        (f"n=64\nn=32\n{VERL_RUN} {N}=$n", None),  # one after the other: nothing is open
        (
            "python x.py --beta .1 --epsilon .4\npython x.py --beta .2 --epsilon .3",
            "2 commands may train: this is the first",
        ),
        (f"{A}clip_ratio_c=2 {A}clip_ratio_c=4", "the last was taken"),
    ],
)
def test_what_a_condition_or_an_order_decides_is_named(script, words):
    notes = read_config(script, None if VERL_RUN in script or A in script else "GRPOConfig").notes
    assert notes == [] if words is None else words in notes[0]


BOTH = {"beta": 0.1, "num_generations": 8}
IMPORT = "from trl import GRPOConfig\n"
# what a file of TRL is called, its text, and what it sets
TRL_FILES = {
    "JSON": ("x.json", '{\n\t"beta": 1e-1,\n\t"num_generations": 8}', BOTH),
    "JSON with what YAML reads otherwise": ("x.json", '{"reward_weights": [1e-1, 1], "run_name": "\\ud83d\\ude00", "beta": 0.1}',
        {"reward_weights": [0.1, 1], "run_name": "😀", "beta": 0.1}),
    "YAML": ("x.yaml", "beta: 1e-1\nnum_generations: 8\n", BOTH),
    "an attribute": ("", "import trl\nargs = trl.GRPOConfig(\n  beta=.1,\n  num_generations=8)", BOTH),
    "TRL's module beside another's": ("", "import verifiers as vf\nimport trl\ntrl.GRPOConfig(beta=.1, num_generations=8)", BOTH),
    "open-r1's beside another's": ("", "import verifiers\nfrom open_r1.configs import GRPOConfig\nGRPOConfig(beta=.1, num_generations=8)", BOTH),
    "a command": ("", "trl grpo --beta .1 \\\n  --num-generations=8", BOTH),
    "several values": ("", "trl grpo --reward_weights 1.0 0.2 --reward_funcs a b --beta 0.1", {"reward_weights": [1.0, 0.2], "beta": 0.1}),
    "one loss of pairs": ("", "DPOConfig(beta=0.1, loss_type='ipo')", {"beta": 0.1, "loss_type": ["ipo"]}),
    "a docstring with an apostrophe": ("", '"""\nTRL\'s way.\n\naccelerate launch t.py \\\n  --num_generations 8 \\\n  --beta 0.1\n\n'
        'That\'s all: use --beta with care.\n"""\nfrom trl import GRPOConfig, TrlParser\nTrlParser((GRPOConfig,))', BOTH),
    "an alias": ("", "from trl import GRPOConfig as C\nC(beta=0.1, num_generations=8)", BOTH),
    "a dictionary of the file": ("", f"N = 2\nC = dict(beta=0.1)\n{IMPORT}GRPOConfig(num_generations=N * 4, **C)", BOTH),
    "a notebook": ("x.ipynb", json.dumps({"cells": [
        {"cell_type": "markdown", "source": ["beta"]},
        {"cell_type": "code", "source": ["!pip install trl\n", "GRPOConfig(beta=.1, num_generations=8)"]}]}), BOTH),
    "a notebook's command": ("x.ipynb", json.dumps({"cells": [
        {"cell_type": "code", "source": "!accelerate launch t.py --beta 0.1 \\\n  --num_generations 8\nprint(1)"}]}), BOTH),
}  # fmt: skip


@pytest.mark.parametrize("what", TRL_FILES)
def test_files_of_trl(what, tmp_path):
    name, text, options = TRL_FILES[what]
    if name:
        (tmp_path / name).write_text(text, encoding="utf-8")
    config = read_config(tmp_path / name if name else text)
    kind = "DPOConfig" if "DPOConfig" in text else "GRPOConfig"
    assert (config.kind, dict(config.values), config.unread) == (kind, options, {})


def test_nothing_in_a_configuration_is_run(tmp_path):
    trap = tmp_path / "trap"
    write = f"open({str(trap)!r}, 'w').close()"
    call = f"GRPOConfig(beta=__import__('os').getpid(), epsilon=(lambda: {write})(), num_generations=8)"
    explanation = explain_config(call)
    config = explanation.config
    assert set(config.unread) == {"beta", "epsilon"} and config.values == {"num_generations": 8}
    assert "beta = __import__('os').getpid()" in str(explanation)
    in_bash = f"a.b=$(touch {trap}) {A}clip_ratio=`touch {trap}`"
    for text in (f"beta: !!python/object/apply:builtins.eval ['{write}']", in_bash):
        with suppress(ValueError):
            explain_config(text)
    assert not trap.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("trl grpo --beta high --num_generations 8", "beta must be a number; got 'high'"),
        ("num_generations: 8\nuse_vllm: [1]", r"use_vllm must be true or false; got \[1\]"),
        ("num_generations: 8\nepsilon_high: high", "epsilon_high"),
        (f"{VERL_RUN} {A}optim.lr=fast", f"{A}optim.lr must be a number; got 'fast'"),
        (f"{VERL_RUN} {A}loss_agg_mode=seq-mean-token-sum-norm {A}loss_scale_factor=x", "loss_scale_factor"),
        (f"{VERL_RUN} {A}policy_loss.loss_mode=kl_cov {A}policy_loss.kl_cov_ratio=7", "not take .*loss_mode='kl_cov', .*kl_cov_ratio=7 together$"),
        (f"{VERL_RUN} {A}use_kl_loss=true {A}kl_loss_coef=x", "kl_loss_coef must be a number; got 'x'"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_named_by_its_option(text, words):
    with pytest.raises(ValueError, match=words):
        explain_config(text)


DEEP, MOST = 3_000, 255_000
HUGE = {
    "900 kB": "beta: 0.1\n" + "own_option: 1\n" * 64_000,
    "YAML of nearly known names": "".join(f"num_generation_{i}: {i}\n" for i in range(9_000)) + "num_generations: 8",
    "many flags": "trl grpo --beta 0.1 " + " ".join(f"--a{i} {i}" for i in range(16_000)),
    "a text that never ends": f'{VERL_RUN} "' + "$ab ${a} $(b) " * (MOST // 15),
    "braces": f"{VERL_RUN} {N}=" + "${a:-" * (MOST // 5),
    "sums": f"{VERL_RUN} {N}=$((" + "1+" * (MOST // 2) + "1))",
    "doubling": "a=xxxxxxxxxx\n" + "a=$a$a\n" * 40 + f"{VERL_RUN} {N}=$a",
    "a list that doubles": "a=(x x)\n" + "a=($a ${a[@]} ${a[@]})\n" * 40 + f"{VERL_RUN} {N}=${{a[@]}}",
    "deep YAML": "beta: " + "[" * DEEP + "]" * DEEP,
    "deep sum in Python": "GRPOConfig(num_generations=8, beta=" + "1+" * DEEP * 10 + "1)",
}  # fmt: skip
PYTHONS_WORDS = (
    "substring not found", "could not convert", "recursion", "invalid literal", "not supported", "object is not",
    "unpack", "out of range", "NoneType", "traceback", "exceeds the limit", "maximum",
)  # fmt: skip


@pytest.mark.parametrize("what", HUGE)
def test_large_and_deep_files_take_bounded_time_and_end_in_our_words(what):
    begun = time.process_time()
    try:
        words = str(explain_config(HUGE[what]))
    except ValueError as error:
        words = str(error)
    assert time.process_time() - begun < 5  # 900 kB took 27 before
    assert not any(sentence in words for sentence in PYTHONS_WORDS), words[:300]


def test_a_script_of_fully_asynchronous_training_is_read():
    text = f"""python3 -m verl.experimental.fully_async_policy.fully_async_main algorithm.adv_estimator=grpo {N}=0 \\
    data.gen_batch_size=1 data.max_response_length=8192 {A}ppo_mini_batch_size=32 {A}use_dynamic_bsz=True \\
    {A}clip_ratio_low=0.2 {A}clip_ratio_high=0.28 {R}name=vllm {R}n=16 async_training.staleness_threshold=0.5 \\
    async_training.trigger_parameter_sync_step=4 async_training.require_batches=4"""
    explanation = explain_config(text)
    assert explanation.name == "DAPO" and not explanation.batch.on_policy and explanation.batch.refused == ()
    assert "not read" in explanation.batch.words and explanation.config.unknown == {}
    assert explanation.config.options["algorithm.rollout_correction.bypass_mode"] is True  # its default there


def test_what_is_chosen_within_a_micro_batch_is_said():
    base = f"{VERL_RUN} {N}=256 {A}ppo_mini_batch_size=32 {R}name=vllm {R}n=8 trainer.n_gpus_per_node=8"
    cov = f"{base} {A}policy_loss.loss_mode=kl_cov"
    for size, is_noise in ((1, True), (8, False)):
        explanation = explain_config(f"{cov} {A}ppo_micro_batch_size_per_gpu={size}")
        assert explanation.name == "KL-Cov" and "as in its paper" not in explanation.summary
        (why,) = (why for what, why in explanation.beyond if what == "tokens of kl_cov")
        assert "micro-batch" in why and ("noise" in why) == is_noise
