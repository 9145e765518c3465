"""What a calibrated step knows before it begins: levels, retain examples and siblings of a request.

All of it is what the untouched model says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from tfrnet.core.errors import OVERFLOW_HINT, InputError
from tfrnet.core.stage import Report
from tfrnet.data.examples import Encoded, tokens_apart
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.scoring import ScoreOptions
from tfrnet.methods.tfr.steps.levels import (
    SHOWN,
    AnswerOdds,
    Form,
    Goal,
    answer_of,
    form_of,
    key_of,
    level_of,
    prompt_of,
    rival_examples,
    rivals_of,
    with_rivals,
    with_wrong_answers,
)
from tfrnet.methods.tfr.steps.neighbours import (
    likeness,
    nearest_to_any,
    prompt_states,
    ranked,
)
from tfrnet.methods.tfr.steps.passages import Losses, PassageReader
from tfrnet.methods.tfr.steps.reference import Reference
from tfrnet.methods.tfr.steps.symbols import untold_numbers, with_every_digit, with_own_symbols
from tfrnet.methods.tfr.steps.written import Writer, answers_in
from tfrnet.models.forward import fitting_length

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# A sibling that has become less likely by more nats than this, in all, may have been forgotten. A
# number is so already when its weakest digit is a guess.
_FORGOTTEN = 2.0
_FORGOTTEN_NUMBER = 0.5
# The share of retain examples that are the nearest to the request; the rest are a random sample.
_NEAR = 0.5


@dataclass(frozen=True)
class RepairSet:
    """Retain examples that one repair brings back, and their losses under the untouched model."""

    examples: list[Encoded]
    losses: torch.Tensor


@dataclass(frozen=True)
class Calibration:
    """What the untouched model says about a request.

    `retain` and `retain_losses` are its retain examples and their losses, `rivals` other answers to
    its prompts that are held in place, `odds` the objective to lower with its targets; `is_unknown`
    says that every answer is at its level without any request. `siblings` are those that it wrote
    itself, with their losses; one is taken for forgotten if its loss, summed over its tokens, has
    risen by more than `most_risen`. `repairs` are other retain examples, a set for each
    repair.
    """

    retain: list[Encoded]
    retain_losses: torch.Tensor
    rivals: list[Encoded]
    odds: AnswerOdds
    is_unknown: bool
    siblings: list[Encoded] = field(default_factory=list)
    sibling_losses: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    most_risen: torch.Tensor = field(default_factory=lambda: torch.tensor(_FORGOTTEN))
    repairs: Sequence[RepairSet] = ()

    def with_siblings(
        self, siblings: list[Encoded], losses: torch.Tensor | None = None
    ) -> Calibration:
        """Hold siblings of the request too: at the given losses, or else where they are now."""
        if losses is None:
            losses = torch.full((len(siblings),), torch.inf)
        losses = torch.cat([self.retain_losses, losses.to(self.retain_losses)])
        return replace(self, retain=[*self.retain, *siblings], retain_losses=losses)

    def with_known_siblings(self, losses: Losses) -> Calibration:
        """Hold the untouched model's siblings, except those that were forgotten since."""
        if not self.siblings:
            return self
        sizes = torch.tensor([each.answer_length for each in self.siblings])
        risen = (losses(self.siblings).cpu() - self.sibling_losses) * sizes
        kept = (risen <= self.most_risen).nonzero().flatten().tolist()
        return self.with_siblings([self.siblings[i] for i in kept], self.sibling_losses[kept])

    def apart_from(self, guard: list[Encoded]) -> Calibration:
        """Hold nothing that is among the guard's examples; the model may have written one."""
        known = {each.ids for each in guard}
        kept = [place for place, each in enumerate(self.retain) if each.ids not in known]
        return replace(
            self,
            retain=[self.retain[i] for i in kept],
            retain_losses=self.retain_losses[kept],
            rivals=tokens_apart(self.rivals, guard),
        )


