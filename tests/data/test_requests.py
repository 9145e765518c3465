import gzip
import json
from importlib.resources import files

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from referencing import Registry, Resource

from tfrnet.core.errors import InputError
from tfrnet.data import jsonlines
from tfrnet.data.examples import Example
from tfrnet.data.requests import (
    Request,
    parse_request,
    read_examples,
    read_one_request,
    read_requests,
    refuse_overlap,
)
from tfrnet.state.digests import example_digest

GOOD = {"id": "r1", "examples": [{"prompt": "A", "answer": "B"}, {"text": "C d"}]}


def write(path, *rows):
    path.write_text(
        "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    )
    return path


def test_a_good_stream_is_read_in_order(tmp_path):
    path = write(tmp_path / "s.jsonl", GOOD, "", GOOD | {"id": "r2"})
    first, second = read_requests(path)
    assert (first.id, second.id) == ("r1", "r2")
    assert first.examples == (Example("A", "B"), Example("", "C d", is_text=True))
    assert first.to_dict() == GOOD


BAD = [
    ({"id": "r", "examples": []}, "has no examples"),
    ({"id": "r"}, "examples must be a list, not nothing"),
    ({"id": "", "examples": [{"text": "x"}]}, "needs an id"),
    ({"id": 3, "examples": [{"text": "x"}]}, "needs an id"),
    ({"id": "r" * 201, "examples": [{"text": "x"}]}, "longer than 200"),
    ({"id": "r", "examples": [{"text": "x"}], "note": 1}, "unknown field 'note'"),
    ({"id": "r", "examples": [{"prompt": "x", "answer": ""}]}, "example 1: answer is empty"),
    ({"id": "r", "examples": [{"prompt": "x", "answer": " \n"}]}, "answer is empty"),
    ({"id": "r", "examples": [{"text": "x"}, {"text": 4}]}, "example 2: text must be text"),
    ({"id": "r", "examples": [{"prompt": "x"}]}, "either prompt and answer, or text"),
    ({"id": "r", "examples": [{"prompt": 1, "answer": "x"}]}, "prompt must be text"),
    ({"id": "r", "examples": ["x"]}, "an example must be an object"),
    ([1], "a request must be an object, not a list"),
    ('{"id": "r", "examples": [{"text": "a \\ud800"}]}', "half of a surrogate pair"),
    (
        {"id": "a\x1b]0;title\x07", "examples": [{"text": "x"}]},
        r"the id 'a\\x1b.* cannot be printed",
    ),
    ({"id": "a\n2026 accepted b", "examples": [{"text": "x"}]}, "cannot be printed"),
    ({"id": "a\u202eb", "examples": [{"text": "x"}]}, "cannot be printed"),
    ('{"id": "bad\\ud800id", "examples": [{"text": "x"}]}', "cannot be printed"),
    ({"id": "r", "examples": [{"pr\x1b[2Jompt": "x"}]}, r"found pr\\x1b\[2Jompt"),
    (
        '{"id": "r", "examples": [{"text": "x"}], "examples": [{"text": "y"}]}',
        "'examples' appears twice",
    ),
    ('{"id": "r", "examples": [{"text": "x", "text": "y"}]}', "'text' appears twice"),
    ("[" * 100_000, "nested too deeply"),
    ('{"a":' * 100_000, "nested too deeply"),
    ('{"id": ' + "7" * 400 + "}", "a number has 400 digits"),
    ('{"id": ' + "7" * 5000 + "}", "a number has 5000 digits"),
    ("{not json", "not JSON"),
    ('{"id": NaN}', "not JSON"),
]


@pytest.mark.parametrize(("row", "message"), BAD)
def test_bad_requests_are_refused_with_file_and_line(tmp_path, row, message):
    path = write(tmp_path / "s.jsonl", GOOD, row)
    with pytest.raises(InputError, match=message) as caught:
        read_requests(path)
    assert str(caught.value).startswith(f"{path}:2")


BAD_EXAMPLES = [
    ({"prompt": "x", "answer": ""}, "answer is empty"),
    ({"prompt": "x", "answer": " \n"}, "answer is empty"),
    ({"prompt": "x", "answer": ["y"]}, "answer must be text, not a list"),
    ({"prompt": 1, "answer": "x"}, "prompt must be text, not a number"),
    ({"prompt": None, "answer": "x"}, "prompt must be text, not nothing"),
    ({"text": 4}, "text must be text"),
    ({"text": " "}, "text is empty"),
    ({}, "either prompt and answer, or text; found nothing"),
    ({"prompt": "x"}, "either prompt and answer, or text; found prompt"),
    ({"prompt": "x", "answer": "y", "text": "z"}, "found answer, prompt, text"),
    ({"prompt": "x", "answer": "y", "note": 1}, "found answer, note, prompt"),
    ({"pr\x1b[2Jompt": "x"}, r"found pr\\x1b\[2Jompt"),
    ({"prompt": "x", "answer": "y", "join": ", "}, 'join must be ""'),
    ({"prompt": "x", "answer": "y", "wrong_answers": "z"}, "wrong_answers must be a list"),
    ({"prompt": "x", "answer": "y", "wrong_answers": ["z", ""]}, "wrong_answers 2 is empty"),
    ({"text": "x", "group": 3}, "group must be text, not a number"),
    ({"text": "x", "group": None}, "group must be text, not nothing"),
    ({"text": "x", "group": ["a"]}, "group must be text, not a list"),
    ({"prompt": "x", "answer": "y", "group": ""}, "group is empty"),
    ({"prompt": "x", "answer": "y", "group": " "}, "group is empty"),
    ({"text": "y", "group": "a\x1b[2J"}, r"the group 'a\\x1b\[2J' has characters that cannot be"),
    ({"text": "y", "group": "a" * 201}, "the group is longer than 200 characters"),
    ({"group": "a"}, "either prompt and answer, or text; found group"),
    ({"text": "x", "group": "a"}, "the same example is on line 1 with another group"),
    (GOOD, "either prompt and answer, or text; found examples, id"),
    ('"x"', "an example must be an object, not text"),
    ("[1]", "an example must be an object, not a list"),
    ("null", "an example must be an object, not nothing"),
    ('{"text": "a \\ud800"}', "half of a surrogate pair"),
    ('{"text": "x", "text": "y"}', "'text' appears twice"),
    ('{"prompt": "x", "answer": "y", "answer": "z"}', "'answer' appears twice"),
    ("[" * 100_000, "nested too deeply"),
    ('{"text": ' + "7" * 400 + "}", "a number has 400 digits"),
    ("{not json", "not JSON"),
    ('{"text": NaN}', "not JSON"),
]


@pytest.mark.parametrize(("row", "message"), BAD_EXAMPLES)
def test_retain_and_guard_data_are_read_as_strictly(tmp_path, row, message):
    path = write(tmp_path / "retain.jsonl", {"text": "x"}, row)
    with pytest.raises(InputError, match=message) as caught:
        read_examples(path)
    assert str(caught.value).startswith(f"{path}:2")


def test_ids_in_any_script_are_fine(tmp_path):
    for name in ("ticket 10/41", "пример", "請求 7", "naïve 🙂"):
        assert parse_request(GOOD | {"id": name}, "here").id == name


def test_a_line_over_the_limit_is_refused_by_its_number(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonlines, "MAX_LINE_CHARACTERS", 100)
    path = write(tmp_path / "s.jsonl", GOOD, GOOD | {"id": "r2" * 50})
    with pytest.raises(
        InputError, match=r"s\.jsonl:2: the line has \d+ characters, over the limit"
    ):
        read_requests(path)


@pytest.mark.parametrize("name", ["s.jsonl", "s.jsonl.gz"])
def test_a_file_over_the_limit_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch, name):
    monkeypatch.setattr(jsonlines, "MAX_FILE_BYTES", 1 << 20)
    content = b"\n" * (8 << 20)  # packed, it is small
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(InputError, match="is larger than 1 MiB"):
        read_requests(path)


