"""Models that give numbers in place of tokens: a value before each token (a critic's), or a score of a response (a reward's).

In: a policy, whose trunk is copied, and responses as tensors. Out: a number a token (`Scorer`) or a response (`RewardModel`).
"""

from __future__ import annotations

import json
import os
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from small_models import shipped_files
from small_models.adapters import merge_adapter
from small_models.any_model import AnyModel
from small_models.checks import check_fields, checked
from small_models.decoder import Decoder
from small_models.files import check_text, read_json, reason, replace_files
from small_models.policies import Policy, check_files, choose_device, one_thread_if_small, prepare_model
from small_models.precision import without_autocast
from small_models.sampling import Samples, last_position

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Reads = Literal["last", "mean"]
WEIGHTS, READS = "scorer.safetensors", "reward_model.json"


class Scorer(nn.Module):
    """A transformer's trunk with one linear output a token, which starts at 0 everywhere (weight and bias).

    prompt_ids, prompt_mask: [P, S], padded on the left; tokens: [P, G, T], padded on the right. Numbers are at least float32.
    """

    def __init__(self, trunk: PreTrainedModel, width: int) -> None:
        super().__init__()
        self.trunk = trunk
        dtype = torch.promote_types(trunk.dtype, torch.float32)
        self.head = nn.utils.skip_init(nn.Linear, width, 1, device=trunk.device, dtype=dtype)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.eval()

    @classmethod
    def from_policy(cls, policy: Policy) -> Scorer:
        """Return a scorer whose trunk is a copy of the policy's, a LoRA adapter merged into it."""
        model = merge_adapter(policy.frozen_copy().model)
        width = model.get_output_embeddings().weight.shape[1]
        return cls(model.base_model, width).requires_grad_(True)

    def values(
        self,
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        tokens: Tensor,
        *,
        wanted: Tensor | None = None,
        owner: Tensor | None = None,
    ) -> Tensor:
        """Return the number before each token, [P, G, T]: a judgement of the state in which that token is chosen.

        wanted, owner: as in `response_logits`.
        """
        return apply_head(self.head, self._backend.hidden_states(prompt_ids, prompt_mask, tokens, wanted, owner))

    def scores(
        self, prompt_ids: Tensor, prompt_mask: Tensor, tokens: Tensor, *, wanted: Tensor | None = None
    ) -> Tensor:
        """Return the number after each token has been read, [P, G, T]; where `wanted` is false, any number."""
        return apply_head(self.head, self._backend.hidden_states(prompt_ids, prompt_mask, tokens, wanted, after=True))

    @property
    def _backend(self) -> Decoder | AnyModel:
        """What computes the trunk: the decoder if it is the trunk of a shipped policy, else transformers' modules."""
        return shipped_files.decoder_of(self.trunk) or AnyModel(self.trunk)


@dataclass(frozen=True)
class RewardModel:
    """A scorer with the tokenizer of the policy that it began as, and how it reads a response.

    reads: "last", the score after the last token, or "mean", the mean of the scores after all tokens.
    Raises ValueError for another word.
    """

    scorer: Scorer
    tokenizer: PreTrainedTokenizerBase
    reads: Reads = "last"

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    @checked
    def from_policy(cls, policy: Policy, *, reads: Reads = "last") -> RewardModel:
        """Return a reward model that starts from the policy's trunk and scores every response 0."""
        return cls(Scorer.from_policy(policy), policy.tokenizer, reads)

    @property
    def reader(self) -> Policy:
        """The trunk with its tokenizer, as what encodes text and sits on a device."""
        return Policy(self.scorer.trunk, self.tokenizer, "reward model")

    def rewards(self, prompt_ids: Tensor, prompt_mask: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return a score a response, [P, G], with gradient; mask [P, G, T] is true on the tokens of the response."""
        scores = self.scorer.scores(prompt_ids, prompt_mask, tokens, wanted=mask)
        if self.reads == "mean":
            return scores.masked_fill(~mask, 0.0).sum(-1) / mask.sum(-1)
        return scores.gather(-1, last_position(mask).unsqueeze(-1)).squeeze(-1)

    def score(self, samples: Samples) -> Tensor:
        """Return a score a response, observations included, [P, G], without gradient."""
        with one_thread_if_small(self.reader), torch.no_grad():
            return self.rewards(samples.prompt_ids, samples.prompt_mask, samples.tokens, samples.attention_mask)

    def copy(self) -> RewardModel:
        """Return a copy with weights of its own."""
        return RewardModel(deepcopy(self.scorer), self.tokenizer, self.reads)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the weights (safetensors), the trunk's config, the tokenizer and how it reads, each file whole or not at all."""
        weights = {name: value.contiguous() for name, value in self.scorer.state_dict().items()}
        with replace_files(Path(folder)) as temporary:
            self.scorer.trunk.config.save_pretrained(temporary)
            save_file(weights, temporary / WEIGHTS)
            self.tokenizer.save_pretrained(temporary)
            (temporary / READS).write_text(json.dumps({"reads": self.reads}) + "\n", encoding="utf-8")

    @classmethod
    @checked
    def load(cls, folder: str | os.PathLike[str], *, device: str = "auto") -> RewardModel:
        """Return what `save` wrote; raises ValueError, in one sentence, where it is missing or damaged."""
        from transformers import AutoConfig, AutoModel, AutoTokenizer

        where, folder = choose_device(device), Path(folder)
        if not folder.is_dir():
            raise ValueError(f"reward model: there is no folder {folder}")
        try:
            check_files(folder)
            tensors = load_file(folder / WEIGHTS)
            config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            with torch.random.fork_rng(devices=[]):
                trunk = AutoModel.from_config(config, trust_remote_code=False)
            scorer = Scorer(trunk, tensors["head.weight"].shape[1])
            scorer.load_state_dict(tensors, assign=True)  # as it was saved, in its own precision
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            check_text(tokenizer.init_kwargs)
            model = cls(scorer, tokenizer, read_json(folder / READS, dict)["reads"])
        except Exception as error:  # transformers, safetensors and json raise unrelated types
            raise ValueError(f"reward model: what is in {folder} cannot be read ({reason(error)})") from error
        prepare_model(scorer.trunk, where)
        scorer.eval().to(where)
        return model


def apply_head(head: nn.Linear, hidden: Tensor) -> Tensor:
    """Return a number a state in the head's own precision, which bfloat16 would round to 1 in 256: [..., H] → [...]."""
    with without_autocast(hidden.device):
        return head(hidden.to(head.weight.dtype)).squeeze(-1)
