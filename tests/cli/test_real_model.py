"""A model that is not ours from the command line: adapters, how its prompts are read, and a plain model in the end."""

import json
import re

import pytest
import torch

from rlviz.training import RunFolder
from small_models.policies import load_policy
from small_models.sampling import encode_prompts, response_logits
from tests.small_models.real import chat_policy

SIZE = (
    "--num-prompts",
    2,
    "--group-size",
    4,
    "--max-new-tokens",
    4,
    "--steps",
    2,
    "--evaluate-every",
    0,
    "--device",
    "cpu",
)


@pytest.fixture
def model(tmp_path):
    """Return a function that saves a tiny model of an architecture, and gives the options of a run of it."""
    lines = [{"prompt": f"{n} eggs?", "answer": 2 * n} for n in range(12)]
    (tmp_path / "eggs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def save(name):
        chat_policy(name).save(tmp_path / name)
        return "--policy", tmp_path / name, "--task", tmp_path / "eggs.jsonl", "--rule", "last-number", *SIZE

    return save


def logits_of(policy):
    with torch.no_grad():
        return response_logits(policy, *encode_prompts(policy, ["3 eggs?"]), torch.tensor([[[5, 6, 7]]]))


@pytest.mark.parametrize("lora", [None, 2])
def test_the_policy_of_a_run_goes_out_as_a_plain_model(rlviz, model, tmp_path, lora):
    if lora:
        pytest.importorskip("peft", reason="LoRA needs peft")
    options = model("qwen3")
    result = rlviz("train", *options, *(("--lora", lora) if lora else ()), "--lr", 0.01, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert bool(re.search(r"\d of [\d,]+ parameters", result.output)) == bool(lora)
    assert bool(list((tmp_path / "run").rglob("model.safetensors"))) == (not lora)
    result = rlviz("export", tmp_path / "run", "--to", "transformers", "--out", tmp_path / "plain")
    assert result.exit_code == 0, result.output
    plain, trained = (
        load_policy(tmp_path / "plain", device="cpu"),
        load_policy(tmp_path / "run/checkpoint", device="cpu"),
    )
    assert not hasattr(plain.model, "peft_config")
    torch.testing.assert_close(logits_of(plain), logits_of(trained), rtol=0, atol=1e-5)
    again = rlviz("export", tmp_path / "run", "--to", "transformers", "--out", tmp_path / "plain")
    assert again.exit_code == 2 and "is not empty" in again.output
    assert RunFolder.open(tmp_path / "run").config["settings"]["lr"] == 0.01


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--policy", "nowhere.gguf"), "there is no file nowhere.gguf"),
        (("--policy", "broken.gguf"), "the file broken.gguf cannot be read"),
        (("--lora", "0"), "lora must be"),
    ],
)
def test_what_is_no_model_or_no_rank_is_refused_in_a_sentence(rlviz, tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + b"\0" * 100)
    (tmp_path / "sums.jsonl").write_text('{"prompt": "1 + 1", "answer": 2}\n{"prompt": "1 + 2", "answer": 3}\n')
    task = ("--task", "sums.jsonl", "--rule", "last-number") if "--policy" in options else ()
    result = rlviz("train", *options, *task, *SIZE)
    assert result.exit_code == 2 and words in result.output and "Traceback" not in result.output


@pytest.mark.parametrize(
    ("line", "rule", "words"),
    [
        ('{"question": "1 + 1", "answer": 2}', "exact", "line 1 lacks prompt"),
        ('{"prompt": "1 + 1", "answer": 2}', "rule.py:other", "has no function other; it has right"),
        ('{"prompt": "1 + 1", "answer": 2}', None, "rule is missing"),
    ],
)
def test_what_is_no_task_is_refused_before_a_model_is_read(rlviz, tmp_path, monkeypatch, line, rule, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rlviz.training.start.load_policy", None)
    (tmp_path / "rule.py").write_text("def right(prompt, response, answer):\n    return True\n")
    (tmp_path / "sums.jsonl").write_text(f'{line}\n{{"prompt": "1 + 2", "answer": 3}}\n')
    result = rlviz(
        "train", "--policy", "some/model", "--task", "sums.jsonl", *(("--rule", rule) if rule else ()), *SIZE
    )
    assert result.exit_code == 2 and words in " ".join(result.output.split()), result.output


@pytest.mark.parametrize(("what", "options"), [("grpo", ("--out", "x")), ("run", ())])
def test_a_plain_model_is_written_of_a_run_into_a_folder(rlviz, tmp_path, what, options):
    (tmp_path / "run").mkdir()
    result = rlviz("export", tmp_path / "run" if what == "run" else what, "--to", "transformers", *options)
    assert result.exit_code == 2 and "give a run folder, and --out FOLDER" in result.output