def test_bytes_that_are_no_text_are_named_by_their_line(tmp_path):
    (tmp_path / "s.jsonl").write_bytes(json.dumps(GOOD).encode() + b"\n\xff\n")
    with pytest.raises(InputError, match=r"s\.jsonl:2: not UTF-8"):
        read_requests(tmp_path / "s.jsonl")


def schema_validator(of="request"):
    folder = files("tfrnet.data") / "schema"
    schemas = {
        name: json.loads((folder / f"{name}.schema.json").read_text())
        for name in ("request", "example")
    }
    registry = Registry().with_resources(
        [(s["$id"], Resource.from_contents(s)) for s in schemas.values()]
    )
    return jsonschema.Draft202012Validator(schemas[of], registry=registry)


words = st.text("ab \n\u00a0\x1b\u202e\u2028é", max_size=3)
anything = st.none() | st.booleans() | st.integers() | words
an_example = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("prompt", "answer", "text", "group"), anything)
    | {"wrong_answers": st.lists(anything) | anything},
)
# Right, or nearly: so that enough is taken too.
fine = st.sampled_from(["a", "b é", "a\x1b"])
nearly = st.sampled_from(["a", "", " ", "\u00a0", 3, None])
a_fine_example = st.fixed_dictionaries(
    {"prompt": fine, "answer": fine},
    optional={
        "join": st.sampled_from(["", " "]),
        "wrong_answers": st.lists(fine),
        "group": st.sampled_from(["a", "b é"]),
    },
) | st.fixed_dictionaries({"text": fine}, optional={"group": st.just("a b")})
a_near_example = st.fixed_dictionaries(
    {"prompt": fine, "answer": nearly},
    optional={"join": st.sampled_from([" ", ", ", 1]), "wrong_answers": st.lists(nearly)},
) | st.fixed_dictionaries({"text": nearly}, optional={"note": nearly, "group": fine | nearly})
a_request = st.fixed_dictionaries(
    {}, optional={"id": anything, "examples": st.lists(an_example | anything) | anything}
)


