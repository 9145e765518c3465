"""What to evaluate, read and checked before any model is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tfrnet.core.errors import InputError
from tfrnet.data.examples import Truncation
from tfrnet.data.fewshot import with_shots
from tfrnet.data.items import Item
from tfrnet.data.protocol import Split
from tfrnet.data.requests import Request, places_apart
from tfrnet.data.sampling import one_per_group, sample_indices, shuffled
from tfrnet.data.sources import Source
from tfrnet.data.task import Task
from tfrnet.data.tasks import find_task, task_names
from tfrnet.data.tofu import TofuRow, load_tofu
from tfrnet.evaluation.attacking.subject import AttackOptions, divide
from tfrnet.evaluation.bystanders import Bystanders, find_bystanders
from tfrnet.evaluation.robustness import check_attacks
from tfrnet.evaluation.tofu import TofuOptions

SPECIAL = ("tofu", "privacy", "robustness", "stream")
DEFAULT_LIMIT = 100


@dataclass(frozen=True)
class Options:
    """The options of an evaluation.

    `limit` is the number of items of each task or TOFU set. The default is 100 items per task and
    all rows of TOFU; `full` means everything. `items` selects a seeded sample, or the first items
    in file order as in lm-evaluation-harness.
    """

    tasks: tuple[str, ...]
    limit: int | None = None
    full: bool = False
    items: Literal["sample", "first"] = "sample"
    seed: int = 0
    shots: int = 0
    # None: the task's own.
    max_length: int | None = None
    truncation: Truncation = "passage_left"
    mutual_info: bool = False
    tofu: TofuOptions = field(default_factory=TofuOptions)
    min_k: float = 0.4
    gradient_norm: bool = False
    attacks: tuple[str, ...] = ()
    attack: AttackOptions = field(default_factory=AttackOptions)

    def __post_init__(self) -> None:
        known = [*task_names(), *SPECIAL]
        for name in self.tasks:
            if name.partition(":")[0] not in known:
                raise InputError(f"unknown task {name!r}; choose from {', '.join(known)}")
        if not self.tasks:
            raise InputError(f"--tasks names no task; choose from {', '.join(known)}")
        if self.limit is not None and self.limit < 1:
            raise InputError(f"--limit {self.limit} leaves nothing to evaluate; give at least 1")
        if self.limit is not None and self.full:
            raise InputError("give --limit or --full, not both")


@dataclass(frozen=True)
class Part:
    """Items of a task that are measured together; `plain` holds them without solved examples."""

    task: Task
    name: str
    plain: Sequence[Item]
    shots: Sequence[Item] = ()

    @property
    def items(self) -> Sequence[Item]:
        """The items, with solved examples if there are any."""
        return [with_shots(item, self.shots) for item in self.plain] if self.shots else self.plain


@dataclass(frozen=True)
class Plan:
    """The data of an evaluation."""

    options: Options
    parts: Sequence[Part]
    tofu: Mapping[str, Sequence[TofuRow]]
    privacy: tuple[Sequence[TofuRow], Sequence[TofuRow]] | None
    split: Split | None
    bystanders: Bystanders | None = None

    def steps(self) -> int:
        """Return the total number of prompts, without those of attacks."""
        tasks = sum(len(p.items) * (1 if p.items[0].choices else 2) for p in self.parts)
        tofu = 2 * sum(map(len, self.tofu.values()))
        return tasks + tofu + sum(map(len, self.privacy or ()))


def make_plan(
    options: Options,
    source: Source,
    split: Split | None = None,
    forgotten: Sequence[Request] = (),
) -> Plan:
    """Read the data that the options ask for.

    Nothing that the split or the requests `forgotten` make a model forget is a solved example.
    """
    for name in ("robustness", "stream"):
        if name in options.tasks and split is None:
            raise InputError(
                f"{name} is measured on forgotten items and needs to know which: give --split "
                "FOLDER, which 'tfrnet split' makes"
            )
    if split and "robustness" in options.tasks:
        check_attacks(options.attacks)
        divide(split, options.attack.limit)
        length = options.max_length or find_task(split.forget_task).max_length
        options = replace(options, attack=replace(options.attack, max_length=length))
    parts: list[Part] = []
    for name in options.tasks:
        if name not in SPECIAL:
            task = find_task(name)
            if split and ":" in name:
                raise InputError(
                    f"with --split, name {name.partition(':')[0]} without what follows the colon: "
                    "the split says which items"
                )
            drawn = _split_parts(task, split, options) if split else None
            found = drawn or [_drawn_part(task, options, source)]
            parts += [_with_shots(part, options, source, split, forgotten) for part in found]
    tofu: dict[str, Sequence[TofuRow]] = {}
    if "tofu" in options.tasks:
        files = options.tofu.files()
        whole = {name: load_tofu(file, source) for name, file in files.items()}
        for name, rows in whole.items():
            for number, row in enumerate(rows):
                if not row.wrong_answers:
                    raise InputError(f"tofu/{files[name]}/{number}: there is no perturbed_answer")
        _check_limit(options.limit, max(map(len, whole.values())), "TOFU")
        tofu = {name: _some(rows, options, name) for name, rows in whole.items()}
    privacy = None
    if "privacy" in options.tasks:
        names = options.tofu.membership_files()
        members, others = (load_tofu(file, source) for file in names)
        _check_limit(options.limit, min(len(members), len(others)), "the privacy sets")
        privacy = (_some(members, options, names[0]), _some(others, options, names[1]))
    beside = None
    if split and "stream" in options.tasks:
        beside = find_bystanders(split, source, options.limit or DEFAULT_LIMIT)
    return Plan(options, parts, tofu, privacy, split, beside)


def _split_parts(task: Task, split: Split, options: Options) -> list[Part]:
    """Return the forgotten items, if they are this task's, and the held-out ones."""
    if task.name not in split.heldout:
        raise InputError(
            f"the split has no items of {task.name}; it has {', '.join(split.heldout)}"
        )
    sets = {"heldout": split.heldout[task.name]}
    if task.name == split.forget_task:
        sets = {"forget": split.forget_eval} | sets
    for name, items in sets.items():
        _check_limit(options.limit, len(items), f"{task.name} ({name} of the split)")
    return [Part(task, name, items[: options.limit]) for name, items in sets.items()]


