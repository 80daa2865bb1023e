"""A batch whose logits cannot fit is refused before anything is computed, and one that fits is not."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from rlviz.algorithms import DPO, DR_GRPO, GRPO
from rlviz.training import PairSettings, TrainSettings, train
from rlviz.training.cost import every_second_is_right, peak_bytes
from rlviz.training.memory import check_pairs_fit, check_rollout_fits
from small_models import memory
from small_models.pairs import Pair, encode_pairs
from small_models.policies import Policy
from small_models.sampling import sample
from small_models.tasks import Chain
from tests.small_models.real import SIZES, byte_tokenizer

VOCABULARY = 152_064  # Qwen 2.5's
QWEN_LIKE = TrainSettings(num_prompts=32, group_size=8, max_new_tokens=512)
UPDATE = 256 * 512 * VOCABULARY * 4 * 2  # its logits and their gradient: 159,450,660,864 bytes


@pytest.fixture(scope="module")
def wide():
    """A policy that is small but for its vocabulary."""
    small = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "max_position_embeddings": 1024}
    model = AutoModelForCausalLM.from_config(LlamaConfig(**{**SIZES, **small, "vocab_size": VOCABULARY}))
    return Policy(model.float(), byte_tokenizer(), "wide")


def free(monkeypatch, number):
    monkeypatch.setattr(memory, "free_bytes", lambda device: number)


def test_a_batch_that_cannot_fit_is_refused_before_anything_is_computed(wide, monkeypatch):
    free(monkeypatch, 12 * 10**9)
    monkeypatch.setattr(type(wide.model), "forward", None)
    with pytest.raises(ValueError, match="settings: the logits") as refused:
        train(wide, Chain(), DR_GRPO, QWEN_LIKE)
    assert str(refused.value) == (
        "settings: the logits of 256 responses of 512 tokens over a vocabulary of 152,064, with their gradients, would take "
        "159.5 GB at least, and 12.0 GB of this cpu's memory are free; lower num_prompts, group_size or max_new_tokens, or "
        "set micro_batch_tokens, or raise minibatches (and updates_per_rollout, a multiple of it)"
    )


@pytest.mark.parametrize(
    ("settings", "reference", "needed"),
    [
        (QWEN_LIKE, False, UPDATE),
        (replace(QWEN_LIKE, minibatches=4, updates_per_rollout=4), False, UPDATE // 4),
        (replace(QWEN_LIKE, minibatches=3, updates_per_rollout=3), False, UPDATE // 256 * 86),  # 86, 85 and 85 rows
        (
            replace(QWEN_LIKE, minibatches=4, updates_per_rollout=4),
            True,
            UPDATE,
        ),  # the reference reads the rollout whole
        (replace(QWEN_LIKE, group_size=2), False, UPDATE // 4),
        (replace(QWEN_LIKE, micro_batch_tokens=4096, max_new_tokens=2048), False, UPDATE // 256 * 4),
        (replace(QWEN_LIKE, micro_batch_tokens=4096), True, UPDATE // 256 * QWEN_LIKE.group_size),
        (replace(QWEN_LIKE, max_new_tokens=None), False, UPDATE // 512 * Chain.max_new_tokens),
    ],
)
def test_it_is_refused_for_one_byte(wide, settings, reference, needed, monkeypatch):
    free(monkeypatch, needed)
    check_rollout_fits(wide, Chain(), settings, reference=reference)
    free(monkeypatch, needed - 1)
    with pytest.raises(ValueError, match=r"are free; lower num_prompts, group_size or max_new_tokens") as refused:
        check_rollout_fits(wide, Chain(), settings, reference=reference)
    assert ("minibatches" in str(refused.value)) is not reference  # which would not help


def test_pairs_are_counted_by_the_longest(wide, monkeypatch):
    pairs = [Pair("1=", "a" * 9, "a"), *[Pair("1=", "b", "c")] * 49]
    settings = PairSettings(batch_size=50)
    needed = 100 * 10 * VOCABULARY * 4 * 2  # nine letters and the end
    free(monkeypatch, needed)
    check_pairs_fit(wide, encode_pairs(wide, pairs), settings.batch_size)
    free(monkeypatch, needed - 1)
    with pytest.raises(
        ValueError, match=r"of 100 responses of 10 tokens .* lower batch_size, or leave out the longest"
    ):
        train(wide, Chain(), DPO, settings, pairs=pairs)


def test_what_nobody_knows_refuses_nothing(wide, monkeypatch):
    free(monkeypatch, None)
    check_rollout_fits(wide, Chain(), QWEN_LIKE, reference=True)


def test_sampling_more_at_once_than_fits_is_refused(wide, monkeypatch):
    with pytest.raises(ValueError, match=r"sampling 1,000,000,000 responses at once would take .* lower group_size"):
        sample(wide, ["1="], group_size=10**9, max_new_tokens=4)


def test_the_free_memory_of_this_machine_is_known():
    free = memory.free_bytes(torch.device("cpu"))
    assert free is not None
    assert 10**8 < free < 10**14
    assert memory.free_bytes(torch.device("meta")) is None


def test_what_is_counted_is_really_taken(wide):
    """The count is a lower bound, so nothing that fits is refused; the peak is at most four times as high."""
    settings = TrainSettings(num_prompts=2, group_size=2, max_new_tokens=6, evaluate_every=0)
    run = train(wide, every_second_is_right(Chain()), GRPO, settings)
    rollout = run.collect()
    counted = rollout.samples.tokens.numel() * VOCABULARY * 4 * 2
    run.update(rollout)
    weights = list(wide.model.parameters())
    held = [*weights, *(p.grad for p in weights)]
    update = peak_bytes(lambda: run.update(rollout), held, wide.device) - sum(t.nbytes for t in held)
    reference = peak_bytes(lambda: run.reference.logp_and_kl(rollout.samples), [], wide.device)
    assert counted <= update <= 4 * counted
    assert counted <= reference <= 4 * counted
