"""Greedy decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationConfig, StoppingCriteria, TextStreamer

from tfrnet.core.errors import InputError
from tfrnet.core.team import SOLO, Team
from tfrnet.data.batches import batches
from tfrnet.data.examples import Encoded, tokenise
from tfrnet.models.forward import input_device, is_stateful
from tfrnet.models.load import LoadedModel
from tfrnet.models.padding import padded
from tfrnet.models.parts import in_parts

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@torch.no_grad()
def continue_texts(
    loaded: LoadedModel,
    prompts: Sequence[str],
    max_new_tokens: int,
    batch_size: int = 1,
    max_prompt: int | None = None,
    one_line: bool = False,
    advance: Callable[[int], None] | None = None,
    team: Team = SOLO,
) -> list[str]:
    """Return the model's continuation of each prompt, by greedy decoding until EOS.

    `one_line` stops before the first newline. Prompts of more than `max_prompt` tokens are cut at
    the beginning. Prompts of similar length are batched, padded on the left; `batch_size` affects
    the results only by rounding. `advance` is called with the number of prompts done.
    """
    tokenizer = loaded.tokenizer
    rows = [_shortened(tokenise(prompt, tokenizer), tokenizer, max_prompt) for prompt in prompts]
    added = continue_rows(loaded, rows, max_new_tokens, batch_size, one_line, advance, team)
    texts = [tokenizer.decode(row, skip_special_tokens=True) for row in added]
    return [text.partition("\n")[0] if one_line else text for text in texts]


@torch.no_grad()
def continue_rows(
    loaded: LoadedModel,
    rows: Sequence[Sequence[int]],
    max_new_tokens: int,
    batch_size: int = 1,
    one_line: bool = False,
    advance: Callable[[int], None] | None = None,
    team: Team = SOLO,
    max_tokens: int | None = None,
) -> list[list[int]]:
    """Return the tokens that follow each row of tokens; the rest is as for `continue_texts`.

    `max_tokens` is the most that the rows of a batch may have together, with padding; of what is
    added only keys and values are kept, which take little.
    """
    # The first token that is added, whichever it is, is the answer's.
    begun = [Encoded((*row, 0), len(row)) for row in rows]
    parts = batches(begun, batch_size, max_answer_tokens=batch_size, max_tokens=max_tokens)
    found: list[list[int]] = [[] for _ in rows]

    def work(chosen: list[int]) -> list[list[int]]:
        def of_part(part: list[int]) -> list[list[int]]:
            return _generate(loaded, [rows[i] for i in part], max_new_tokens, one_line)

        added = in_parts(chosen, of_part, whole=team.in_lockstep)
        return [row for part in added for row in part]

    # In lockstep every process takes part in every pass, so each does them all.
    sharing = SOLO if team.in_lockstep else team
    for chosen, answers in zip(parts, sharing.map_objects(parts, work), strict=True):
        for i, added in zip(chosen, answers, strict=True):
            found[i] = added
        if advance:
            advance(len(chosen))
    return found


@torch.no_grad()
def stream_text(
    loaded: LoadedModel, prompt: str, max_new_tokens: int, heard: Callable[[str], None]
) -> str:
    """Return the continuation of a prompt, as `continue_texts` does; `heard` gets it as it comes.

    A piece is passed on once later tokens cannot change it.
    """
    row = tokenise(prompt, loaded.tokenizer)
    (added,) = _generate(loaded, [row], max_new_tokens, False, _Heard(loaded.tokenizer, heard))
    text: str = loaded.tokenizer.decode(added, skip_special_tokens=True)
    return text


class _Heard(TextStreamer):  # type: ignore[misc]
    """Hands on pieces of text."""

    def __init__(self, tokenizer: Any, heard: Callable[[str], None]) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self._heard = heard

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        self._heard(text)


def _shortened(ids: list[int], tokenizer: Any, most: int | None) -> list[int]:
    """Cut a prompt's beginning, but not BOS."""
    if most is None or len(ids) <= most:
        return ids
    if most < 1:
        raise InputError("no room is left for the prompt; allow fewer new tokens or more in all")
    kept = ids[:1] if most > 1 and ids[0] == tokenizer.bos_token_id else []
    return kept + ids[len(ids) - most + len(kept) :]


def _generate(
    loaded: LoadedModel,
    rows: Sequence[Sequence[int]],
    max_new_tokens: int,
    one_line: bool,
    streamer: TextStreamer | None = None,
) -> list[list[int]]:
    model, tokenizer = loaded
    if is_stateful(model) and len(set(map(len, rows))) > 1:
        # Its state may take padding for text; rows of one length need none.
        return [_generate(loaded, [row], max_new_tokens, one_line)[0] for row in rows]
    ends = end_tokens(loaded)
    # Padding is masked, so any token will do if there is no padding token.
    pad = next(token for token in (tokenizer.pad_token_id, *ends, 0) if token is not None)
    ids, mask = padded(rows, "left", pad)
    width = ids.shape[1]
    device = input_device(model)
    greedy = GenerationConfig(
        max_new_tokens=max_new_tokens, do_sample=False, eos_token_id=ends or None, pad_token_id=pad
    )
    with _settings(model, greedy):
        output = model.generate(
            ids.to(device),
            attention_mask=mask.to(device),
            stopping_criteria=[_LineEnds(tokenizer)] if one_line else None,
            streamer=streamer,
        )
    return [_before(row, ends) for row in output[:, width:].tolist()]


@contextmanager
def _settings(model: PreTrainedModel, config: GenerationConfig) -> Iterator[None]:
    """Ignore a checkpoint's generation settings: they may ask for sampling, beams or penalties."""
    own = model.generation_config
    model.generation_config = config
    try:
        yield
    finally:
        model.generation_config = own


def end_tokens(loaded: LoadedModel) -> list[int]:
    """Return the tokens that end a text: the tokenizer's EOS and those of the checkpoint."""
    found = [loaded.tokenizer.eos_token_id]
    more = loaded.model.generation_config.eos_token_id
    found += more if isinstance(more, list) else [more]
    return list(dict.fromkeys(token for token in found if token is not None))


def _before(tokens: list[int], ends: Sequence[int]) -> list[int]:
    """Return the tokens before the first that ends the text."""
    stop = next((i for i, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[:stop]


class _LineEnds(StoppingCriteria):  # type: ignore[misc]
    """Stops each text at its first newline."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        # The last token is enough: a newline is one byte, and what has stopped stays so.
        texts = self.tokenizer.batch_decode(input_ids[:, -1:])
        return torch.tensor(["\n" in text for text in texts], device=input_ids.device)