@settings(derandomize=True, deadline=None)
@given(a_request)
def test_the_published_schema_and_the_reader_agree(value):
    try:
        parse_request(value, "here")
        accepted = True
    except InputError:
        accepted = False
    assert accepted == schema_validator().is_valid(value)


def test_the_published_schema_and_the_reader_of_retain_and_guard_data_agree(tmp_path):
    validator, taken = schema_validator("example"), []

    @settings(derandomize=True, deadline=None)
    @given(a_fine_example | a_near_example | an_example | anything)
    def agree(value):
        try:
            (read,) = read_examples(write(tmp_path / "retain.jsonl", json.dumps(value)))
        except InputError as error:
            assert str(error).startswith(f"{tmp_path / 'retain.jsonl'}:1: ")
            read = None
        assert (read is not None) == validator.is_valid(value)
        taken.append(read is not None)

    agree()
    assert min(taken.count(True), taken.count(False)) > 15  # neither side goes untried


@pytest.mark.parametrize("row", [GOOD, *(row for row, _ in BAD if not isinstance(row, str))])
def test_schema_and_reader_agree_on_the_listed_cases(row):
    try:
        parse_request(row, "here")
        accepted = True
    except InputError:
        accepted = False
    assert accepted == schema_validator().is_valid(row)


def test_every_field_is_described_once_in_the_schemas():
    described = []
    for path in (files("tfrnet.data") / "schema").iterdir():
        rules = []
        json.loads(path.read_text(), object_hook=lambda rule, rules=rules: rules.append(rule))
        described += [rule["description"] for rule in rules if "description" in rule]
    assert len(described) > 5
    assert len(described) == len(set(described))


def test_duplicate_ids_in_one_file_are_refused(tmp_path):
    path = write(tmp_path / "s.jsonl", GOOD, GOOD)
    with pytest.raises(InputError, match="'r1' is used on line 1 already"):
        read_requests(path)