@dataclass(frozen=True)
class Untouched:
    """Prompt states of the retain examples under the untouched model.

    They depend only on the model and the examples, so a resumed stream gets the same.
    """

    retain: list[Encoded]
    states: torch.Tensor

    @classmethod
    def of(cls, model: PreTrainedModel, retain: list[Encoded], options: ScoreOptions) -> Untouched:
        """Run the retain examples through a model whose mask is all ones."""
        return cls(retain, prompt_states(model, retain, options))

    def calibrate(
        self,
        model: PreTrainedModel,
        forget: list[Encoded],
        order: list[int],
        losses: Losses,
        options: ScoreOptions,
        config: TFRConfig,
        writer: Writer,
        passage_reader: PassageReader,
        say: Report,
        reference: Reference | None = None,
        wrong: Sequence[Sequence[Encoded]] | None = None,
    ) -> Calibration:
        """Calibrate a request on the same model; `order` is a random order of retain examples.

        Levels are those of reference examples, or else estimated from other answers: from the
        `wrong` ones that an example names, if it names some. Those of passages, which have no
        other answers, are estimated token by token.
        """
        states = prompt_states(model, forget, options)
        cosines = likeness(states, self.states)
        # There are no other answers to a passage: it has no prompt.
        prompted = [place for place, each in enumerate(forget) if not each.is_passage]
        compared, written, renumbered = self._compared(
            *([forget[i] for i in prompted], states[prompted], cosines[prompted]),
            *(config, writer, say),
        )
        of_place = dict(zip(prompted, compared, strict=True))
        forms = [of_place.get(place, Form(())) for place in range(len(forget))]
        siblings = [*written, *renumbered]
        if wrong is not None:
            forms = with_wrong_answers(forms, forget, wrong)
        length, bos = fitting_length(model, config.max_length), writer.tokenizer.bos_token_id
        # Another answer to the same prompt may be one that is to be forgotten too.
        rivals = [
            tokens_apart(rival_examples(example, form, length, bos), forget)
            for example, form in zip(forget, forms, strict=True)
        ]
        quantile = config.level_quantile
        say("finding how likely unknown answers are")
        if reference is None:
            levels = estimated_levels(forms, rivals, losses, quantile)
        else:
            levels = reference.levels(model, states, forms, options, quantile)
        goals = {
            key_of(example): Goal(form, level)
            for example, form, level in zip(forget, forms, levels, strict=True)
        }
        if reference is None:
            passages = [
                example
                for example, form in zip(forget, forms, strict=True)
                if example.is_passage and not form.named
            ]
            known = passage_reader.goals(passages, losses, options)
            goals |= zip(map(key_of, passages), known, strict=True)
        odds = AnswerOdds(goals)
        found = odds.measured(model, forget, options)
        # If the request's own losses are not finite, that is said in the end.
        if bool(found.isfinite().all()) and not bool(odds.targets(forget).isfinite().all()):
            raise InputError(
                "the loss of other answers to the request's prompts, or of parts of its passages, "
                f"is not finite, so nothing was changed; {OVERFLOW_HINT}"
            )
        held = []
        if config.hold_rivals:
            held = [rival for own in rivals for rival in own[: config.held_rivals]]
        worded = odds.in_words(forget)
        if config.hold_written and worded:
            say("writing other answers")
            held += tokens_apart(writer.other_answers(worded, config.hold_written), forget)
        chosen = chosen_retain(cosines, order, config)
        retain = [self.retain[i] for i in chosen]
        is_unknown = bool((found <= odds.targets(forget)).all())
        say("checking the retain examples")
        parts = [] if is_unknown else repair_parts(chosen, order, config)
        to_repair = [[self.retain[i] for i in part] for part in parts]
        return Calibration(
            retain,
            losses(retain).cpu() if config.give_back else torch.full((len(retain),), torch.inf),
            held,
            odds,
            is_unknown=is_unknown,
            siblings=siblings,
            sibling_losses=losses(siblings).cpu() if siblings else torch.empty(0),
            most_risen=torch.tensor(
                [_FORGOTTEN] * len(written) + [_FORGOTTEN_NUMBER] * len(renumbered)
            ),
            repairs=[RepairSet(part, losses(part).cpu()) for part in to_repair],
        )

    def _compared(
        self,
        forget: list[Encoded],
        states: torch.Tensor,
        cosines: torch.Tensor,
        config: TFRConfig,
        writer: Writer,
        say: Report,
    ) -> tuple[list[Form], list[Encoded], list[Encoded]]:
        """Return what each answer is compared with, the siblings written for that, and numbers."""
        if not forget:
            return [], [], []
        places = ranked(cosines).tolist()
        forms = [
            form_of(example, [self.retain[i] for i in near])
            for example, near in zip(forget, places, strict=True)
        ]
        numbers: list[Encoded] = []
        if config.own_symbols:
            own = with_own_symbols(forms, forget, self.retain, writer.tokenizer)
            numbers = untold_numbers(forget, forms, own, writer.tokenizer)
            forms = own
        if config.every_digit:
            shown = [[self.retain[i] for i in near[:SHOWN]] for near in places]
            forms = with_every_digit(forms, forget, shown, writer.tokenizer)
        if config.request_rivals:
            forms = self._among_themselves(forget, states, forms)
        siblings: list[Encoded] = []
        renumbered: list[Encoded] = []
        if config.siblings and config.untouched_siblings:
            say("writing siblings of the request")
            if config.number_siblings:
                share = round(config.siblings * len(numbers) / len(forget))
                renumbered = writer.renumbered(numbers, forget, share)
            pairs = zip(forget, forms, strict=True)
            worded = [example for example, form in pairs if not form.symbols]
            siblings = writer.siblings(worded, config.siblings - len(renumbered))
            forms = [
                form if form.symbols else with_rivals(form, example, answers_in(siblings, example))
                for form, example in zip(forms, forget, strict=True)
            ]
        return forms, siblings, renumbered

    def _among_themselves(
        self, forget: list[Encoded], states: torch.Tensor, forms: list[Form]
    ) -> list[Form]:
        """Return forms whose rivals may also be answers of the request's other examples.

        Those to the same prompt are no rivals: they are to be forgotten too. What is in symbols
        stays so.
        """
        known = [*self.retain, *forget]
        cosines = likeness(states, torch.cat([self.states, states]), self.states.mean(0))
        found = []
        for example, form, places in zip(forget, forms, ranked(cosines).tolist(), strict=True):
            prompt = prompt_of(example)
            unwanted = {answer_of(other) for other in forget if prompt_of(other) == prompt}
            nearest = [known[i] for i in places if answer_of(known[i]) not in unwanted]
            found.append(form if form.symbols else Form((), rivals_of(example, nearest)))
        return found


