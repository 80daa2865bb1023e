"""A model that is not ours from the command line: adapters, how its prompts are read, and a plain model in the end."""

import json
import re
from pathlib import Path

import pytest
import torch

from small_models.policies import load_policy
from small_models.sampling import encode_prompts, response_logits
from tests.small_models.real import chat_policy

SIZE = "--num-prompts 2 --group-size 4 --max-new-tokens 4 --steps 2 --evaluate-every 0 --device cpu".split()


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
    plain, trained = (load_policy(tmp_path / name, device="cpu") for name in ("plain", "run/checkpoint"))
    assert not hasattr(plain.model, "peft_config")
    torch.testing.assert_close(logits_of(plain), logits_of(trained), rtol=0, atol=1e-5)
    (tmp_path / "run/checkpoint").rename(tmp_path / "run/checkpoint.new")  # as a kill may leave it
    assert rlviz("export", tmp_path / "run", "--to", "transformers", "--out", tmp_path / "same").exit_code == 0
    again = rlviz("export", tmp_path / "run", "--to", "transformers", "--out", tmp_path / "plain")
    assert again.exit_code == 2 and "is not empty" in again.output


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train --policy nowhere.gguf --task sums.jsonl --rule exact", "there is no file nowhere.gguf"),
        ("train --policy broken.gguf --task sums.jsonl --rule exact", "the file broken.gguf cannot be read"),
        ("train --policy unread/model --task lacking.jsonl --rule exact", "line 1 lacks prompt"),
        ("train --policy unread/model --task sums.jsonl --rule rule.py:other", "has no function other; it has right"),
        ("train --policy unread/model --task sums.jsonl", "rule is missing"),
        ("train --lora 0", "lora must be"),
        ("export grpo --to transformers --out x", "give a run folder, and --out FOLDER"),
        ("export ./run --to transformers", "give a run folder, and --out FOLDER"),
    ],
)
def test_what_is_no_model_task_or_rank_is_refused_in_a_sentence(rlviz, tmp_path, monkeypatch, command, words):
    """What is no task is refused before a model is read."""
    monkeypatch.chdir(tmp_path)
    Path("broken.gguf").write_bytes(b"GGUF" + b"\0" * 100)
    Path("sums.jsonl").write_text('{"prompt": "1 + 1", "answer": 2}\n{"prompt": "1 + 2", "answer": 3}\n')
    Path("lacking.jsonl").write_text('{"question": "1 + 1", "answer": 2}\n{"prompt": "1 + 2", "answer": 3}\n')
    Path("rule.py").write_text("def right(prompt, response, answer):\n    return True\n")
    result = rlviz(*command.split())
    assert result.exit_code == 2 and words in " ".join(result.output.split()), result.output
