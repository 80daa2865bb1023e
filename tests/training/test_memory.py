"""What cannot fit is refused before anything is read or computed, in a sentence that ends with the remedy."""

from contextlib import suppress

import pytest
from transformers import AutoModelForCausalLM, LlamaConfig

from rlviz.algorithms import DPO, GRPO
from rlviz.training import PairSettings, TrainSettings, train
from rlviz.training.start import policy_to_train
from small_models import memory
from small_models.pairs import Pair
from small_models.policies import Policy, count_weights
from small_models.tasks import Chain
from tests.small_models.real import SIZES, byte_tokenizer

VOCABULARY = 152_064  # Qwen 2.5's
LOGITS = 8 * VOCABULARY  # bytes a token: float32 logits and their gradients
WEIGHTS = 16 * VOCABULARY + 984  # embeddings and head of width 8, and one layer
QWEN_LIKE = {"num_prompts": 32, "group_size": 8, "max_new_tokens": 512}
PAIRS = [Pair("1=", "a" * 9, "a"), *[Pair("1=", "b", "c")] * 49]


@pytest.fixture(scope="module")
def wide():
    """A policy that is small but for its vocabulary."""
    small = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "max_position_embeddings": 1024}
    model = AutoModelForCausalLM.from_config(LlamaConfig(**{**SIZES, **small, "vocab_size": VOCABULARY}))
    return Policy(model.float(), byte_tokenizer(), "wide")


def free(monkeypatch, number):
    monkeypatch.setattr(memory, "free_bytes", lambda device: number)


ROLLOUT = "lower num_prompts, group_size or max_new_tokens, or set micro_batch_tokens"


@pytest.mark.parametrize(
    ("algorithm", "settings", "tokens", "remedy"),
    [
        (GRPO, TrainSettings(**QWEN_LIKE, minibatches=4, updates_per_rollout=4), 64 * 512, ROLLOUT),
        (GRPO, TrainSettings(**QWEN_LIKE, micro_batch_tokens=4096), 4096, ROLLOUT),
        # two responses a pair, nine letters and the end
        (DPO, PairSettings(batch_size=50), 100 * 10, "lower batch_size, or leave out the longest pairs"),
    ],
)
def test_logits_are_refused_for_one_byte(wide, algorithm, settings, tokens, remedy, monkeypatch):
    pairs = PAIRS if algorithm is DPO else None
    monkeypatch.setattr(type(wide.model), "forward", None)  # nothing is computed
    free(monkeypatch, tokens * LOGITS - 1)
    with pytest.raises(ValueError, match=r"^settings: ") as refused:
        train(wide, Chain(), algorithm, settings, pairs=pairs)
    sentence = (
        f"settings: the logits of {tokens:,} tokens over a vocabulary of 152,064, with their gradients, would take "
    )
    assert str(refused.value).startswith(sentence) and str(refused.value).endswith(f"memory are free; {remedy}")
    free(monkeypatch, tokens * LOGITS)
    with suppress(TypeError):  # DPO goes on to compute what its reference says, with no forward
        train(wide, Chain(), algorithm, settings, pairs=pairs)


def test_a_model_that_cannot_learn_here_is_refused_before_it_is_read(wide, monkeypatch, tmp_path):
    """20 bytes a weight: itself, its gradient, Adam's two moments, and in the policy that the run began with."""
    wide.save(tmp_path)
    assert count_weights(tmp_path) == WEIGHTS
    assert count_weights("chain") == count_weights(tmp_path / "none") == 0
    monkeypatch.setattr(memory, "GIGABYTE", 1)
    monkeypatch.setattr("rlviz.training.start.load_policy", lambda *args, **more: wide)
    free(monkeypatch, WEIGHTS * 20)
    policy_to_train(tmp_path)
    free(monkeypatch, WEIGHTS * 20 - 1)
    with pytest.raises(
        ValueError, match=r"policy: a run of the 2,434,008 weights in .* `rlviz export` writes it for TRL and"
    ):
        train(str(tmp_path), Chain(), GRPO, TrainSettings())
