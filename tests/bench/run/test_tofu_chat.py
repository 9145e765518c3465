"""TOFU's smaller forget sets, asked in the model's own chat form."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.bench.run.setting import bench, make_machine, make_plan
from tests.datasets import needs_real, real_source
from tfrnet.data.tofu import tofu_prompt
from tfrnet.models.shipped import BACKBONES
from tfrnet_bench.commands import bench as command
from tfrnet_bench.run.plan import BenchPlan, TofuSizes
from tfrnet_bench.run.preflight import check_everything
from tfrnet_bench.run.tofu_stream import make_tofu_stream

CHAT = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>\n{% endif %}"
)
SIZES = TofuSizes(requests=1, retain=6, guard=2, rows=3, new_tokens=4, forget="05", template="chat")


@pytest.fixture
def chat_folder(tiny_folder: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "chat"
    shutil.copytree(tiny_folder, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("template", ["qa", "chat"])
def test_each_form_has_models_that_were_trained_in_it(template: str):
    tofu = {"forget": "05", "template": template}
    plan = command._plan(["tofu"], False, {"tofu_model": "", "oracle": ""}, tofu)
    assert plan.models() == list(plan.tofu.models)
    assert set(plan.models()) <= set(BACKBONES)
    assert all(("-chat-" in name) == (template == "chat") for name in plan.models())
    plan = command._plan(["tofu"], False, {"tofu_model": "mine", "oracle": "rest"}, tofu)
    assert plan.models() == ["mine", "rest"]
    usual = BenchPlan(("tofu",))
    assert (usual.tofu_model, usual.oracle) == usual.tofu.models


def test_requests_and_kept_examples_are_in_the_chat_form(tmp_path: Path, chat_folder: Path):
    source = make_machine(tmp_path).source
    stream = make_tofu_stream(source, SIZES)
    tokenizer = AutoTokenizer.from_pretrained(chat_folder)
    (request,) = stream.requests(0, tokenizer)
    assert len(request.examples) == 10  # all that the made-up forget05 has
    row = stream.authors[0][0]
    expected = f"<system>You are a helpful assistant.</><user>{row.question}</><assistant>\n"
    assert request.examples[0].prompt == expected == tofu_prompt(row.question, tokenizer, "chat")
    retain, guard = stream.retain(0, tokenizer)
    assert all(example.prompt.endswith("<assistant>\n") for example in (*retain, *guard))
    forgotten = {example.prompt for example in request.examples}
    assert not forgotten & {example.prompt for example in (*retain, *guard)}


@needs_real
@pytest.mark.parametrize("count", [10, 25, 60])
def test_few_rows_are_of_all_authors(count: int):
    sizes = TofuSizes(rows=count).on("05", "chat")
    stream = make_tofu_stream(real_source(), sizes)
    shown = {row.question for row in stream.sets["forget"]}
    assert len(stream.sets["forget"]) == len(shown) == count
    of_author = [sum(row.question in shown for row in author) for author in stream.authors]
    assert len(of_author) == 10
    assert max(of_author) - min(of_author) <= 1
    # Not always the same question of each.
    places = [[row.question in shown for row in author] for author in stream.authors]
    assert len({tuple(each) for each in places}) > 1
    assert len(stream.members) == len(stream.non_members) == count


@pytest.mark.slow
def test_a_cell_says_which_set_and_form_it_is_of(tmp_path: Path, chat_folder: Path):
    machine = make_machine(tmp_path)
    plan = make_plan(chat_folder, experiments=("tofu",), methods=("ga",), tofu=SIZES)
    check_everything(plan, machine.source)
    tally, _ = bench(plan, machine, tmp_path / "out")
    assert not tally.failed
    cell = json.loads((tmp_path / "out/cells/tofu/tofu/ga/0/result.json").read_text())
    assert (cell["protocol"]["forget"], cell["protocol"]["template"]) == ("05", "chat")
    assert set(cell["tofu"]["truth_ratio_forms"]) == {"geometric", "arithmetic"}
    samples = (tmp_path / "out/cells/tofu/tofu/ga/0/samples.jsonl").read_text()
    assert "tofu/forget05_perturbed/" in samples
