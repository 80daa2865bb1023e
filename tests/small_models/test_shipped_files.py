"""The shipped policies without transformers: the same parameters, texts, files and numbers as with it."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerBase

from small_models import shipped_files
from small_models.decoder import Decoder
from small_models.policies import Policy, load_policy
from small_models.shipped_files import CHECKPOINTS, KINDS
from small_models.tokenizer import CHARACTERS, ShippedTokenizer, decode, encode, prefix_ids

CPU = torch.device("cpu")
DENSE = "chain", "sentences"


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(KINDS[0], tmp_path / "copy")


def read_by_transformers(name):
    """Return the shipped policy as transformers reads it."""
    folder = CHECKPOINTS / name
    return Policy(AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder), name)


def files(policy, folder):
    policy.save(folder)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("name", DENSE)
def test_parameters_have_the_names_the_order_and_the_values_that_transformers_gives_them(name):
    ours, theirs = load_policy(name, device="cpu").weights, read_by_transformers(name).weights
    assert isinstance(ours, Decoder) and not ours.training
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert ours.model.embed_tokens.padding_idx == theirs.base_model.embed_tokens.padding_idx


def test_the_tokenizer_reads_and_writes_as_transformers_does():
    ours, theirs = load_policy("chain").vocabulary, read_by_transformers("chain").tokenizer
    assert isinstance(ours, ShippedTokenizer)
    texts = [CHARACTERS, "35271=", "a $ b"]
    ids = encode(ours, texts)
    assert ids == [theirs(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert decode(ours, ids) == texts
    assert [ours.decode([token]) for token in range(48)] == [theirs.decode([token]) for token in range(48)]
    assert prefix_ids(ours) == prefix_ids(theirs)
    assert (ours.pad_token, ours.eos_token_id) == (theirs.pad_token, theirs.eos_token_id)


def test_whoever_asks_gets_transformers_model_of_the_very_same_parameters():
    policy = load_policy("chain", device="cpu")
    before = dict(policy.weights.named_parameters())
    before["lm_head.weight"].requires_grad_(False)
    copy = policy.frozen_copy()
    with torch.no_grad():
        policy.weights.lm_head.weight.add_(1)
    assert torch.equal(copy.weights.lm_head.weight + 1, policy.weights.lm_head.weight)
    assert not any(parameter.requires_grad for parameter in copy.model.parameters())
    model = policy.model
    assert type(model) is LlamaForCausalLM and not model.training
    assert policy.model is model and policy.on_transformers().weights is model
    assert all(parameter is before[name] for name, parameter in model.named_parameters())
    assert [name for name, parameter in before.items() if not parameter.requires_grad] == ["lm_head.weight"]
    tokenizer = policy.tokenizer
    assert isinstance(tokenizer, PreTrainedTokenizerBase) and policy.tokenizer is policy.vocabulary is tokenizer


def test_the_files_are_those_that_transformers_writes(tmp_path):
    policy = load_policy("trip", device="cpu")
    ours = files(policy, tmp_path / "ours")
    again = load_policy(tmp_path / "ours", device="cpu")  # what was saved is known again
    assert isinstance(again.weights, Decoder) and files(again, tmp_path / "again") == ours
    assert policy.model and policy.tokenizer
    theirs = files(policy, tmp_path / "theirs")
    assert isinstance(load_policy(tmp_path / "theirs", device="cpu").weights, Decoder)
    assert len(ours) == 5 and set(ours) == set(theirs)
    different = {name for name in ours if ours[name] != theirs[name]}
    assert different <= {"tokenizer_config.json"}  # where transformers notes from where it read it


def edit_json(file, **more):
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | more), encoding="utf-8")


def rewritten(folder, change):
    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors), folder / "model.safetensors", metadata={"format": "pt"})


OTHERS = {
    "another number in the config": lambda folder: edit_json(folder / "config.json", rms_norm_eps=1e-5),
    "another tokenizer": lambda folder: edit_json(folder / "tokenizer.json", version="2.0"),
    "a file less": lambda folder: (folder / "generation_config.json").unlink(),
    "another shape": lambda folder: rewritten(folder, lambda t: t | {"lm_head.weight": torch.zeros(47, 64)}),
    "no weights": lambda folder: (folder / "model.safetensors").write_bytes(b"no"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_exactly_a_shipped_policy_is_left_to_transformers(name, folder):
    assert shipped_files.read(folder, CPU) is not None
    OTHERS[name](folder)
    assert shipped_files.read(folder, CPU) is None


def test_weights_outlive_their_file(folder):
    policy = load_policy(folder, device="cpu")
    with (folder / "model.safetensors").open("r+b") as file:  # in place, which a mapped file would show
        file.write(b"\0" * 500_000)
    assert torch.equal(policy.weights.lm_head.weight, read_by_transformers("chain").model.lm_head.weight)
