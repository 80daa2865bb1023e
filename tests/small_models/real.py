"""Tiny models of the architectures that people load, with random weights, and a byte-level tokenizer such as theirs."""

import copy

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from small_models.policies import Policy

BOS, END, TURN, PAD = range(4)
SPECIAL = ["<bos>", "<end>", "<turn>", "<pad>"]
VOCABULARY = len(SPECIAL) + 256
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,  # far from uniform, so that a wrong position or prompt shows
    "bos_token_id": BOS,
    "eos_token_id": END,
    "pad_token_id": PAD,
}
GPT2 = GPT2Config(
    vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.2,
    bos_token_id=BOS, eos_token_id=END, pad_token_id=PAD,
)  # fmt: skip
ARCHITECTURES = {
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES),
    "llama": LlamaConfig(**SIZES),
    "gpt2": GPT2,
    "gemma3": Gemma3TextConfig(**SIZES, sliding_window=4, layer_types=["sliding_attention", "full_attention"]),
    "mistral": MistralConfig(**SIZES, sliding_window=4),
}


def wrapped(tokenizer, adds_bos):
    """Return a byte-level tokenizer as transformers': its post-processor puts `<bos>` before a text, or nobody does."""
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", BOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<bos>",
        eos_token="<end>",
        pad_token="<pad>",
        additional_special_tokens=["<turn>"],
        clean_up_tokenization_spaces=False,
    )


def byte_tokenizer(*, adds_bos=True):
    """Return a tokenizer for which a byte is a token, and which puts `<bos>` before a text as Llama 3's and Gemma's do."""
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    return wrapped(Tokenizer(models.BPE(vocabulary, [])), adds_bos)


def real_policy(name="llama", *, adds_bos=True, ends=(END,)):
    """Return a policy whose generation config lists these ends of sequence; the tokenizer's own is `END`."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(copy.deepcopy(ARCHITECTURES[name])).float().eval()
    model.generation_config.eos_token_id = list(ends)
    return Policy(model, byte_tokenizer(adds_bos=adds_bos), name)


CHAT = (
    "{% for m in messages %}<turn>{{ m['role'] }}: {{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<turn>model: {% endif %}"
)


def bpe_tokenizer(*, adds_bos=False, chat=True):
    """Return a byte-level BPE that has learned merges from a few sentences, with a chat template as Qwen's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY + 60, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    sentences = [f"Janet has {n} eggs and buys {2 * n} more. How many now?" for n in range(50)]
    tokenizer.train_from_iterator(sentences, trainer)
    fast = wrapped(tokenizer, adds_bos)
    fast.chat_template = CHAT if chat else None
    return fast


def chat_policy(name="qwen3", **tokenizer):
    """Return a policy of this architecture with `bpe_tokenizer`; `<turn>` ends a response too."""
    tokenizer_, config = bpe_tokenizer(**tokenizer), copy.deepcopy(ARCHITECTURES[name])
    config.vocab_size = len(tokenizer_)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    model.generation_config.eos_token_id = [END, TURN]
    return Policy(model, tokenizer_, name)
