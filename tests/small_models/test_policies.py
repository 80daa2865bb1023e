import json

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config

from small_models.evaluation import evaluate
from small_models.policies import (
    CHECKPOINTS,
    build_policy,
    choose_device,
    load_policy,
    one_thread_if_small,
)
from small_models.scorers import RewardModel
from small_models.tasks import Chain
from small_models.tasks.sentences import WORDS
from small_models.tokenizer import CHARACTERS, build_tokenizer, encode
from small_models.warm_start import RECIPES


def test_the_tokenizer_is_one_character_a_token():
    tokenizer = build_tokenizer()
    assert len(tokenizer) == 48
    ids = encode(tokenizer, [CHARACTERS])[0]
    assert ids == list(range(2, 48))
    assert tokenizer.decode(ids) == CHARACTERS
    assert tokenizer("1$")["input_ids"][-1] == tokenizer.eos_token_id == 1


@pytest.mark.parametrize(
    ("experts", "kind", "count"),
    [
        (0, "llama", 137_536),
        # a layer: the experts' three 64 × 64 matrices and the router's 8 × 64 in place of the dense layer's three 64 × 256
        (8, "mixtral", 137_536 + 2 * (8 * 3 * 64 * 64 + 8 * 64 - 3 * 64 * 256)),
    ],
)
def test_policies_have_their_shape_and_are_seeded(experts, kind, count):
    policy, same, other = (build_policy(experts=experts, seed=seed, device="cpu") for seed in (0, 0, 1))
    assert policy.model.config.model_type == kind and policy.num_parameters == count
    assert torch.equal(policy.model.lm_head.weight, same.model.lm_head.weight)
    assert not torch.equal(policy.model.lm_head.weight, other.model.lm_head.weight)
    assert getattr(policy.model.config, "router_aux_loss_coef", 0.0) == 0.0


def test_building_and_loading_leave_everybody_s_random_numbers_alone(tmp_path):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    policy = build_policy(hidden_size=16, num_layers=1, num_heads=2, seed=1, device="cpu")
    RewardModel.from_policy(policy).save(tmp_path)
    RewardModel.load(tmp_path, device="cpu")
    load_policy("chain", device="cpu")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.all_held_out
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_shipped_checkpoints_are_small_and_as_good_as_they_say(recipe):
    folder = CHECKPOINTS / recipe.name
    facts = json.loads((folder / "made.json").read_text())
    assert sum(file.stat().st_size for file in folder.iterdir()) < 1_000_000
    assert facts["command"].split()[:4] == ["python", "-m", "small_models.warm_start", recipe.name]
    if not recipe.task.has_accuracy:
        measured = recipe.measure(load_policy(recipe.name, device="cpu"))
        assert {name: facts[name] for name in measured} == pytest.approx(measured, abs=0.01)
        assert measured["sentences"] > 0.97 and measured["words_used"] == len(WORDS)
        return
    measured = evaluate(load_policy(recipe.name, device="cpu"), recipe.task).accuracy
    assert measured == pytest.approx(facts["held_out_accuracy_sampled"], abs=0.01)
    low, high = (0.08, 0.15) if recipe.name == "chain-rare" else (0.3, 0.5)  # a guess is right one time in ten
    assert low < measured < high


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_without_a_gpu_is_refused():
    with pytest.raises(ValueError, match="sees no CUDA device"):
        choose_device("cuda")


def test_small_policies_run_on_one_thread_and_give_the_threads_back():
    torch.set_num_threads(2)
    with one_thread_if_small(build_policy(device="cpu")):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_a_model_says_where_its_weights_came_from(tmp_path):
    """TRL makes its reference of that folder, and would hold `sort` to `chain`."""
    policy = load_policy("sort", device="cpu")
    policy.save(tmp_path / "mine")
    for loaded in (policy, load_policy(str(tmp_path / "mine"), device="cpu")):
        again = AutoModelForCausalLM.from_pretrained(loaded.model.config._name_or_path).state_dict()
        assert all(torch.equal(again[key], value) for key, value in loaded.model.state_dict().items())
    assert build_policy(device="cpu").model.name_or_path == ""


def test_a_model_is_read_without_a_progress_bar(monkeypatch):
    """In a notebook one is a widget, which no redirected stream holds back."""
    bars = []
    monkeypatch.setattr("transformers.utils.logging.tqdm_lib.tqdm", lambda *_, **words: bars.append(words))
    assert load_policy("sort", device="cpu").model.name_or_path
    assert bars == []


def test_what_cannot_be_loaded_is_said_in_a_sentence(tmp_path):
    policy = build_policy()
    policy.save(tmp_path)
    config, weights = tmp_path / "config.json", tmp_path / "model.safetensors"
    text = config.read_text()
    for layers, why in (
        (1, "has no place for its weights"),
        (3, "lacks the weights"),
        (10**6, "more than 1000 layers"),
    ):
        config.write_text(text.replace('"num_hidden_layers": 2', f'"num_hidden_layers": {layers}'))
        with pytest.raises(ValueError, match=why):
            load_policy(tmp_path)
    config.write_text(text)
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match="cannot be read") as refused:
        load_policy(tmp_path)
    assert "\n" not in str(refused.value)
    weights.unlink()
    torch.save(policy.model.state_dict(), tmp_path / "pytorch_model.bin")  # a pickle is not read
    with pytest.raises(ValueError, match="cannot be read"):
        load_policy(tmp_path)


def save_gpt2(folder):
    """Write a checkpoint of another architecture, whose tokenizer has no padding token, as many on the hub have none."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=48, n_embd=32, n_layer=2, n_head=2, n_positions=64, bos_token_id=None, eos_token_id=1
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer = build_tokenizer()
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)


def test_a_tokenizer_without_padding_pads_with_its_end(tmp_path):
    save_gpt2(tmp_path)
    policy = load_policy(tmp_path, device="cpu")
    assert policy.model.config.model_type == "gpt2"
    assert policy.pad_id == policy.end_id == 1


def test_a_task_without_a_warm_start_asks_no_hub(monkeypatch):
    class Unshipped(Chain):
        name = "unshipped"

    monkeypatch.setattr("small_models.policies.TASKS", (Unshipped(),))
    monkeypatch.setattr("small_models.policies._read_model", None)
    with pytest.raises(ValueError, match="policy: the task unshipped has no warm start here; make one by python -m"):
        load_policy("unshipped")
