"""What is imported, and what is not, until there is a picture to see or a first step of training: modules, not seconds."""

import gc
import subprocess
import sys

import pytest

from rlviz import imports

OF_TORCHS_COMPILER = {"torch._dynamo", "torch.distributed.tensor", "sympy"}
OF_THE_MODEL = {"tokenizers", "safetensors", "transformers", *OF_TORCHS_COMPILER}
OF_TABLES = {"pandas", "scipy", "sklearn"}
OF_PICTURES = {"matplotlib", "ipywidgets", "IPython"}


def modules_after(code: str) -> set[str]:
    """Return the names of the modules that a fresh interpreter has imported after this code."""
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], check=False, timeout=120, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split("\n")[-2].split())


def test_no_picture_waits_for_a_model_or_for_tables():
    imported = modules_after("""
from rlviz import explore_clip, training_panel
from rlviz.pictures.catalogue import EXPLORERS, find_explorer
from rlviz.training import TrainSettings, default_settings, find_task
explorers = [find_explorer(name) for name in EXPLORERS]
explore_clip()
training_panel()
""")
    assert {"torch", "matplotlib.figure", "rlviz.pictures.sampling"} <= imported
    assert not imported & (OF_THE_MODEL | OF_TABLES | {"matplotlib.pyplot"})


BEGINNINGS = {
    "GRPO": 'train(load_policy("chain"), "chain", GRPO, SMALL, out=out)',
    "DAPO with KL": 'train("lookup", replace(DAPO, kl=KLInLoss(beta=0.1)), replace(SMALL, details_every=1), out=out)',
    "DPO": 'train("chain", DPO, PairSettings(steps=2, num_pairs=4, batch_size=2, max_new_tokens=4), out=out)',
    "resumed": '(run := train("chain", GRPO, SMALL, out=out), next(run), run.close(), resume(out))[-1]',
}


@pytest.mark.quick(1)
def test_a_first_step_of_training_waits_for_no_table_no_picture_and_not_for_transformers(tmp_path):
    """In one interpreter, each beginning in its turn; after each, the names of the modules that are there."""
    script = """
import sys
from dataclasses import replace
from rlviz import DAPO, DPO, GRPO, PairSettings, TrainSettings, load_policy, resume, train
from rlviz.pieces.kl import KLInLoss
SMALL = TrainSettings(steps=2, num_prompts=2, group_size=2, max_new_tokens=4)
"""
    for number, begin in enumerate(BEGINNINGS.values()):
        script += f"out = {str(tmp_path / str(number))!r}\nrun = {begin}\nnext(run)\nassert run.path == 'plain'\n"
        script += "run.close()\nprint(*sys.modules)\n"
    run = subprocess.run([sys.executable, "-c", script], check=False, timeout=120, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    imported = dict(zip(BEGINNINGS, map(str.split, run.stdout.splitlines()), strict=True))
    for name, modules in imported.items():
        assert "rlviz.training.start" in modules
        assert not set(modules) & (OF_TABLES | OF_PICTURES | {"transformers"} | OF_TORCHS_COMPILER), name


def test_a_command_waits_for_no_more_than_its_training():
    imported = modules_after("""
from rlviz.cli import app, train
import rlviz.training.start
""")
    assert not imported & (OF_TABLES | OF_PICTURES | {"transformers"} | OF_TORCHS_COMPILER)


def test_a_model_of_transformers_is_there_for_whoever_asks():
    imported = modules_after("""
from rlviz import load_policy
policy = load_policy("chain")
assert "transformers" not in __import__("sys").modules
assert type(policy.model).__module__ == "transformers.models.llama.modeling_llama"
""")
    assert "transformers" in imported


def test_what_is_imported_for_good_leaves_the_search_for_garbage(monkeypatch):
    frozen = []
    monkeypatch.setattr(imports, "import_module", lambda name: frozen.append((name, gc.isenabled())))
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append("freeze"))
    imports.import_for_good("no_such_module")
    assert frozen == [("no_such_module", False), "freeze"]
    assert gc.isenabled()
    imports.import_for_good("sys")  # is there already
    assert frozen[2:] == [("sys", True)]


def test_the_search_for_garbage_goes_on_after_a_failed_import(monkeypatch):
    monkeypatch.setattr(gc, "freeze", lambda: None)
    with pytest.raises(ModuleNotFoundError):
        imports.import_for_good("no_such_module")
    assert gc.isenabled()


def test_training_is_imported_for_good(monkeypatch):
    from typer.testing import CliRunner

    from rlviz.cli import app, train

    asked = []
    monkeypatch.setattr(train, "import_for_good", asked.append)
    assert CliRunner().invoke(app, ["train", "--algorithm", "nothing"]).exit_code == 2
    assert asked == ["rlviz.training.start"]
