"""The runs of SmolLM2-135M-Instruct that lesson 18 shows, as tables.

    python notebooks/experiments/real_model.py FOLDER

reads the run folders in FOLDER, named sums-SEED and happy-BETA-SEED, trained on the files in `real_model/` by the command that
`rlviz.runs.recordings` has. It writes `real_model.csv`, a row a step, and `real_model_pass.csv`: of 100 sums that were not
trained on, how many of 16 responses are right before training and after it. The second takes a minute a column on one thread.
"""

import json
import random
import re
import sys
from pathlib import Path

import pandas as pd
import torch

from rlviz.training import RunFolder, load_policy
from small_models.sampling import sample
from small_models.tasks.file_task import last_number

HERE, FOLDER = Path(__file__).with_suffix(""), Path(sys.argv[1])
SEEDS, BETAS = (0, 1), ("0", "0.2")
TERMS = (range(11, 60), range(11, 40))
SUBJECT = re.compile(r"(\w+)(?: at night| in a cage)?\.$")  # the noun of "Write one sentence about a bird in a cage."
EXAMPLES = "12 + 13 = 25\n36 + 21 = 57\n"


def naming_share(record):
    """Return the share of responses that name their prompt's subject, by its noun."""
    named = []
    for group in record.groups:
        subject = SUBJECT.search(group.user_text)[1]
        named += [subject in response.text.lower() for response in group.responses]
    return sum(named) / len(named)


def step_rows(task, beta, seed, folder):
    for record in RunFolder.open(folder).records():
        names_subject = naming_share(record) if task == "happy" else None
        yield {
            "task": task,
            "beta": float(beta),
            "seed": seed,
            "step": record.step,
            "reward": record.reward,
            "kl": record.kl,
            "entropy": record.entropy,
            "grad_norm": record.grad_norm,
            "names_subject": names_subject,
            "seconds": record.seconds,
        }


def fresh_sums():
    """Return 100 pairs of terms that no line of the task's file has."""
    lines = (HERE / "sums.jsonl").read_text(encoding="utf-8").splitlines()
    known = {tuple(map(int, re.findall(r"(\d+) \+ (\d+) =$", json.loads(line)["prompt"])[0])) for line in lines}
    return random.Random(1).sample([(a, b) for a in TERMS[0] for b in TERMS[1] if (a, b) not in known], 100)


def right_of_16(policy, pairs):
    """Return for each sum how many of 16 responses have the right last number."""
    generator, right = torch.Generator().manual_seed(0), []
    for start in range(0, len(pairs), 4):
        part = pairs[start : start + 4]
        prompts = [f"{EXAMPLES}{a} + {b} =" for a, b in part]
        samples = sample(policy, prompts, group_size=16, max_new_tokens=4, generator=generator)
        for (a, b), texts in zip(part, samples.texts(policy), strict=True):
            right.append(sum(last_number(text, str(a + b)).correct for text in texts))
    return right


torch.set_num_threads(1)
runs = [("sums", "0", seed, FOLDER / f"sums-{seed}") for seed in SEEDS]
runs += [("happy", beta, seed, FOLDER / f"happy-{beta}-{seed}") for beta in BETAS for seed in SEEDS]
rows = [row for run in runs for row in step_rows(*run)]
pd.DataFrame(rows).round(4).to_csv(HERE.with_suffix(".csv"), index=False)
pairs = fresh_sums()
table = pd.DataFrame({"sum": [f"{a} + {b}" for a, b in pairs]})
table["before"] = right_of_16(load_policy(FOLDER / "sums-0" / "reference"), pairs)
for seed in SEEDS:
    table[f"after_{seed}"] = right_of_16(load_policy(FOLDER / f"sums-{seed}" / "checkpoint"), pairs)
table.to_csv(HERE.with_name("real_model_pass.csv"), index=False)
