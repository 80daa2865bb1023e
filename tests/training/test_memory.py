"""A batch whose logits cannot fit is refused before anything is computed, and one that fits is not."""

import re
from dataclasses import replace
from itertools import cycle

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from rlviz.algorithms import DPO, DR_GRPO, GRPO
from rlviz.training import PairSettings, TrainSettings, memory as limits, rollout as rollouts, train
from rlviz.training.memory import check_pairs_fit, check_rollout_fits
from rlviz.training.rollout import logp_under
from small_models import memory
from small_models.pairs import Pair, encode_pairs
from small_models.policies import Policy, weights_in
from small_models.sampling import response_bytes, response_logits
from small_models.tasks import Chain, Grade
from tests.small_models.real import SIZES, byte_tokenizer
from tests.training.peak import peak_bytes

VOCABULARY = 152_064  # Qwen 2.5's
QWEN_LIKE = TrainSettings(num_prompts=32, group_size=8, max_new_tokens=512)
UPDATE = 256 * 512 * VOCABULARY * 4 * 2  # its logits and their gradient: 159,450,660,864 bytes
LEARNING = 12 * (16 * VOCABULARY + 984)  # gradients and Adam's moments: of embeddings and head, and of one layer


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
        "settings: the logits of 256 responses of 512 tokens over a vocabulary of 152,064, with their gradients, and 2,434,008 "
        "weights' gradients and Adam's moments would take 159.5 GB at least, and 12.0 GB of this cpu's memory are free; set "
        "micro_batch_tokens (with 4096 they fit), raise minibatches (and updates_per_rollout, a multiple of it), or lower "
        "num_prompts, group_size or max_new_tokens"
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
        # so does a trainer that did not sample
        (replace(QWEN_LIKE, minibatches=4, updates_per_rollout=4, sampler_lag=1), False, UPDATE),
        (replace(QWEN_LIKE, group_size=2), False, UPDATE // 4),
        (
            replace(QWEN_LIKE, micro_batch_tokens=4096, max_new_tokens=1024, details_every=0),
            False,
            UPDATE // 256 * 8,  # four of 1024 tokens are in a micro-batch
        ),
        (
            replace(QWEN_LIKE, micro_batch_tokens=4096),
            False,
            UPDATE // 256 * QWEN_LIKE.group_size,
        ),  # details read a group
        (replace(QWEN_LIKE, micro_batch_tokens=4096), True, UPDATE // 256 * QWEN_LIKE.group_size),
        (replace(QWEN_LIKE, max_new_tokens=None), False, UPDATE // 512 * Chain.max_new_tokens),
    ],
)
def test_it_is_refused_for_one_byte(wide, settings, reference, needed, monkeypatch):
    needed += LEARNING
    monkeypatch.setattr(limits, "response_bytes", lambda *_: 0)
    free(monkeypatch, needed)
    check_rollout_fits(wide, Chain(), settings, reference=reference)
    free(monkeypatch, needed - 1)
    with pytest.raises(ValueError, match=r"are free; .*lower num_prompts, group_size or max_new_tokens") as refused:
        check_rollout_fits(wide, Chain(), settings, reference=reference)
    helps = (
        not reference and not settings.micro_batch_tokens and settings.policy_samples
    )  # what reads it whole is not split
    assert ("raise minibatches" in str(refused.value)) is helps
    if named := re.search(r"with (\d+) they fit", str(refused.value)):
        advised = replace(settings, micro_batch_tokens=int(named[1]))
        check_rollout_fits(wide, Chain(), advised, reference=reference)
    else:
        assert settings.micro_batch_tokens and "(micro_batch_tokens alone would not do), or take the" in str(
            refused.value
        )


def test_micro_batches_hold_for_all_that_reads_a_rollout(wide, monkeypatch):
    groups = []

    def watched(policy, prompt_ids, prompt_mask, tokens, **more):
        groups.append(len(tokens))
        return response_logits(policy, prompt_ids, prompt_mask, tokens, **more)

    monkeypatch.setattr(rollouts, "response_logits", watched)
    settings = TrainSettings(num_prompts=3, group_size=2, max_new_tokens=2, details_every=1, micro_batch_tokens=1)
    record = next(train(wide, Chain(), GRPO, settings))
    assert record.groups[2].responses[0].tokens
    assert groups == [1] * 6  # the reference, and the records of three groups


def test_where_no_setting_helps_the_exit_is_named(wide, monkeypatch):
    free(monkeypatch, 3 * 10**9)
    settings = replace(QWEN_LIKE, max_new_tokens=900)
    with pytest.raises(
        ValueError, match=r"\(micro_batch_tokens alone would not do\), or take .* `rlviz export` writes it"
    ):
        train(wide, Chain(), GRPO, settings)
    monkeypatch.setattr(limits, "response_bytes", lambda *_: 10**8)
    with pytest.raises(
        ValueError, match=r"sampling 256 responses of 512 tokens at once would take 25.6 GB .*`rlviz export`"
    ):
        train(wide, Chain(), GRPO, QWEN_LIKE)


def test_a_model_that_cannot_learn_here_is_refused_before_it_is_read(wide, monkeypatch, tmp_path):
    wide.save(tmp_path)
    assert weights_in(tmp_path) == LEARNING // 12
    assert weights_in("chain") == weights_in(tmp_path / "none") == 0
    monkeypatch.setattr(memory, "GIGABYTE", 1)
    free(monkeypatch, LEARNING // 12 * 20 - 1)
    monkeypatch.setattr("rlviz.training.start.load_policy", None)
    with pytest.raises(
        ValueError, match=r"policy: a run of the 2,434,008 weights in .* `rlviz export` writes it for TRL and"
    ):
        train(str(tmp_path), Chain(), GRPO, QWEN_LIKE)


def test_keys_and_values_are_counted(wide):
    """Per token a key and a value of 4 bytes, in each of 2 heads of 8 numbers, in 1 layer."""
    more = response_bytes(wide, 10, 20) - response_bytes(wide, 0, 20)
    assert more == 10 * 2 * 4 * 2 * 8


def test_pairs_are_counted_by_the_longest(wide, monkeypatch):
    pairs = [Pair("1=", "a" * 9, "a"), *[Pair("1=", "b", "c")] * 49]
    settings = PairSettings(batch_size=50)
    needed = 100 * 10 * VOCABULARY * 4 * 2  # nine letters and the end
    free(monkeypatch, needed)
    check_pairs_fit(wide, encode_pairs(wide, pairs), settings.batch_size)
    free(monkeypatch, needed - 1)
    with pytest.raises(ValueError, match=r"of 100 responses of 10 tokens .* lower batch_size, leave out the longest"):
        train(wide, Chain(), DPO, settings, pairs=pairs)


def test_what_nobody_knows_refuses_nothing(wide, monkeypatch):
    free(monkeypatch, None)
    check_rollout_fits(wide, Chain(), QWEN_LIKE, reference=True)


def test_the_free_memory_of_this_machine_is_known():
    free = memory.free_bytes(torch.device("cpu"))
    assert free is not None
    assert 10**8 < free < 10**14
    assert memory.free_bytes(torch.device("meta")) is None


def test_what_is_counted_is_really_taken(wide):
    """The count is a lower bound, so nothing that fits is refused; the peak is at most four times as high."""
    settings = TrainSettings(num_prompts=2, group_size=2, max_new_tokens=6, evaluate_every=0)
    task, turn = Chain(), cycle((True, False))
    task.grade = lambda prompt, response: Grade(format=True, correct=next(turn))  # no group drops out of the update
    run = train(wide, task, GRPO, settings)
    rollout = run.collect()
    counted = rollout.samples.tokens.numel() * VOCABULARY * 4 * 2
    run.update(rollout)
    update = peak_bytes(lambda: run.update(rollout))
    with torch.no_grad():
        reference = peak_bytes(lambda: logp_under(run.state.reference, rollout.samples, settings))
    assert counted <= update <= 4 * counted
    assert counted <= reference <= 4 * counted