def estimated_levels(
    forms: Sequence[Form],
    rivals: Sequence[Sequence[Encoded]],
    losses: Losses,
    quantile: float,
) -> list[float]:
    """Return the log-odds at which each answer counts as unknown, by its form and its rivals."""
    flat = [rival for own in rivals for rival in own]
    found = iter(losses(flat).tolist() if flat else [])
    return [
        level_of(form, [next(found) for _ in own], quantile)
        for form, own in zip(forms, rivals, strict=True)
    ]


def chosen_retain(cosines: torch.Tensor, order: list[int], config: TFRConfig) -> list[int]:
    """Return the retain examples that are held: the nearest to the request, then others."""
    near, drawn = config.near_examples, config.retain_examples
    if near is None:
        near = round(_NEAR * drawn)
        drawn -= near
    else:
        near *= len(cosines)
    return mixed(nearest_to_any(cosines, near), order, near + drawn)


def repair_parts(chosen: list[int], order: list[int], config: TFRConfig) -> list[list[int]]:
    """Return the retain examples of each repair: others than are held, in the given order.

    There are none where nothing holds earlier requests: they would come back too.
    """
    if not config.can_repair:
        return []
    held, size = set(chosen), config.repair_examples
    others = [i for i in order if i not in held]
    return [others[start : start + size] for start in range(0, len(others), size)][: config.repairs]


def mixed(first: list[int], order: list[int], count: int) -> list[int]:
    """Return `count` indices: the first ones, then others in the given order."""
    known = set(first)
    return [*first, *[i for i in order if i not in known][: count - len(first)]]