def _drawn_part(task: Task, options: Options, source: Source) -> Part:
    items = task.load(task.evaluation, source)
    limit = len(items) if options.full else options.limit or DEFAULT_LIMIT
    _check_limit(limit, len(items), f"{task.name} ({task.evaluation})")
    if options.items == "sample" and not options.full:
        items = shuffled(items, "evaluation", options.seed)
    return Part(task, task.evaluation, items[:limit])


def _with_shots(
    part: Part,
    options: Options,
    source: Source,
    split: Split | None,
    forgotten: Sequence[Request],
) -> Part:
    if not options.shots:
        return part
    groups = {item.group for item in part.plain}
    # A forgotten item as a solved example would bring back what is measured.
    if split:
        groups |= {item.group for item in split.forget}
    training = part.task.load(part.task.training, source)
    asked = [example for request in forgotten for example in request.examples]
    training = [training[i] for i in places_apart([item.example() for item in training], asked)]
    pool = one_per_group(shuffled(training, "shots", options.seed))
    shots = [item for item in pool if item.group not in groups][: options.shots]
    if len(shots) < options.shots:
        raise InputError(
            f"{options.shots} solved examples are asked for, but {part.task.name} has only "
            f"{len(shots)} that are neither measured nor forgotten; choose a smaller --shots"
        )
    return replace(part, shots=tuple(shots))


def _some(rows: Sequence[TofuRow], options: Options, name: str) -> Sequence[TofuRow]:
    """Return up to `limit` rows; a smaller set is used whole."""
    if options.limit is None:
        return rows
    if options.items == "first":
        return rows[: options.limit]
    return [rows[i] for i in sample_indices(len(rows), options.limit, name, options.seed)]


def _check_limit(limit: int | None, available: int, what: str) -> None:
    if limit is not None and limit > available:
        raise InputError(
            f"{limit} items are asked for, but {what} has only {available}; "
            "choose a smaller --limit, or --full for all"
        )
