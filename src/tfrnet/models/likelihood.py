"""Token scores of answers that share a prompt; their common prefix is computed once.

A group is the set of encoded answers to one prompt. A first pass computes its longest common
prefix; if some answers are longer, a second pass continues from the first one's keys and values.
Answers of a single token need no second pass. Logits are computed for answer positions only.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from tfrnet.core.errors import OVERFLOW_HINT, CheckFailedError
from tfrnet.core.team import SOLO, Team
from tfrnet.data.examples import Encoded
from tfrnet.models.forward import head_sees_only, input_device, is_stateful
from tfrnet.models.padding import PaddingSide, padded
from tfrnet.models.parts import in_parts
from tfrnet.models.passes import Passes
from tfrnet.models.prompts import Prompts, rows_answer
from tfrnet.models.token_scores import TokenScores, token_statistics

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# The most positions whose logits are computed in one pass: with a large vocabulary the logits, not
# the layers, would fill the memory.
_MAX_LOGITS = 2048
# A loss is computed from a shared prompt if that saves this share of the tokens of all its answers,
# and so many tokens in all: continuing takes passes of its own, each worth some dozens of tokens.
_SHARE_SAVED = 0.5
_TOKENS_SAVED = 128

Advance = Callable[[int], None]


_Statistics = tuple[float, bool, float, float]
_Unit = list[tuple[tuple[int, int], Encoded]]
Part = TypeVar("Part")


@dataclass(frozen=True)
class _Read:
    """A logit to read: the input position that predicts token number `token` of an answer."""

    row: int
    column: int
    target: int
    answer: tuple[int, int]
    token: int


@dataclass(frozen=True)
class _Rest:
    """An answer that continues after token `start`, where prefix number `prefix` ends."""

    prefix: int
    start: int
    number: tuple[int, int]
    answer: Encoded


@dataclass(frozen=True)
class _Limits:
    """The most sequences in a pass, and the most tokens, with padding and with those cached."""

    sequences: int
    tokens: int | None = None

    def allow(self, sequences: int, width: int) -> bool:
        return sequences <= self.sequences and sequences * width <= (self.tokens or math.inf)


@torch.no_grad()
def losses_by_prompt(
    model: PreTrainedModel,
    examples: Sequence[Encoded],
    passes: Passes,
    losses: Callable[[list[Encoded]], torch.Tensor],
    team: Team = SOLO,
) -> torch.Tensor:
    """Return L(x) of many examples, in their order, on the CPU; `losses` is the ordinary way.

    A prompt with several answers is computed once, if that saves enough. This changes results only
    by rounding.
    """
    groups = []
    # Compiled layers do without keys and values. With sharded weights every process has to take
    # part in every pass, and how many passes a group takes depends on its answers.
    if not (passes.compiled or team.in_lockstep or is_stateful(model)):
        groups = _sharing(examples)
    shared = {i for group in groups for i in group}
    others = [i for i in range(len(examples)) if i not in shared]
    found = torch.empty(len(examples))
    if others:
        found[others] = losses([examples[i] for i in others])
    # Keys and values are kept for all layers, so the limit is that of passes with a gradient.
    limits = _Limits(passes.examples, passes.tokens)
    answers = [[examples[i] for i in group] for group in groups]
    for group, scores in zip(groups, _scored(model, answers, limits, team=team), strict=True):
        found[group] = torch.tensor([score.average_loss for score in scores])
    return found


def _sharing(examples: Sequence[Encoded]) -> list[list[int]]:
    """Return the examples with the same prompt, where computing it once saves enough."""
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for i, example in enumerate(examples):
        by_prompt.setdefault(example.ids[: example.answer_start], []).append(i)
    groups = []
    saved_in_all = 0
    for group in by_prompt.values():
        answers = [examples[i] for i in group]
        saved = (len(answers) - 1) * _common_length(answers)
        if saved >= _SHARE_SAVED * sum(len(answer.ids) - 1 for answer in answers):
            groups.append(group)
            saved_in_all += saved
    return groups if saved_in_all >= _TOKENS_SAVED else []


@torch.no_grad()
def score_answers(
    model: PreTrainedModel,
    groups: Sequence[Sequence[Encoded]],
    batch_size: int,
    moments: bool = False,
    advance: Advance | None = None,
    team: Team = SOLO,
) -> list[list[TokenScores]]:
    """Return the token scores of every answer of every group, in order.

    `batch_size` is the number of sequences in a pass; it affects results only by rounding. Batches
    that do not fit in memory are halved. `advance` is called with the number of groups done.
    """
    found = _scored(model, groups, _Limits(batch_size), moments, advance, team)
    if any(math.isnan(value) for group in found for score in group for value in score.log_probs):
        raise CheckFailedError(
            "the model's log-probabilities are not numbers, so there is nothing to compare; "
            f"{OVERFLOW_HINT}"
        )
    return found


def _scored(
    model: PreTrainedModel,
    groups: Sequence[Sequence[Encoded]],
    limits: _Limits,
    moments: bool = False,
    advance: Advance | None = None,
    team: Team = SOLO,
) -> list[list[TokenScores]]:
    units = _units(model, groups)
    found: dict[tuple[int, int], dict[int, _Statistics]] = {}
    shared = list(_batches(units, limits))

    def work(batch: list[_Unit]) -> list[tuple[_Read, _Statistics]]:
        return _score_in_parts(model, batch, limits, moments)

    for batch, scored in zip(shared, team.map_objects(shared, work), strict=True):
        for read, statistics in scored:
            found.setdefault(read.answer, {})[read.token] = statistics
        if advance:
            advance(len({g for unit in batch for (g, _), _ in unit}))
    return [
        [_assemble(found[(g, a)], moments) for a in range(len(group))]
        for g, group in enumerate(groups)
    ]


def _units(model: PreTrainedModel, groups: Sequence[Sequence[Encoded]]) -> list[_Unit]:
    """Return the answers to compute together: those of a group, if they share a prefix."""
    units: list[_Unit] = []
    stateful = is_stateful(model)
    for g, group in enumerate(groups):
        answers = [((g, a), answer) for a, answer in enumerate(group)]
        if not stateful and len({answer.ids[0] for answer in group}) == 1:
            units.append(answers)
        else:
            units += [[answer] for answer in answers]
    return units


def _assemble(tokens: dict[int, _Statistics], moments: bool) -> TokenScores:
    columns = list(zip(*(tokens[number] for number in sorted(tokens)), strict=True))
    return TokenScores(*columns[: 4 if moments else 2])


def _batches(units: Sequence[_Unit], limits: _Limits) -> Iterator[list[_Unit]]:
    """Yield units of similar length together, to reduce padding."""
    return _packed(
        units,
        limits,
        lambda unit: max(len(answer.ids) for _, answer in unit),
        lambda unit: max(answer.answer_length for _, answer in unit),
    )


def _packed(
    parts: Sequence[Part],
    limits: _Limits,
    width_of: Callable[[Part], int],
    logits_of: Callable[[Part], int],
) -> Iterator[list[Part]]:
    """Yield parts of similar width together, as many as the limits and their logits allow."""
    pack: list[Part] = []
    logits = 0
    for part in sorted(parts, key=width_of):
        logits += logits_of(part)
        if pack and (not limits.allow(len(pack) + 1, width_of(part)) or logits > _MAX_LOGITS):
            yield pack
            pack, logits = [], logits_of(part)
        pack.append(part)
    if pack:
        yield pack


def _score_in_parts(
    model: PreTrainedModel, batch: Sequence[_Unit], limits: _Limits, moments: bool
) -> list[tuple[_Read, _Statistics]]:
    """Score a batch, halved if it does not fit in memory."""

    def score(part: list[int], size: int) -> list[tuple[_Read, _Statistics]]:
        smaller = replace(limits, sequences=size)
        return list(_score_batch(model, [batch[i] for i in part], smaller, moments))

    parts = in_parts(
        list(range(len(batch))),
        lambda part: score(part, limits.sequences if len(part) == len(batch) else len(part)),
        # A single unit may still have several answers that continue in one pass.
        last_resort=lambda part: score(part, 1),
    )
    return [scored for part in parts for scored in part]


def _score_batch(
    model: PreTrainedModel, units: Sequence[_Unit], limits: _Limits, moments: bool
) -> Iterator[tuple[_Read, _Statistics]]:
    common = [_common_length([answer for _, answer in unit]) for unit in units]
    width = max(common)
    # On the left the second pass follows a prefix directly; a stateful model has no second pass.
    side: PaddingSide = "right" if is_stateful(model) else "left"
    first: list[_Read] = []
    rest: list[_Rest] = []
    for row, (unit, length) in enumerate(zip(units, common, strict=True)):
        for number, answer in unit:
            end = min(len(answer.ids), length + 1)
            begin = width - length if side == "left" else 0
            first += [
                _Read(row, begin + p - 1, answer.ids[p], number, p)
                for p in range(answer.answer_start, end)
            ]
            if end < len(answer.ids):
                rest.append(_Rest(row, length, number, answer))
    prefixes = [unit[0][1].ids[:length] for unit, length in zip(units, common, strict=True)]
    # One prompt for all answers of a unit, even if it was truncated more for a long answer.
    prompts = [unit[0][1].ids[: unit[0][1].answer_start] for unit in units]
    ids, mask = padded(prefixes, side)
    with rows_answer(prompts):
        statistics, cache = _forward(model, ids, mask, first, moments, keep_cache=bool(rest))
    yield from zip(first, statistics, strict=True)
    if rest and not _can_be_continued(cache):
        alone = [[(part.number, part.answer)] for part in rest]
        for batch in _batches(alone, limits):
            yield from _score_batch(model, batch, limits, moments)
        return
    for pack in _packed(
        rest,
        limits,
        lambda part: width + len(part.answer.ids) - part.start,
        lambda part: part.answer.answer_length,
    ):
        yield from _continue(model, pack, prompts, mask, cache, moments)


def _continue(
    model: PreTrainedModel,
    pack: Sequence[_Rest],
    prompts: Prompts,
    prefix_mask: torch.Tensor,
    cache: Any,
    moments: bool,
) -> Iterator[tuple[_Read, _Statistics]]:
    """Run the rest of some answers from the keys and values of their prefixes."""
    reads = [
        _Read(row, p - 1 - part.start, part.answer.ids[p], part.number, p)
        for row, part in enumerate(pack)
        for p in range(max(part.answer.answer_start, part.start + 1), len(part.answer.ids))
    ]
    rows = torch.tensor([part.prefix for part in pack])
    ids, mask = padded([part.answer.ids[part.start : -1] for part in pack], "right")
    mask = torch.cat([prefix_mask[rows], mask], 1)
    with rows_answer([prompts[part.prefix] for part in pack]):
        statistics, _ = _forward(model, ids, mask, reads, moments, _rows_of(cache, rows))
    yield from zip(reads, statistics, strict=True)


def _forward(
    model: PreTrainedModel,
    ids: torch.Tensor,
    mask: torch.Tensor,
    reads: Sequence[_Read],
    moments: bool,
    cache: Any = None,
    keep_cache: bool = False,
) -> tuple[list[_Statistics], Any]:
    """Return the statistics of every read, and the keys and values if requested."""
    device = input_device(model)
    positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
    # Answers to one prompt read the same position for different targets, and share its logits.
    places = sorted({(read.row, read.column) for read in reads}) or [(0, 0)]
    rows, columns = torch.tensor(places, device=device).unbind(1)
    with head_sees_only(model, rows, columns):
        output = model(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            position_ids=positions.to(device),
            past_key_values=cache,
            use_cache=keep_cache or cache is not None,
        )
    number = {place: i for i, place in enumerate(places)}
    wanted = torch.tensor([number[(read.row, read.column)] for read in reads], dtype=torch.long)
    logits = output.logits[0]
    targets = torch.tensor([read.target for read in reads], dtype=torch.long)
    statistics = token_statistics(logits, targets, moments, wanted)
    return list(statistics), getattr(output, "past_key_values", None) if keep_cache else None


def _common_length(answers: Sequence[Encoded]) -> int:
    """Return how many input tokens all answers share."""
    columns = zip(*(answer.ids[:-1] for answer in answers), strict=False)
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))


def _can_be_continued(cache: Any) -> bool:
    """Tell whether a cache has keys and values only; a model may have another memory or none."""
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    kinds = (DynamicLayer, DynamicSlidingWindowLayer)
    return type(cache) is DynamicCache and all(type(layer) in kinds for layer in cache.layers)


def _rows_of(cache: Any, rows: torch.Tensor) -> Any:
    """Return the keys and values of some rows; the cache itself is not changed."""
    picked = copy.copy(cache)
    picked.layers = [copy.copy(layer) for layer in cache.layers]
    picked.batch_select_indices(rows)
    return picked
