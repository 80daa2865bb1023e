"""What is imported, and what is not, until there is a picture to see or a first step of training: modules, not seconds."""

import subprocess
import sys
from pathlib import Path

COMPILER = {"torch._dynamo", "torch.distributed.tensor", "sympy"}
TABLES = {"pandas", "scipy", "sklearn"}
DRAWING = {"matplotlib", "ipywidgets", "IPython"}
MODEL = {"tokenizers", "safetensors", "transformers"} | COMPILER
LATER = TABLES | DRAWING | COMPILER | {"transformers"}
START = """
from dataclasses import replace
from rlviz import DAPO, DPO, GRPO, PairSettings, TrainSettings, load_policy, resume, train
from rlviz.pieces.kl import KLInLoss
SMALL = TrainSettings(steps=2, num_prompts=2, group_size=2, max_new_tokens=4)
def first_step(run):
    next(run)
    assert run.path == "plain"
    run.close()
"""
# what is done in one interpreter, in this order; after each, modules that must be there, and modules that must not
HELP = """
import rlviz
from rlviz.cli import app
from typer.testing import CliRunner
assert "train" in CliRunner().invoke(app, ["--help"]).output
assert "--eps-low" in CliRunner().invoke(app, ["train", "--help"]).output
"""
DAPO = 'first_step(train("lookup", replace(DAPO, kl=KLInLoss(beta=0.1)), replace(SMALL, details_every=1), out="dapo"))'
DPO = """
pairs = PairSettings(steps=2, num_pairs=4, batch_size=2, max_new_tokens=4)
first_step(train("chain", DPO, pairs, out="dpo"))
"""
TRANSFORMERS = """
policy = load_policy("chain")
assert "transformers" not in sys.modules
assert type(policy.model).__module__ == "transformers.models.llama.modeling_llama"
"""
STAGES = {
    "settings": ("import rlviz.settings", {"rlviz.settings"}, {"torch"} | LATER),
    "the package and help": (HELP, {"rlviz.cli"}, {"torch", "joblib"} | LATER),
    "rlviz train": (
        "from rlviz.cli import train\nimport rlviz.training.start",
        {"torch", "rlviz.training.start"},
        LATER,
    ),
    "GRPO": (f'{START}first_step(train(load_policy("chain"), "chain", GRPO, SMALL, out="grpo"))', set(), LATER),
    "DAPO with KL": (DAPO, set(), LATER),
    "DPO": (DPO, set(), LATER),
    "resumed": ('first_step(resume("grpo"))', set(), LATER),
    "a model of transformers": (TRANSFORMERS, {"transformers"}, TABLES | DRAWING),
}
PICTURES = """
from rlviz import explore_clip, training_panel
from rlviz.pictures.catalogue import EXPLORERS, find_explorer
explorers = [find_explorer(name) for name in EXPLORERS]
explore_clip()
training_panel()
"""


def modules_after(*stages: str, folder: Path) -> list[set[str]]:
    """Return the names of the modules that a fresh interpreter has imported after each of these, done one after another."""
    script = "import sys\n" + "".join(f"{code}\nprint('modules:', *sys.modules)\n" for code in stages)
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, cwd=folder, check=False, timeout=120, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return [set(line.split()) for line in run.stdout.splitlines() if line.startswith("modules:")]


def test_nothing_is_imported_before_it_is_needed(tmp_path):
    after = modules_after(*(code for code, _, _ in STAGES.values()), folder=tmp_path)
    for (name, (_, present, absent)), modules in zip(STAGES.items(), after, strict=True):
        assert present <= modules and not absent & modules, (name, absent & modules)


def test_no_picture_waits_for_a_model_or_for_tables(tmp_path):
    (imported,) = modules_after(PICTURES, folder=tmp_path)
    assert {"torch", "matplotlib.figure", "rlviz.pictures.sampling"} <= imported
    assert not imported & (MODEL | TABLES | {"matplotlib.pyplot"})