def test_one_request_means_one(tmp_path):
    path = write(tmp_path / "s.jsonl", GOOD, GOOD | {"id": "r2"})
    with pytest.raises(InputError, match="2 requests; apply a stream with 'tfrnet run"):
        read_one_request(path)


@pytest.mark.parametrize("reader", [read_requests, read_examples])
def test_missing_empty_and_binary_files(tmp_path, reader):
    with pytest.raises(InputError, match="does not exist"):
        reader(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="is a folder"):
        reader(tmp_path)
    with pytest.raises(InputError, match="contains no"):
        reader(write(tmp_path / "empty.jsonl", "", "  "))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        reader(tmp_path / "binary")


def test_overlap_names_the_lines_whatever_the_spacing(tmp_path):
    path = write(
        tmp_path / "retain.jsonl",
        {"prompt": "Sky is", "answer": "blue"},
        "",
        {"text": "Grass  is green"},
        {"prompt": "Grass", "answer": "is green"},
    )
    request = Request("r", (Example("Grass is", "green"),))
    with pytest.raises(InputError, match=r"request 'r'.* lines 3, 4 of the retain data"):
        refuse_overlap([request], read_examples(path), "retain data")


def test_no_overlap_passes():
    refuse_overlap([Request("r", (Example("a", "b"),))], [Example("a", "c")], "retain data")


@pytest.mark.parametrize("indent", [1, 4])
def test_one_request_over_several_lines_is_read(tmp_path, indent):
    request = {"id": "a", "examples": [{"prompt": "p", "answer": "b"}, {"text": "c"}]}
    path = tmp_path / "request.json"
    path.write_text("\n" + json.dumps(request, indent=indent) + "\n")
    assert read_one_request(path).to_dict() == request


def test_several_requests_over_several_lines_are_refused_with_what_to_do(tmp_path):
    path = tmp_path / "requests.jsonl"
    request = {"id": "a", "examples": [{"text": "c"}]}
    path.write_text(json.dumps(request, indent=1) + "\n" + json.dumps(request, indent=1))
    with pytest.raises(InputError, match=r":1: not JSON .*; each line is one whole JSON object"):
        read_requests(path)
    path.write_text(json.dumps(request) + "\n" + json.dumps(request, indent=1))
    with pytest.raises(InputError, match=r":2: not JSON .*; each line is one whole JSON object"):
        read_requests(path)


def test_an_answer_may_follow_without_a_space(tmp_path):
    value = {"prompt": "Her number is 555-", "answer": "0199", "join": ""}
    path = tmp_path / "retain.jsonl"
    path.write_text(json.dumps(value) + "\n" + json.dumps(value | {"join": " "}) + "\n")
    close, apart = read_examples(path)
    assert (close.joined, apart.joined) == ("Her number is 555-0199", "Her number is 555- 0199")
    assert close.to_dict() == value
    # A space is the default, so the digests of such examples stay what they were.
    assert apart.to_dict() == {"prompt": "Her number is 555-", "answer": "0199"}
    path.write_text(json.dumps(value | {"join": ", "}) + "\n")
    with pytest.raises(InputError, match=r':1: join must be "" .* or " ", not \', \''):
        read_examples(path)


def test_an_example_may_name_its_group(tmp_path):
    rows = [
        {"prompt": "p", "answer": "a", "group": "contracts"},
        {"text": "A passage.", "group": "contracts"},
        {"text": "Another."},
    ]
    first, second, third = read_examples(write(tmp_path / "guard.jsonl", *rows))
    assert [first.group, second.group, third.group] == ["contracts", "contracts", ""]
    assert [each.to_dict() for each in (first, second, third)] == rows
    # What an example says is the same in any group.
    assert first == Example("p", "a")
    assert first.words() == Example("p", "a").words()
    assert example_digest(second, b"key") == example_digest(
        Example("", "A passage.", is_text=True), b"key"
    )


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode())
    assert read_requests(path) == [parse_request(GOOD, "x")]
