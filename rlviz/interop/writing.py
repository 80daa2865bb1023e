"""The file that another library runs: a Python script for TRL (`script`), YAML for verl (`yaml_text`); both hold the slots."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from typing import Any

import rlviz
from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.algorithms.describe import to_json
from rlviz.algorithms.family import Algorithm
from rlviz.interop.carrying import in_one_rollout
from rlviz.interop.exporting import CHECKED, SETTINGS, Export, Measured, measured

WIDTH = 110
ESTIMATOR = "algorithm.adv_estimator"

GROUP_SCRIPT = '''
import json
import re
import sys
import warnings

import trl
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer
{imports}
MODEL, PROMPTS, OUT = sys.argv[1:]
if trl.__version__ != "{version}":
    warnings.warn(f"checked with trl {version}; this is {{trl.__version__}}, whose defaults may be others")


def text(completion):
    return completion if isinstance(completion, str) else completion[-1]["content"]


def correct(completions, answer, **_):
    """1 where the last number of the completion is the answer. Put your own rule here."""
    numbers = [re.findall(r"-?\\d+(?:\\.\\d+)?", text(completion)) for completion in completions]
    return [float(bool(written) and written[-1] == str(right)) for written, right in zip(numbers, answer)]
{rewards}

config = GRPOConfig(
    output_dir=OUT,
    logging_steps=1,
{fields}
)
with open(PROMPTS, encoding="utf-8") as lines:
    rows = [json.loads(line) for line in lines if line.strip()]
trainer = {trainer}(
    MODEL,
    reward_funcs=[{functions}],
    args=config,
    train_dataset=Dataset.from_list(rows),
)
trainer.train()
'''

PAIR_SCRIPT = """
import json
import sys
import warnings

import trl
from datasets import Dataset
from trl import DPOConfig, DPOTrainer

MODEL, PAIRS, OUT = sys.argv[1:]
if trl.__version__ != "{version}":
    warnings.warn(f"checked with trl {version}; this is {{trl.__version__}}, whose defaults may be others")

config = DPOConfig(
    output_dir=OUT,
    logging_steps=1,
{fields}
)
with open(PAIRS, encoding="utf-8") as lines:
    rows = [json.loads(line) for line in lines if line.strip()]
trainer = DPOTrainer(MODEL, args=config, train_dataset=Dataset.from_list(rows))
trainer.train()
"""

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
    if export.kind == "DPOConfig":
        body = PAIR_SCRIPT.format(version=CHECKED["trl"], fields=_keywords(export.fields))
        usage = 'python THIS_FILE MODEL PAIRS.jsonl OUT, where a line is {"prompt": …, "chosen": …, "rejected": …}'
    else:
        body = _group_script(export, algorithm, carry=bool(lacking))
        usage = 'python THIS_FILE MODEL PROMPTS.jsonl OUT, where a line is {"prompt": …, "answer": …}'
    way = "carried" if lacking else "exported"
    return f'"""{head}\n\n{usage}\n\n{_slot_table(export, way, measured("trl", algorithm, way))}\n"""\n{body}'


def _group_script(export: Export, algorithm: Algorithm, *, carry: bool) -> str:
    fields, functions, imports = export.fields, ["correct", *export.rewards], [""]
    if carry:  # what its pieces ask of TRL, they do themselves
        fields, functions = export.run_fields, ["correct"]
        described = json.dumps(to_json(algorithm), ensure_ascii=False)
        imports = [
            "from rlviz.interop import carried, from_json",
            "",
            f"ALGORITHM = from_json(json.loads({described!r}))",
            "",
        ]
        if isinstance(algorithm, GroupPolicyGradient) and algorithm.asks_for("shape", "well_formed"):
            functions.append("well_formed")
    elif any(reward.startswith("get_soft") for reward in export.rewards):
        imports = ["from trl.rewards import get_soft_overlong_punishment", ""]
    rewards = WELL_FORMED if "well_formed" in functions else ""
    rewards += LENGTH_COST if any(name.startswith("length_cost") for name in functions) else ""
    return GROUP_SCRIPT.format(
        imports="\n".join(imports),
        version=CHECKED["trl"],
        rewards=rewards,
        fields=_keywords(fields),
        trainer="carried(GRPOTrainer, ALGORITHM)" if carry else "GRPOTrainer",
        functions=", ".join(functions),
    )


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
    tree: dict[str, Any] = {}
    for name, value in {ESTIMATOR: estimator, **export.fields}.items():
        *folders, last = name.split(".")
        branch = tree
        for folder in folders:
            branch = branch.setdefault(folder, {})
        branch[last] = value
    defaults = [
        "defaults:",
        "  - ppo_trainer",
        "  - _self_",
        "hydra:",
        "  searchpath:",
        "    - pkg://verl.trainer.config",
    ]
    comments = [f"# {line}".rstrip() for line in head]
    return "\n".join([*comments, *defaults, *_nested(tree), ""])


def _nested(tree: Mapping[str, Any], indent: str = "") -> list[str]:
    """Return a tree as lines of YAML; a number with an exponent needs its point, or it would be a text."""
    lines = []
    for name, value in tree.items():
        text = json.dumps(value)
        if isinstance(value, dict):
            lines += [f"{indent}{name}:", *_nested(value, indent + "  ")]
        elif isinstance(value, float) and "e" in text and "." not in text:
            lines.append(f"{indent}{name}: {text.replace('e', '.0e')}")
        else:
            lines.append(f"{indent}{name}: {text}")
    return lines
