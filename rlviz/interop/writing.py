"""The file that another library runs: a Python script for TRL (`script`), YAML for verl (`yaml_text`); both hold the slots."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from typing import Any

import yaml  # type: ignore[import-untyped]  # transformers needs it

import rlviz
from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.algorithms.describe import to_json
from rlviz.algorithms.family import Algorithm
from rlviz.interop.carrying import in_one_rollout
from rlviz.interop.exporting import CHECKED, SETTINGS, Export, Measured, measured

WIDTH = 110
ESTIMATOR = "algorithm.adv_estimator"

SCRIPT = """
import json
import re
import sys
import warnings

import trl
from datasets import Dataset
from trl import {config}, {trainer}
{imports}
MODEL, DATA, OUT = sys.argv[1:]
if trl.__version__ != "{version}":
    warnings.warn(f"checked with trl {version}; this is {{trl.__version__}}, whose defaults may be others")
{rewards}

config = {config}(
    output_dir=OUT,
    logging_steps=1,
{fields}
)
with open(DATA, encoding="utf-8") as lines:
    rows = [json.loads(line) for line in lines if line.strip()]
trainer = {built}(MODEL, {arguments}args=config, train_dataset=Dataset.from_list(rows))
trainer.train()
"""

CORRECT = r'''

def text(completion):
    return completion if isinstance(completion, str) else completion[-1]["content"]


def correct(completions, answer, **_):
    """1 where the last number of the completion is the answer. Put your own rule here."""
    numbers = [re.findall(r"-?\d+(?:\.\d+)?", text(completion)) for completion in completions]
    return [float(bool(written) and written[-1] == str(right)) for written, right in zip(numbers, answer)]
'''
WELL_FORMED = '''

def well_formed(completions, **_):
    """1 where the completion has a number at all. Put your own rule here."""
    return [float(bool(re.search(r"\\d", text(completion)))) for completion in completions]
'''

LENGTH_COST = '''

def length_cost(per_token):
    """Return a reward function that takes so much off for each token."""
    def cost(completion_ids, **_):
        return [-per_token * len(ids) for ids in completion_ids]

    return cost
'''


def script(export: Export, algorithm: Algorithm) -> str:
    """Return a program that trains with TRL: `python FILE MODEL PROMPTS.jsonl OUT`, a line of prompts with its answer each.

    Where a slot is inexpressible, the program carries the algorithm itself (`rlviz.interop.carried`), and needs rlviz; it
    samples no further prompts, and says so.
    Raises ValueError where not even that is possible: with a critic, rewards of single steps, a loss of pairs that TRL
    has not, a piece of one's own.
    """
    if export.unknown_slots:
        raise ValueError(
            f"{export.algorithm} has a piece of your own in {', '.join(export.unknown_slots)}, which no script can name: write "
            "carried(GRPOTrainer, algorithm) where that piece is"
        )
    lacking = [line for line in export.slots if line.fit == "inexpressible"]
    can_carry = isinstance(algorithm, GroupPolicyGradient) and not algorithm.asks_for("advantage", "step_ends")
    for line in lacking:
        is_of_run = line.slot.startswith(SETTINGS)
        if is_of_run or not can_carry:
            where = " with these settings" if is_of_run else ""
            raise ValueError(f"{export.algorithm} cannot be run by TRL{where}: {line.slot}, {line.piece}, {line.why}")
    head = f"{export.algorithm} by TRL, written by rlviz {rlviz.__version__}; checked with trl {CHECKED['trl']}."
    if lacking and isinstance(algorithm, GroupPolicyGradient) and algorithm.can.max_rounds > 1:
        algorithm = in_one_rollout(algorithm)
        head += "\n\nTRL samples one rollout: groups that the algorithm leaves out are not replaced by further prompts."
    parts = {"version": CHECKED["trl"], "config": export.kind, "imports": "", "rewards": "", "arguments": ""}
    if isinstance(algorithm, GroupPolicyGradient):
        parts |= _group_parts(export, algorithm, carry=bool(lacking))
        usage = 'PROMPTS.jsonl OUT, where a line is {"prompt": …, "answer": …}'
    else:
        parts |= {"trainer": "DPOTrainer", "built": "DPOTrainer", "fields": _keywords(export.fields)}
        usage = 'PAIRS.jsonl OUT, where a line is {"prompt": …, "chosen": …, "rejected": …}'
    way = "carried" if lacking else "exported"
    table = _slot_table(export, way, measured("trl", algorithm, way))
    return f'"""{head}\n\npython THIS_FILE MODEL {usage}\n\n{table}\n"""\n{SCRIPT.format(**parts)}'


def _group_parts(export: Export, algorithm: GroupPolicyGradient, *, carry: bool) -> dict[str, str]:
    """Return what of the script is the algorithm's. Carried, its pieces do themselves what they ask of TRL."""
    functions, imports = ["correct", *([] if carry else export.rewards)], ""
    if carry:
        described = json.dumps(to_json(algorithm), ensure_ascii=False)
        imports = f"from rlviz.interop import carried, from_json\n\nALGORITHM = from_json(json.loads({described!r}))\n"
        functions += ["well_formed"] if algorithm.asks_for("shape", "well_formed") else []
    elif any(name.startswith("get_soft") for name in functions):
        imports = "from trl.rewards import get_soft_overlong_punishment\n"
    texts = {"correct": CORRECT, "well_formed": WELL_FORMED, "length_cost": LENGTH_COST}
    return {
        "trainer": "GRPOTrainer",
        "built": "carried(GRPOTrainer, ALGORITHM)" if carry else "GRPOTrainer",
        "imports": imports,
        "rewards": "".join(texts.get(name.partition("(")[0], "") for name in functions),
        "fields": _keywords(export.run_fields if carry else export.fields),
        "arguments": f"reward_funcs=[{', '.join(functions)}], ",
    }


