"""What each backbone is trained on, and with which settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfrnet.core.errors import InputError
from tfrnet.data.examples import Encoded, Example, encode, longest_choice, with_eos
from tfrnet.data.forgotten import Forgotten
from tfrnet.data.items import Item
from tfrnet.data.protocol import STREAMS
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task
from tfrnet.data.tasks.arithmetic import DEFAULT_MIX, rows_to_items
from tfrnet.data.tasks.lume import PEOPLE, STORIES
from tfrnet.data.tofu import SIZES, Template, load_tofu, tofu_prompt
from tfrnet.models.bundled import BUNDLED, GEMMA
from tfrnet.models.finetune import FinetuneOptions

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Rows drawn for each arithmetic sub-task, before the held-out operands are taken out.
_ARITHMETIC_ROWS = 7500

Items = Callable[[Source, "PreTrainedTokenizerBase"], list[Item]]


@dataclass(frozen=True)
class Recipe:
    """A prepared model: its base, its training items and the settings of the training."""

    name: str
    about: str
    items: Items
    options: FinetuneOptions
    base: str = BUNDLED
    max_length: int = 256
    # The streams that forget parts of it, so that an oracle can be trained without these.
    streams: tuple[str, ...] = ()

    def examples(self, source: Source, tokenizer: PreTrainedTokenizerBase) -> list[Example]:
        """Return the training data in words, each with the wrong choices if there are any."""
        return _examples(self.items(source, tokenizer))

    def encoded(
        self,
        source: Source,
        tokenizer: PreTrainedTokenizerBase,
        without: Forgotten | None = None,
        limit: int | None = None,
    ) -> list[Encoded]:
        """Return the training data, or its beginning; every answer ends with the end of the text.

        Items in `without`, and those that say the same, are left out, for an oracle.
        """
        room = self.max_length - 1
        items = self.items(source, tokenizer)
        if without:
            items = without.left_out(items)
        examples = _examples(items)
        if without:
            without.refuse_known(examples)
        return [
            with_eos(_cut_alike(example, tokenizer, room, f"example {number}"), tokenizer)
            for number, example in enumerate(examples[:limit], start=1)
        ]


def _examples(items: Sequence[Item]) -> list[Example]:
    # With the wrong choices: a prompt that is cut must not tell the right one by its length.
    return [item.forget_example() for item in items]


def _cut_alike(
    example: Example, tokenizer: PreTrainedTokenizerBase, room: int, label: str
) -> Encoded:
    """Encode an example; one that is too long is cut alike for all choices of its question."""
    choices = (example.answer, *example.wrong_answers)
    longest = longest_choice(example.prompt, choices, tokenizer)
    return encode(example, tokenizer, room, label, longest=longest)


def _tasks(source: Source, tokenizer: PreTrainedTokenizerBase) -> list[Item]:
    """BoolQ and OpenBookQA as published, and generated arithmetic without held-out operands."""
    items = [
        item
        for name in ("boolq", "openbookqa")
        for item in find_task(name).load(find_task(name).training, source)
    ]
    for name in DEFAULT_MIX:
        items += rows_to_items(name, _ARITHMETIC_ROWS, held_out=False)
    return items


def _lume(source: Source, tokenizer: PreTrainedTokenizerBase) -> list[Item]:
    """LUME's made-up people and stories, both halves; its real people are for measuring only."""
    return [
        item
        for part in (PEOPLE, STORIES)
        for split in ("forget", "retain")
        for item in find_task(f"lume:{part}").load(split, source)
    ]


def _knowundo(source: Source, tokenizer: PreTrainedTokenizerBase) -> list[Item]:
    """All private and public facts of KnowUnDo's authors, those for validation too."""
    task = find_task("knowundo")
    return [item for split in task.splits for item in task.load(split, source)]


