"""TOFU: questions about fictitious authors, with paraphrased and wrong answers for evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from tfrnet.core.errors import InputError
from tfrnet.data.examples import Encoded, Example, encode, tokenise, with_eos
from tfrnet.data.sources import HubFile, Source, need, read_rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SIZES = {"01": "99", "05": "95", "10": "90"}
SPLITS = (
    "full",
    *(f"forget{size}" for size in SIZES),
    *(f"retain{rest}" for rest in SIZES.values()),
    *(f"holdout{size}" for size in SIZES),
    "real_authors",
    "world_facts",
    *(f"forget{size}_perturbed" for size in SIZES),
    "retain_perturbed",
    "real_authors_perturbed",
    "world_facts_perturbed",
)
AUTHOR_ROWS = 20

Template = Literal["qa", "chat"]
Boundary = Literal["open-unlearning", "answer"]


@dataclass(frozen=True)
class TofuRow:
    """One question. Only rows of perturbed splits have wrong answers; some have no paraphrase.

    `number` is its row in the file, from 0, which does not count in comparisons.
    """

    question: str
    answer: str
    paraphrased_question: str | None = None
    paraphrased_answer: str | None = None
    wrong_answers: tuple[str, ...] = ()
    number: int = field(default=0, compare=False)

    def right_answer(self) -> str:
        """Return the answer that a truth ratio takes as right: the paraphrase, if any."""
        return self.paraphrased_answer or self.answer


def load_tofu(split: str, source: Source) -> list[TofuRow]:
    """Return a split in file order."""
    if split not in SPLITS:
        raise InputError(f"TOFU has no split {split!r}; it has {', '.join(SPLITS)}")
    rows = read_rows(f"tofu/{split}.jsonl", HubFile("locuslab/TOFU", split, "train"), source)
    if not rows:
        raise InputError(f"the split {split!r} of TOFU is empty")
    return [
        replace(_row(row, f"tofu/{split}/{number}"), number=number)
        for number, row in enumerate(rows)
    ]


def _row(row: dict[str, Any], key: str) -> TofuRow:
    wrong = row.get("perturbed_answer") or []
    texts = {
        "question": need(row, "question", str, key),
        "answer": need(row, "answer", str, key),
    }
    options = (row.get("paraphrased_question"), row.get("paraphrased_answer"))
    for text in (*texts.values(), *wrong, *(text for text in options if text is not None)):
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{key}: a question or answer is empty")
    return TofuRow(texts["question"], texts["answer"], *options, tuple(wrong))


def check_template(tokenizer: PreTrainedTokenizerBase, template: Template) -> None:
    """Raise if the tokenizer does not have the template."""
    if template == "chat" and not tokenizer.chat_template:
        raise InputError("the tokenizer has no chat template; use the template qa")


def tofu_prompt(
    question: str, tokenizer: PreTrainedTokenizerBase, template: Template = "qa"
) -> str:
    """Return the prompt of a question."""
    if template == "qa":
        return f"Question: {question}\nAnswer: "
    check_template(tokenizer, template)
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": question},
    ]
    # Some templates write today's date into the prompt; OpenUnlearning uses a fixed one.
    prompt: str = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, date_string="10 Apr 2025"
    )
    return prompt


def tofu_example(prompt: str, answer: str) -> Example:
    """Return a prompt with its answer; the prompt itself says what stands between the two."""
    return Example(prompt, answer, join=" " if prompt[-1:].isspace() else "")


def encode_answer(
    prompt: str,
    answer: str,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    label: str,
    boundary: Boundary = "open-unlearning",
) -> Encoded:
    """Encode an answer with the end of the text as its last token.

    OpenUnlearning skips as many tokens as the prompt alone has, with its last space. If the
    tokenizer joins that space with the answer's first word, the answer's first token is not scored;
    the boundary `answer` scores it.
    """
    if boundary == "answer":
        room = max_length - 1
        return with_eos(encode(tofu_example(prompt, answer), tokenizer, room, label), tokenizer)
    ids = tokenise(prompt + answer, tokenizer)
    start = len(tokenise(prompt, tokenizer))
    if len(ids) >= max_length:
        raise InputError(
            f"{label}: {len(ids)} tokens do not fit into max_length {max_length}; raise it"
        )
    if start > len(ids):
        raise InputError(f"{label}: the answer adds no token to the prompt, so it cannot be scored")
    return with_eos(Encoded(tuple(ids), start), tokenizer)
