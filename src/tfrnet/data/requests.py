"""Reading requests and examples from JSON Lines, with errors that name file, line and field.

The JSON Schemas in `schema/` state the same rules; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet.core.text import is_printable, printable
from tfrnet.data.examples import Example
from tfrnet.data.jsonlines import json_lines

MAX_ID_LENGTH = 200


@dataclass(frozen=True)
class Request:
    """One deletion request: an id and the examples to forget."""

    id: str
    examples: tuple[Example, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the request as in a JSON Lines file."""
        return {"id": self.id, "examples": [example.to_dict() for example in self.examples]}


def parse_example(value: Any, where: str, line: int = 0) -> Example:
    """Check one example and return it."""
    if not isinstance(value, dict):
        raise InputError(f"{where}: an example must be an object, not {_kind(value)}")
    keys = set(value)
    group = _group(value["group"], where) if "group" in keys else ""
    if keys - {"group"} == {"text"}:
        text = _text(value["text"], "text", where)
        return Example("", text, is_text=True, line=line, group=group)
    if keys - {"join", "wrong_answers", "group"} == {"prompt", "answer"}:
        return Example(
            _string(value["prompt"], "prompt", where),
            _text(value["answer"], "answer", where),
            join=_join(value.get("join", " "), where),
            line=line,
            wrong_answers=_texts(value.get("wrong_answers", []), "wrong_answers", where),
            group=group,
        )
    found = ", ".join(printable(key) for key in sorted(keys)) or "nothing"
    raise InputError(f"{where}: an example has either prompt and answer, or text; found {found}")


def parse_request(value: Any, where: str) -> Request:
    """Check one request and return it."""
    if not isinstance(value, dict):
        raise InputError(f"{where}: a request must be an object, not {_kind(value)}")
    unknown = sorted(set(value) - {"id", "examples"})
    if unknown:
        raise InputError(f"{where}: unknown field {unknown[0]!r}; a request has id and examples")
    identifier = value.get("id")
    if not isinstance(identifier, str) or not identifier.strip():
        raise InputError(f"{where}: a request needs an id, a non-empty text")
    _refuse_unprintable(identifier, "id", where)
    examples = value.get("examples")
    if not isinstance(examples, list):
        raise InputError(f"{where}: examples must be a list, not {_kind(examples)}")
    if not examples:
        raise InputError(f"{where}: the request has no examples")
    return Request(
        identifier,
        tuple(
            parse_example(example, f"{where}, example {number}")
            for number, example in enumerate(examples, start=1)
        ),
    )


def check_request(request: Request) -> None:
    """Raise if a request that was made in Python is none that a file may hold."""
    parse_request(request.to_dict(), f"request {request.id!r}")


def read_requests(path: str | Path) -> list[Request]:
    """Read a stream: one request per line, with distinct ids."""
    requests: list[Request] = []
    lines: dict[str, int] = {}
    for number, value in json_lines(Path(path)):
        request = parse_request(value, f"{path}:{number}")
        if request.id in lines:
            raise InputError(
                f"{path}:{number}: request id {request.id!r} is used on line {lines[request.id]} "
                "already"
            )
        lines[request.id] = number
        requests.append(request)
    if not requests:
        raise InputError(f"{path} contains no request")
    return requests


def read_one_request(path: str | Path) -> Request:
    """Read a file that holds a single request."""
    requests = read_requests(path)
    if len(requests) > 1:
        raise InputError(
            f"{path} holds {len(requests)} requests; apply a stream with 'tfrnet run --stream'"
        )
    return requests[0]


def read_examples(path: str | Path) -> list[Example]:
    """Read retain, guard or hold-out data: one example per line."""
    examples = [
        parse_example(value, f"{path}:{number}", line=number)
        for number, value in json_lines(Path(path))
    ]
    if not examples:
        raise InputError(f"{path} contains no example")
    _refuse_two_groups(examples, path)
    return examples


def refuse_overlap(requests: Sequence[Request], kept: Sequence[Example], label: str) -> None:
    """Raise, naming the lines, if an example to forget is also in the data to keep."""
    lines: dict[str, list[int]] = {}
    for number, example in enumerate(kept, start=1):
        lines.setdefault(_words(example), []).append(example.line or number)
    for request in requests:
        clashes = sorted(
            {n for example in request.examples for n in lines.get(_words(example), ())}
        )
        if clashes:
            raise InputError(
                f"{label} overlaps request {request.id!r}: the same example is on "
                f"{_lines(clashes)} of the {label}; remove it"
            )


def refuse_shared(
    holdout: Sequence[Example], used: Sequence[Example], holdout_label: str, label: str
) -> None:
    """Raise, naming the lines, if an example that must stay unused is also in data that is used."""
    known = {_words(example) for example in used}
    clashes = [
        example.line or number
        for number, example in enumerate(holdout, start=1)
        if _words(example) in known
    ]
    if clashes:
        raise InputError(
            f"{holdout_label} overlaps {label}: {_lines(clashes)} of the {holdout_label} "
            f"{'are' if len(clashes) > 1 else 'is'} in the {label} too; remove "
            f"{'them' if len(clashes) > 1 else 'it'} from one of the two"
        )


def places_apart(examples: Sequence[Example], others: Sequence[Example]) -> list[int]:
    """Return the places of the examples that do not say the same as one of the others."""
    known = {_words(example) for example in others}
    return [place for place, example in enumerate(examples) if _words(example) not in known]


def _refuse_two_groups(examples: Sequence[Example], path: str | Path) -> None:
    known: dict[Example, Example] = {}
    for example in examples:
        first = known.setdefault(example, example)
        if first.group != example.group:
            raise InputError(
                f"{path}:{example.line}: the same example is on line {first.line} with another "
                "group; remove one of the two"
            )


def _refuse_unprintable(name: str, what: str, where: str) -> None:
    """Raise if a name that is shown and kept is too long, or does not show as what it is."""
    if not is_printable(name):
        raise InputError(
            f"{where}: the {what} {name[:MAX_ID_LENGTH]!r} has characters that cannot be "
            "printed; leave out control characters, line ends and halves of surrogate pairs"
        )
    if len(name) > MAX_ID_LENGTH:
        raise InputError(f"{where}: the {what} is longer than {MAX_ID_LENGTH} characters")


def _lines(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")
    return f"line{'s' if len(numbers) > 1 else ''} {shown}"


def _words(example: Example) -> str:
    """Return an example's text without the differences that do not count: its split and spaces."""
    return " ".join(example.joined.split())


def _string(value: Any, name: str, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where}: {name} must be text, not {_kind(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{where}: {name} contains half of a surrogate pair, which is not valid text"
        ) from None
    return value


def _join(value: Any, where: str) -> str:
    if value not in ("", " "):
        raise InputError(
            f'{where}: join must be "" (the answer follows without a space) or " ", not {value!r}'
        )
    return str(value)


def _group(value: Any, where: str) -> str:
    name = _text(value, "group", where)
    _refuse_unprintable(name, "group", where)
    return name


def _text(value: Any, name: str, where: str) -> str:
    text = _string(value, name, where)
    if not text.strip():
        raise InputError(f"{where}: {name} is empty")
    return text


def _texts(values: Any, name: str, where: str) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise InputError(f"{where}: {name} must be a list, not {_kind(values)}")
    return tuple(_text(value, f"{name} {n}", where) for n, value in enumerate(values, start=1))


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    if value is None:
        return "nothing"
    return names.get(type(value), "a number")