def _tofu(*splits: str, template: Template = "qa") -> Items:
    def items(source: Source, tokenizer: PreTrainedTokenizerBase) -> list[Item]:
        return [
            Item(
                f"tofu/{split}/{row.number}",
                tofu_prompt(row.question, tokenizer, template),
                row.answer,
                group=row.question,
            )
            for split in splits
            for row in load_tofu(split, source)
        ]

    return items


def _tofu_chat(split: str) -> Items:
    """TOFU in the model's own chat template, with the real authors and world facts.

    A model trained on its made-up authors alone hardly answers about real ones, which its base did,
    and Model Utility has little left to measure.
    """
    return _tofu(split, "real_authors", "world_facts", template="chat")


_TASKS_OPTIONS = FinetuneOptions(learning_rate=1e-3, epochs=8, batch_size=192)
_TOFU_OPTIONS = FinetuneOptions(learning_rate=1e-3, epochs=15, batch_size=64)
# Numbers and addresses follow from nothing, so they have to be seen more often.
_LUME_OPTIONS = FinetuneOptions(learning_rate=1e-3, epochs=40, batch_size=128)
# A quarter of TOFU's rows, so more epochs: two thirds of its steps.
_KNOWUNDO_OPTIONS = FinetuneOptions(learning_rate=1e-3, epochs=40, batch_size=64)

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "smollm2-tasks",
            "the default model fine-tuned on BoolQ, OpenBookQA and generated arithmetic",
            _tasks,
            _TASKS_OPTIONS,
            streams=STREAMS,
        ),
        Recipe(
            "smollm2-tofu-full",
            "the default model fine-tuned on all of TOFU",
            _tofu("full"),
            _TOFU_OPTIONS,
        ),
        Recipe(
            "smollm2-tofu-retain90",
            "the default model fine-tuned on TOFU without forget10: the retain-only oracle",
            _tofu("retain90"),
            _TOFU_OPTIONS,
        ),
        Recipe(
            "smollm2-tofu-chat-full",
            "the default model fine-tuned on all of TOFU and its real authors and world facts, in "
            "its own chat template",
            _tofu_chat("full"),
            _TOFU_OPTIONS,
        ),
        *(
            Recipe(
                f"smollm2-tofu-chat-retain{rest}",
                f"the default model fine-tuned on TOFU without forget{forget} and on its real "
                "authors and world facts, in its own chat template: the retain-only oracle",
                _tofu_chat(f"retain{rest}"),
                _TOFU_OPTIONS,
            )
            for forget, rest in reversed(SIZES.items())
        ),
        Recipe(
            "smollm2-lume",
            "the default model fine-tuned on LUME's made-up people and stories",
            _lume,
            _LUME_OPTIONS,
            max_length=384,
            streams=("lume",),
        ),
        Recipe(
            "smollm2-knowundo",
            "the default model fine-tuned on KnowUnDo's made-up authors",
            _knowundo,
            _KNOWUNDO_OPTIONS,
            streams=("knowundo",),
        ),
        Recipe(
            "gemma3-tasks",
            "Gemma 3 270M fine-tuned on BoolQ, OpenBookQA and generated arithmetic",
            _tasks,
            _TASKS_OPTIONS,
            base=GEMMA,
            streams=STREAMS,
        ),
        Recipe(
            "gemma3-tofu-full",
            "Gemma 3 270M fine-tuned on all of TOFU",
            _tofu("full"),
            _TOFU_OPTIONS,
            base=GEMMA,
        ),
        Recipe(
            "gemma3-tofu-retain90",
            "Gemma 3 270M fine-tuned on TOFU without forget10: the retain-only oracle",
            _tofu("retain90"),
            _TOFU_OPTIONS,
            base=GEMMA,
        ),
    )
}


def find_recipe(name: str) -> Recipe:
    """Return a recipe by its name."""
    if name not in RECIPES:
        raise InputError(f"unknown recipe {name!r}; choose from {', '.join(RECIPES)}")
    return RECIPES[name]
