"""The demo: measure, forget three requests, measure again, and show the results."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrnet.core.drift import Drift
from tfrnet.core.errors import InputError, StateError
from tfrnet.core.lock import FolderLock
from tfrnet.core.outcome import Outcome
from tfrnet.core.stage import Report
from tfrnet.data.requests import read_requests
from tfrnet.demo.corpus import DemoSplit
from tfrnet.demo.figure import draw_trajectory
from tfrnet.demo.other_words import KINDS, in_other_words
from tfrnet.evaluation.ranking import accuracy, rank
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.models.generation import continue_texts
from tfrnet.models.load import LoadedModel
from tfrnet.session import Session
from tfrnet.state.store import StateStore

_MARKER = "demo.json"
_REQUESTS = "requests.jsonl"
_MADE_BY = {"made_by": "tfrnet demo"}
# Fewer examples than usual, so that two cores need only minutes.
_QUICK: dict[str, Any] = {"guard_examples": 16, "retain_examples": 16}
# Shorter steps: fewer examples show less of what a long step would damage.
_SHORTER: dict[str, Any] = {"steps": 4, "step_margin": 6}
# Without near examples it needs more of the others, and does without the costliest rows: 16 other
# answers to each prompt.
_QUICK_CALIBRATED: dict[str, Any] = {"retain_examples": 64, "hold_rivals": False}
_NEW_TOKENS = 12


@dataclass(frozen=True)
class Accuracies:
    """Accuracy on each set of facts, in percent."""

    forgotten: float
    same_topic: float
    others: float


@dataclass(frozen=True)
class Story:
    """The results of the demo."""

    before: Accuracies
    after: Accuracies
    outcomes: list[Outcome]
    generations: list[dict[str, str]]
    other_words: list[dict[str, str]]
    drift: Drift | None
    seconds: float
    picture: Path | None


@dataclass(frozen=True)
class Listener:
    """Callbacks for progress and results."""

    stage: Report
    measured: Callable[[Accuracies], None]
    request_done: Callable[[Outcome, Drift | None], None]


def check_folder(folder: Path) -> None:
    """Raise if a folder holds anything other than an earlier demo."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())) and not _is_demo(folder):
        raise InputError(
            f"{folder} exists already and was not made by the demo; choose a new folder with --out"
        )
    if more := _later_requests(folder):
        raise InputError(
            f"the state in {folder} has requests besides the demo's ({more[0]}); choose a new "
            "folder with --out"
        )


def prepare_folder(folder: Path) -> bool:
    """Create the demo's folder, or clear that of an earlier demo; raise if it is neither.

    Return whether there was a state of an earlier demo.
    """
    check_folder(folder)
    state = folder / "state"
    found = StateStore.exists(state)
    lock = FolderLock(state) if found else None  # nobody uses it any more
    try:
        shutil.rmtree(state, ignore_errors=True)
    finally:
        if lock:
            lock.release()
    for name in (_REQUESTS, "retain.jsonl", "trajectory.png"):
        (folder / name).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARKER).write_text(json.dumps(_MADE_BY) + "\n")
    return found


def _later_requests(folder: Path) -> list[str]:
    """Return the ids of requests that somebody has added to an earlier demo."""
    state, file = folder / "state", folder / _REQUESTS
    if not StateStore.exists(state):
        return []
    own = {request.id for request in read_requests(file)} if file.is_file() else set()
    with suppress(StateError):  # a damaged state has nothing more to lose
        history = StateStore.open(state).history
        return [name for name in (*history.applied, *history.rejected) if name not in own]
    return []


def _is_demo(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / _MARKER).read_text())["made_by"] == _MADE_BY["made_by"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def quick(preset: str) -> TFRConfig:
    """Return the settings of a preset for the demo."""
    config = TFRConfig.preset(preset)
    more: dict[str, Any] = {}
    if config.step == "solve":
        more = _SHORTER
    elif config.step == "calibrate" and config.near_examples is None:
        more = _QUICK_CALIBRATED
    return config.with_overrides(f"{name}={value}" for name, value in (_QUICK | more).items())


def tell(
    loaded: LoadedModel,
    name: str,
    parts: DemoSplit,
    folder: Path,
    listener: Listener,
    config: TFRConfig,
) -> Story:
    """Run the demo on a loaded model."""
    start = time.perf_counter()
    retain = [fact.example() for fact in parts.retain]
    _write_lines(folder / _REQUESTS, [request.to_dict() for request in parts.requests])
    _write_lines(folder / "retain.jsonl", [example.to_dict() for example in retain])
    listener.stage("measuring what the model knows")
    before, prompts = _measure(loaded, parts)
    listener.measured(before)
    reworded = in_other_words(loaded, parts.forgotten)
    prompts += [each.prompt for each in reworded]
    said_before = continue_texts(loaded, prompts, _NEW_TOKENS, batch_size=len(prompts))
    outcomes = []
    drift = None
    with Session(
        loaded.model,
        loaded.tokenizer,
        folder / "state",
        retain,
        config=config,
        seed=0,
        model_name=name,
        audit=True,
    ) as session:
        for outcome in session.run(parts.requests, report=listener.stage):
            outcomes.append(outcome)
            drift = session.unlearner.drift(outcome.guard_loss_after)
            listener.request_done(outcome, drift)
        listener.stage("measuring what it still knows")
        after, _ = _measure(loaded, parts)
        listener.measured(after)
        said_after = continue_texts(loaded, prompts, _NEW_TOKENS, batch_size=len(prompts))
        picture = _draw(session, folder / "trajectory.png")
    generations = [
        {"prompt": prompt, "before": first, "after": second}
        for prompt, first, second in zip(prompts, said_before, said_after, strict=True)
    ]
    plain = len(generations) - len(reworded)
    other_words = [
        {"asked": KINDS[each.kind]} | row
        for each, row in zip(reworded, generations[plain:], strict=True)
    ]
    seconds = time.perf_counter() - start
    told = generations[:plain], other_words, drift
    story = Story(before, after, outcomes, *told, seconds, picture)
    (folder / _MARKER).write_text(json.dumps(_MADE_BY | summary(story), indent=1) + "\n")
    return story


def summary(story: Story) -> dict[str, object]:
    """Return the results as plain JSON values."""
    return {
        "accuracy_before": vars(story.before),
        "accuracy_after": vars(story.after),
        "outcomes": [outcome.to_dict() for outcome in story.outcomes],
        "generations": story.generations,
        "other_words": story.other_words,
        "drift": story.drift.ratio if story.drift else None,
        "seconds": round(story.seconds, 1),
        "picture": str(story.picture) if story.picture else None,
    }


def _measure(loaded: LoadedModel, parts: DemoSplit) -> tuple[Accuracies, list[str]]:
    """Return the accuracies and, for each set, the prompt with the most likely answer."""
    accuracies, prompts = [], []
    for facts in (parts.forgotten, parts.same_topic, parts.others):
        rankings = rank(*loaded, [fact.question() for fact in facts], batch_size=32)
        accuracies.append(accuracy(rankings))
        likely = [ranking.log_likelihoods[ranking.gold] for ranking in rankings]
        prompts.append(facts[likely.index(max(likely))].prompt)
    return Accuracies(*accuracies), prompts


def _draw(session: Session, path: Path) -> Path | None:
    try:
        draw_trajectory(session.store, path)
    except ModuleNotFoundError:
        return None
    return path


def _write_lines(path: Path, rows: Sequence[object]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