def _keywords(fields: Mapping[str, Any]) -> str:
    return "\n".join(f"    {name}={value!r}," for name, value in fields.items())


def _slot_table(export: Export, way: str, measurement: Measured | None) -> str:
    rows: list[str] = []
    for line in export.slots:
        words = f"{line.fit:13} {line.slot:20} {line.piece}" + (f": {line.why}" if line.why else "")
        rows += textwrap.wrap(words, WIDTH, subsequent_indent=" " * 14)
    if measurement is not None:
        rows += ["", *textwrap.wrap(f"Measured on one batch, {way}: {measurement}.", WIDTH)]
    return "\n".join(rows)


def yaml_text(export: Export) -> str:
    """Return a configuration that verl runs: `python -m verl.trainer.main_ppo --config-dir . --config-name NAME`, and
    more overrides. Where verl has no such advantage, it asks for one of the algorithm's name, which is to be registered there.

    Raises ValueError for an algorithm of pairs, and for a piece of one's own.
    """
    if export.unknown_slots:
        where = ", ".join(export.unknown_slots)
        raise ValueError(
            f"{export.algorithm} has a piece of your own in {where}, which no option of verl names: register it there"
        )
    lacking = [line for line in export.slots if line.fit == "inexpressible"]
    if not export.fields:
        raise ValueError(f"{export.algorithm} cannot be run by verl: {lacking[0].why}")
    head = [
        f"{export.algorithm} by verl, written by rlviz {rlviz.__version__}; checked with verl {CHECKED['verl']}.",
        "Run it with: python -m verl.trainer.main_ppo --config-dir . --config-name THIS_FILE data.train_files=… "
        "data.val_files=… actor_rollout_ref.model.path=…",
        *(["NOT the same algorithm: " + "; ".join(f"{line.slot}, {line.why}" for line in lacking)] if lacking else []),
        "",
        *_slot_table(export, "exported", export.measured).splitlines(),
    ]
    estimator = re.sub(r"\W+", "_", export.algorithm.lower())
    if ESTIMATOR not in export.fields:  # verl would take its own default: GAE, with a critic
        head.insert(2, f"verl stops at {ESTIMATOR} until yours is registered there: @register_adv_est({estimator!r})")
    tree: dict[str, Any] = {
        "defaults": ["ppo_trainer", "_self_"],
        "hydra": {"searchpath": ["pkg://verl.trainer.config"]},
    }
    for name, value in {ESTIMATOR: estimator, **export.fields}.items():
        *folders, last = name.split(".")
        branch = tree
        for folder in folders:
            branch = branch.setdefault(folder, {})
        branch[last] = value
    comments = [f"# {line}".rstrip() for line in head]
    return "\n".join([*comments, yaml.safe_dump(tree, sort_keys=False)])
