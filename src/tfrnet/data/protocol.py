"""The experimental protocol: which items are forgotten, kept, guarded and evaluated.

A forget task and a seed give the same items on every machine. The parts are disjoint by group (no
shared passage, question or pair of operands), except that `forget_eval` is part of `forget`.
Held-out items come from another split and share no group with the training split. They depend on
the seed but not on the forget task, so all streams of a seed are evaluated on the same items.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tfrnet.core.errors import InputError
from tfrnet.data.examples import Example
from tfrnet.data.items import Item, refuse_same, refuse_shared_groups
from tfrnet.data.requests import Request
from tfrnet.data.sampling import one_per_group, seeded_order, shuffled
from tfrnet.data.sources import Source
from tfrnet.data.task import Task
from tfrnet.data.tasks import find_task, task_names

# What to lower in `tfrnet split` if there are too few items for a part.
_OPTIONS = {
    "forgotten": ("--requests", "--request-size"),
    "kept": ("--retain",),
    "guarded": ("--guard",),
    "held out": ("--evaluated",),
}
# The paper's tasks: each is forgotten in a stream of its own, while the others are kept.
STREAMS = ("arithmetic", "openbookqa", "boolq")


@dataclass(frozen=True)
class Sizes:
    """How many items each part has; retain and guard sizes are (forget task, each other task)."""

    requests: int = 20
    request_size: int = 8
    forget_eval: int = 100
    heldout: int = 100
    retain: tuple[int, int] = (240, 120)
    guard: tuple[int, int] = (32, 16)

    def __post_init__(self) -> None:
        if min(self.requests, self.request_size, self.forget_eval, self.heldout) < 1:
            raise InputError("a split needs at least one request, example and evaluation item")
        if self.forget_eval > self.requests * self.request_size:
            raise InputError(
                f"cannot evaluate {self.forget_eval} of the "
                f"{self.requests * self.request_size} items that are forgotten; evaluate fewer "
                "(split: --evaluated)"
            )


@dataclass(frozen=True)
class Split:
    """The items of one stream; `retain`, `guard` and `heldout` by task."""

    forget_task: str
    seed: int
    request_size: int
    forget: tuple[Item, ...]
    forget_eval: tuple[Item, ...]
    retain: Mapping[str, tuple[Item, ...]]
    guard: Mapping[str, tuple[Item, ...]]
    heldout: Mapping[str, tuple[Item, ...]]

    def __post_init__(self) -> None:
        refuse_shared_groups(
            {name: items for name, items in self.parts().items() if name != "forget_eval"}
        )
        forgotten = {item.digest for item in self.forget}
        if any(item.digest not in forgotten for item in self.forget_eval):
            raise InputError("forget_eval holds an item that is never forgotten")

    def parts(self) -> dict[str, tuple[Item, ...]]:
        """Return all parts by name: `forget`, `forget_eval`, `retain/boolq`, and so on."""
        parts = {"forget": self.forget, "forget_eval": self.forget_eval}
        for kind in ("retain", "guard", "heldout"):
            for task, items in getattr(self, kind).items():
                parts[f"{kind}/{task}"] = items
        return parts

    @cached_property
    def digest(self) -> str:
        """A digest of all items by part: other data give another one."""
        items = {name: [item.digest for item in part] for name, part in self.parts().items()}
        return hashlib.sha256(json.dumps(items, sort_keys=True).encode()).hexdigest()

    def is_fixed(self) -> list[bool]:
        """Return for each forgotten item whether it is in `forget_eval`."""
        fixed = {item.digest for item in self.forget_eval}
        return [item.digest in fixed for item in self.forget]

    def requests(self) -> list[Request]:
        """Return the stream of deletion requests."""
        size = self.request_size
        return [
            Request(
                f"{self.forget_task}-{self.seed}-{start // size + 1:02d}",
                tuple(item.forget_example() for item in self.forget[start : start + size]),
            )
            for start in range(0, len(self.forget), size)
        ]

    def retain_examples(self) -> list[Example]:
        """Return the retain pool of all tasks."""
        return [item.example() for items in self.retain.values() for item in items]

    def guard_examples(self) -> list[Example]:
        """Return the guard examples of all tasks."""
        return [item.example() for items in self.guard.values() for item in items]


def make_split(
    forget_task: str,
    seed: int = 0,
    source: Source | None = None,
    sizes: Sizes | None = None,
    streams: Sequence[str] = STREAMS,
) -> Split:
    """Draw the items of one stream. A forget task that is not among `streams` is added to them.

    A task that stands alone is drawn without the others.
    """
    source, sizes = source or Source(), sizes or Sizes()
    check_stream(forget_task)
    task = find_task(forget_task)
    if task.alone and task.request_items:
        return make_split_of_topics(task, seed, source, sizes)
    if task.alone:
        streams = (forget_task,)
    elif forget_task not in streams:
        streams = (*streams, forget_task)
    tasks = {name: find_task(name) for name in streams}
    training = {name: task.load(task.training, source) for name, task in tasks.items()}
    heldout = {
        name: _heldout(task, training[name], source, sizes.heldout, seed)
        for name, task in tasks.items()
    }
    count = sizes.requests * sizes.request_size
    forget: tuple[Item, ...] = ()
    retain, guard = {}, {}
    for name in [forget_task, *(name for name in streams if name != forget_task)]:
        own = name == forget_task
        kept, guarded = (pair[0 if own else 1] for pair in (sizes.retain, sizes.guard))
        wanted = {"forgotten": count if own else 0, "kept": kept, "guarded": guarded}
        drawn = _drawn(tasks[name], training[name], heldout[name], source, wanted, seed)
        retain[name], guard[name] = drawn["kept"], drawn["guarded"]
        forget = drawn["forgotten"] if own else forget
    return Split(
        forget_task=forget_task,
        seed=seed,
        request_size=sizes.request_size,
        forget=forget,
        forget_eval=_evaluated(forget, sizes, seed),
        retain=retain,
        guard=guard,
        heldout=heldout,
    )


def make_split_of_topics(task: Task, seed: int, source: Source, sizes: Sizes) -> Split:
    """Draw a stream whose requests are about one topic each, and that has no other task."""
    name = task.name
    loaded = {
        split: task.load(split, source)
        for split in dict.fromkeys((task.training, task.pool, task.heldout))
    }
    refuse_same({split: [item.digest for item in items] for split, items in loaded.items()})
    by_topic: dict[str, list[Item]] = {}
    for item in loaded[task.training]:
        by_topic.setdefault(task.topic(item), []).append(item)
    size = task.request_items
    large = [items for items in by_topic.values() if len(items) >= size]
    if len(large) < sizes.requests:
        raise InputError(
            f"{name} has {len(large)} topics of {size} or more items, but the split needs "
            f"{sizes.requests}; ask for fewer (split: --requests)"
        )
    order = seeded_order(len(large), "stream", name, seed)[: sizes.requests]
    forget = tuple(item for topic in order for item in large[topic][:size])
    heldout, _ = _whole_groups(
        loaded[task.heldout], {"held out": sizes.heldout}, name, seed, "held"
    )
    seen = {item.group for item in heldout} | {item.group for item in forget}
    pool = [item for item in loaded[task.pool] if item.group not in seen]
    guard, rest = _whole_groups(pool, {"guarded": sizes.guard[0]}, name, seed, "guard")
    retain, _ = _whole_groups(rest, {"kept": sizes.retain[0]}, name, seed, "stream")
    return Split(
        forget_task=name,
        seed=seed,
        request_size=size,
        forget=forget,
        forget_eval=_evaluated(forget, sizes, seed),
        retain={name: retain},
        guard={name: guard},
        heldout={name: heldout},
    )


def _whole_groups(
    items: Sequence[Item], wanted: Mapping[str, int], *key: object
) -> tuple[tuple[Item, ...], list[Item]]:
    """Return items of one part, group by group in a seeded order, and those of other groups."""
    (count,) = wanted.values()
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.group, []).append(item)
    names = list(groups)
    drawn: list[Item] = []
    used: set[str] = set()
    for place in seeded_order(len(names), *key):
        if len(drawn) >= count:
            break
        drawn += groups[names[place]]
        used.add(names[place])
    if len(drawn) < count:
        raise _too_few(f"{key[0]} has {len(items)} items left", wanted)
    return tuple(drawn[:count]), [item for item in items if item.group not in used]


def _evaluated(forget: Sequence[Item], sizes: Sizes, seed: int) -> tuple[Item, ...]:
    chosen = {item.digest for item in shuffled(forget, "evaluated", seed)[: sizes.forget_eval]}
    return tuple(item for item in forget if item.digest in chosen)


def check_stream(task: str) -> None:
    """Raise unless this is the name of a task, without options."""
    if task not in task_names():
        raise InputError(f"unknown task {task!r}; choose from {', '.join(task_names())}")


def _heldout(
    task: Task, training: Sequence[Item], source: Source, count: int, seed: int
) -> tuple[Item, ...]:
    known = {item.group for item in training}
    unseen = [item for item in task.load(task.heldout, source) if item.group not in known]
    pool = one_per_group(shuffled(unseen, "heldout", seed))
    return _draw(pool, {"held out": count}, task.name)["held out"]


def _drawn(
    task: Task,
    training: Sequence[Item],
    heldout: Sequence[Item],
    source: Source,
    wanted: Mapping[str, int],
    seed: int,
) -> dict[str, tuple[Item, ...]]:
    """Draw the items of one task that are forgotten, kept and guarded."""
    pool = one_per_group(shuffled(training, "stream", task.name, seed))
    if not task.kept:
        return _draw(pool, wanted, task.name)
    drawn = _draw(pool, {"forgotten": wanted["forgotten"]}, task.name)
    taken = {item.group for item in (*drawn["forgotten"], *heldout)}
    others = [item for item in task.load(task.kept, source) if item.group not in taken]
    pool = one_per_group(shuffled(others, "kept", task.name, seed))
    return drawn | _draw(pool, {n: wanted[n] for n in ("kept", "guarded")}, task.name)


def _draw(
    pool: Sequence[Item], wanted: Mapping[str, int], task: str
) -> dict[str, tuple[Item, ...]]:
    """Cut a pool into parts, one after another."""
    if sum(wanted.values()) > len(pool):
        raise _too_few(f"{task} has {len(pool)} unrelated items", wanted)
    parts, start = {}, 0
    for name, count in wanted.items():
        parts[name] = tuple(pool[start : start + count])
        start += count
    return parts


def _too_few(there: str, wanted: Mapping[str, int]) -> InputError:
    """Return the error that says what is needed, and what to lower."""
    parts = {name: count for name, count in wanted.items() if count}
    needs = " + ".join(f"{count} {name}" for name, count in parts.items())
    *options, last = (option for name in parts for option in _OPTIONS[name])
    lower = f"{', '.join(options)} or {last}" if options else last
    return InputError(f"{there}, but the split needs {needs}; ask for fewer (split: {lower})")
