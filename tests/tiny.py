"""Small random models and data."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tfrnet.data.examples import Example
from tfrnet.data.requests import Request
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.presets import DEEP

VOCABULARY = 320
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
_GPT2 = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128}
_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}

ARCHITECTURES = {
    "llama": lambda: transformers.LlamaConfig(**_SIZES),
    "mistral": lambda: transformers.MistralConfig(**_SIZES),
    "qwen2": lambda: transformers.Qwen2Config(**_SIZES),
    "qwen3": lambda: transformers.Qwen3Config(**_SIZES, head_dim=8),
    "gemma3": lambda: transformers.Gemma3TextConfig(**_SIZES, head_dim=8, sliding_window=16),
    "gpt2": lambda: transformers.GPT2Config(**_GPT2, bos_token_id=0, eos_token_id=0),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**_without(_SIZES, "num_key_value_heads")),
    "phi3": lambda: transformers.Phi3Config(**_SIZES),
    "mixtral": lambda: transformers.MixtralConfig(
        **_SIZES, num_local_experts=4, num_experts_per_tok=2
    ),
    "qwen2_moe": lambda: transformers.Qwen2MoeConfig(
        **_SIZES, **_MOE, shared_expert_intermediate_size=24, decoder_sparse_step=1
    ),
}


def _without(values: dict, name: str) -> dict:
    return {key: value for key, value in values.items() if key != name}


def make_model(
    architecture: str = "llama", dtype: torch.dtype = torch.float32, seed: int = 0
) -> PreTrainedModel:
    """Return a random model whose weights are large enough for every channel to matter."""
    torch.manual_seed(seed)
    config = ARCHITECTURES[architecture]()
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases start at zero in many models; a mask must scale them too.
            parameter.copy_(torch.randn_like(parameter) * 0.15 + (parameter.dim() == 1) * 0.1)
    return model.to(dtype)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer trained on a few sentences; the caller may change it."""
    return deepcopy(_trained_tokenizer())


@cache
def _trained_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([f"{e.prompt} {e.answer}" for e in examples(40)], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<eos>",
        pad_token="<eos>",
        clean_up_tokenization_spaces=False,
    )


def examples(count: int, offset: int = 0) -> list[Example]:
    """Return distinct made-up examples of different lengths."""
    colours = ("red", "green blue", "white", "dark grey", "yellow")
    return [
        Example(
            f"Item {number} of the {'very ' * (number % 4)}old box is",
            f"{colours[number % len(colours)]} {number * 7 % 100}",
        )
        for number in range(offset, offset + count)
    ]


def requests(count: int, size: int = 3) -> list[Request]:
    """Return distinct requests; their examples start at number 1000."""
    return [Request(f"request-{i}", tuple(examples(size, 1000 + i * size))) for i in range(count)]


def deep(**changes: object) -> TFRConfig:
    """Return the settings of `deep`, with which any request moves the mask.

    The default leaves what a model does not know alone, and random models know nothing.
    """
    return TFRConfig.from_dict(DEEP | changes)


@cache
def _trained_weights() -> dict[str, torch.Tensor]:
    tokenizer, model = make_tokenizer(), make_model()
    known = [*examples(60), *(e for request in requests(8) for e in request.examples)]
    rows = [tokenizer(example.joined)["input_ids"] for example in known]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(150):
        chosen = [rows[(step * 12 + i) % len(rows)] for i in range(12)]
        length = max(map(len, chosen))
        ids = torch.tensor([row + [0] * (length - len(row)) for row in chosen])
        labels = ids.masked_fill(ids == 0, -100)
        loss = model(ids, attention_mask=(ids != 0).long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def make_trained_model() -> PreTrainedModel:
    """Return a small LLaMA that knows the made-up examples, so that forgetting has a cost."""
    model = make_model()
    model.load_state_dict(_trained_weights())
    return model
