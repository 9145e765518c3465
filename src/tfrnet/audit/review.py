"""Looking at many requests at once: the untouched model beside the model as it is now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tfrnet.audit.change import Change
from tfrnet.audit.figures import Figures, given_by_kind
from tfrnet.audit.measure import GENERAL, HOLDOUT, KEPT, WORDINGS, Measured, measure
from tfrnet.audit.probe import Asked, ProbeMaker
from tfrnet.data.examples import Encoded
from tfrnet.data.requests import Request
from tfrnet.models.forward import Answers


@dataclass(frozen=True)
class Review:
    """What became of requests, each by its id, and of general text and hold-out data."""

    requests: dict[str, Figures]
    general: Figures
    holdout: Change | None


def review(
    requests: Sequence[Request],
    maker: ProbeMaker,
    holdout: list[Encoded],
    answers: Callable[[list[Encoded]], Answers],
    untouched: Callable[[], AbstractContextManager[None]],
) -> Review:
    """Measure all requests in two goes: with the model as it is, and untouched."""
    asked = {request.id: maker.wordings(request) for request in requests}
    sets = {
        **{f"{WORDINGS} {name}": [a.encoded for a in found] for name, found in asked.items()},
        **{f"{KEPT} {request.id}": maker.nearest_kept(request) for request in requests},
        **{GENERAL + kind: texts for kind, texts in maker.general.items()},
        HOLDOUT: holdout,
    }
    now = measure(answers, sets)
    with untouched():
        before = measure(answers, sets)
    return Review(
        {name: _figures(name, found, before, now) for name, found in asked.items()},
        Figures(general={kind: _change(GENERAL + kind, before, now) for kind in maker.general}),
        _change(HOLDOUT, before, now) if holdout else None,
    )


def _figures(name: str, asked: Sequence[Asked], before: Measured, now: Measured) -> Figures:
    wordings, kept = f"{WORDINGS} {name}", f"{KEPT} {name}"
    given = [found[wordings].given.tolist() if asked else [] for found in (before, now)]
    return Figures(
        wordings=given_by_kind([each.kind for each in asked], *given),
        kept=_change(kept, before, now) if kept in now else None,
    )


def _change(name: str, before: Measured, now: Measured) -> Change:
    return Change.of(before[name].losses, before[name].losses, now[name].losses)
