"""The scale benchmark on a model of no size: its counts, its file, and that it goes on."""

import functools
import gc
import json
from functools import cache

import pytest
import torch

from benchmarks import scale, scale_document, scale_plot
from benchmarks.scale_card import only_left
from benchmarks.scale_case import ALL_CHANNELS, VARIANTS, Bench, Case, measure_case, settings
from benchmarks.scale_count import counted, forward_operations, optimiser_bytes, scoring_operations
from benchmarks.scale_growth import measure_growth, summary
from benchmarks.scale_rates import Rates
from benchmarks.scale_results import OUT_OF_MEMORY, Results, targets
from benchmarks.scale_shapes import SHAPES, Sizes, Writer, build_model, build_tokenizer
from tfrnet.core.errors import InputError
from tfrnet.data.examples import encode
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask
from tfrnet.methods.tfr.scoring import ScoreOptions, score_channels
from tfrnet.models.forward import answer_losses, collate
from tfrnet_bench.document import stale_tables
from tfrnet_bench.run.provenance import code_commit

CPU = torch.device("cpu")
LENGTH = 40
FORGET, RETAIN, GUARD = 2, 3, 3
RATES = Rates(matrix=1e9, bandwidth=1e9)


@pytest.fixture
def model():
    return build_model("tiny", CPU)


@cache
def record_of(method: str) -> dict:
    """Return the record of a small case, measured once; the model must come out as it went in."""
    model = build_model("tiny", CPU)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    bench = Bench(model, RATES, repeats=2, sizes=Sizes(FORGET, RETAIN, GUARD))
    record = measure_case(Case("tiny", method, LENGTH, batch_size=None), bench)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    return record


@pytest.fixture
def quick(monkeypatch):
    """Measure no rates, and cases by a stand-in that keeps a list of them."""
    ran: list[Case] = []

    def measured(case: Case, bench: Bench) -> dict:
        ran.append(case)
        return made_up(case)

    monkeypatch.setattr(scale, "build_model", lambda shape, device: None)
    monkeypatch.setattr(scale, "measure_rates", lambda device: (RATES, []))
    monkeypatch.setattr(scale, "measure_case", measured)
    return ran


def made_up(case: Case) -> dict:
    size = SHAPES[case.shape]["hidden_size"]
    record = {
        "seconds": size * case.length / 1e5,
        "own_seconds": size * case.length / 2e5,
        "floor": {"seconds": size * case.length / 4e5},
        "share_of_rate": 0.25,
        "peak_bytes": 10**9,
        "peak_over_weights": 1.5,
        "state_bytes": 10**6,
        "gradient_steps": 0,
        "channels": size * len(case.channels),
        "passes": {"tokens": None},
    }
    scoring = {"scoring": {"needed_share_of_rate": 0.5}}
    return record | (scoring if case.method.startswith("tfr") else {})


def arguments(path, *more: str) -> list[str]:
    return ["--json", str(path), "--shapes", "tiny", "--device", "cpu", *more]


def test_examples_have_the_asked_number_of_tokens():
    tokenizer = build_tokenizer("tiny")
    examples = Writer("tiny", LENGTH).examples(300)
    encoded = [encode(example, tokenizer, LENGTH) for example in examples]
    assert {(len(e.ids), e.answer_length, e.cut) for e in encoded} == {(LENGTH, 20, 0)}
    assert len({e.ids for e in encoded}) == 300
    assert max(max(e.ids) for e in encoded) < SHAPES["tiny"]["vocab_size"]


def test_a_forward_pass_has_the_operations_of_a_hand_computation(model):
    tokenizer, length, batch = build_tokenizer("tiny"), LENGTH - 1, 3
    encoded = [encode(e, tokenizer, LENGTH) for e in Writer("tiny", LENGTH).examples(batch)]
    with counted() as work, torch.no_grad():
        answer_losses(model, collate(encoded, CPU))
    # Query and output 32 x 32, key and value 32 x 16; gate, up and down 32 x 48; 2 layers.
    layer = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48
    linear = 2 * batch * length * 2 * layer + 2 * batch * 20 * 32 * 320
    # Two products of 4 heads of 8 for every pair of tokens below the diagonal or on it.
    attention = 2 * batch * 4 * (2 * 2 * 8) * (length * (length + 1) // 2)
    assert work.operations == pytest.approx(linear + attention, rel=0.01)
    told = forward_operations(model.config, batch * length, batch * 20, length)
    assert told == (linear, attention)
    # All weights once, the embeddings as those of the head; float32.
    norms = 5 * 32
    once = 4 * (2 * layer + norms + 32 * 320)
    assert work.weight_bytes == once
    with counted() as work:
        answer_losses(model, collate(encoded, CPU)).sum().backward()
    assert work.weight_bytes == 2 * once


@pytest.mark.parametrize(
    "method",
    [
        "tfr-paper",
        "ga",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("tfr", "ga-lora")),
    ],
)
def test_a_record_agrees_with_itself(method):
    record = record_of(method)
    floor = record["floor"]
    assert floor["operations"] == pytest.approx(record["operations"] / RATES.matrix)
    assert floor["bytes"] == pytest.approx(record["moved_bytes"] / RATES.bandwidth)
    assert floor["seconds"] == max(floor["operations"], floor["bytes"])
    assert record["share_of_rate"] == pytest.approx(
        record["operations"] / record["seconds"] / RATES.matrix
    )
    assert record["weight_bytes"] == 4 * (15360 + 5 * 32 + 32 * 320)
    assert 0 < record["own_seconds"] < record["seconds"]
    assert record["settings"]["max_length"] == LENGTH
    assert record["passes"]["examples"] > 0
    assert json.loads(json.dumps(record)) == record


@pytest.mark.slow
def test_compiled_layers_do_the_same_work(monkeypatch):
    quick = functools.partialmethod(ChannelMask.compiled, "aot_eager")
    monkeypatch.setattr(ChannelMask, "compiled", quick)
    plain, compiled = record_of("tfr-paper"), record_of("tfr-paper-compiled")
    assert compiled["passes"]["compiled"] and not plain["passes"]["compiled"]
    for of in (lambda record: record, lambda record: record["scoring"]):
        assert of(compiled)["operations"] == of(plain)["operations"]
        assert of(compiled)["seconds"] > 0


def test_scoring_is_a_forward_and_a_backward_pass(model):
    record = record_of("tfr-paper")
    scoring = record["scoring"]
    # Nothing is computed twice.
    assert scoring["operations"] == scoring["needed_operations"]
    inputs = (FORGET + RETAIN) * 39
    asked = scoring_operations(model.config, inputs, (FORGET + RETAIN) * 20, 39)
    # The first layer's inputs alone need no gradient.
    assert 0.9 < scoring["operations"] / asked < 1
    assert scoring["operations"] < record["operations"]
    assert scoring["share_of_rate"] == pytest.approx(
        scoring["operations"] / scoring["seconds"] / RATES.matrix
    )
    assert record["channels"] == 2 * (32 + 16 + 16 + 32 + 48 + 48 + 32)
    assert record["state_bytes"] == 6 * 4 * record["channels"]
    assert record["gradient_steps"] == 0


def test_fewer_channels_are_those_named(model):
    config = settings(Case("tiny", "tfr-paper", LENGTH, "q_proj+v_proj"), Bench(model, RATES))
    assert find_channels(model, config.target_modules).total == 2 * (32 + 16)


def test_a_small_model_has_the_layer_that_a_method_asks_for(model):
    rmu = settings(Case("tiny", "rmu-lora", LENGTH), Bench(model, RATES))
    assert (rmu.layer, rmu.trained, rmu.steps) == (1, "lora", 8)


def test_training_counts_every_pass_of_every_step(model):
    record = record_of("ga")
    # A random model's loss is above GA's own ceiling, which would leave no step to measure.
    assert record["gradient_steps"] == 5
    assert record["trained_parameters"] == record["weight_bytes"] / 4
    # The forget loss before and after, the guard after; the end of the text is not trained.
    measured = 2 * FORGET + GUARD
    seen = forward_operations(model.config, measured * 39, measured * 20, 39)
    linear, attention = forward_operations(model.config, FORGET * 39, FORGET * 20, 39)
    expected = sum(seen) + 5 * (3 * linear + 3.5 * attention)
    assert record["operations"] == pytest.approx(expected, rel=0.01)


@pytest.mark.slow
def test_an_adapter_is_small_and_moves_less():
    lora = record_of("ga-lora")
    assert lora["gradient_steps"] == 5
    assert lora["trained_parameters"] == 2 * 8 * (64 + 48 + 48 + 64 + 80 + 80 + 80)
    assert lora["moved_bytes"] < record_of("ga")["moved_bytes"]


def test_the_optimiser_moves_gradient_moments_and_both_copies():
    whole = torch.nn.Parameter(torch.zeros(10))
    half = torch.nn.Parameter(torch.zeros(10, dtype=torch.bfloat16))
    assert optimiser_bytes([whole], 3) == 3 * 10 * (2 * 4 + 6 * 4)
    assert optimiser_bytes([half], 1) == 10 * (2 * 2 + 6 * 4 + 2)


def test_the_plan_has_every_method_once_then_lengths_and_channels():
    cases = scale.plan(["135m", "7b"], list(VARIANTS), [128, 256], 8)
    assert len(cases) == len(set(cases)) == 2 * (len(VARIANTS) + 1 + 2)
    assert {case.channels for case in cases} == {ALL_CHANNELS, "down_proj", "q_proj+v_proj"}
    few = scale.plan(["135m", "7b"], list(VARIANTS), [128, 256], 8, [ALL_CHANNELS])
    assert {case for case in cases if case.channels == ALL_CHANNELS} == set(few)
    assert [case.shape for case in cases] == sorted((c.shape for c in cases), key=len, reverse=True)


def test_a_finished_case_is_not_run_again(quick, tmp_path, capsys):
    path = tmp_path / "scale.json"
    assert scale.main(arguments(path, "--methods", "ga,simnpo")) == 0
    assert [case.method for case in quick] == ["ga", "simnpo"]
    assert scale.main(arguments(path, "--methods", "ga,asu")) == 0
    assert [case.method for case in quick] == ["ga", "simnpo", "asu"]
    document = json.loads(path.read_text())
    assert [record["case"]["method"] for record in document["cases"]] == ["ga", "simnpo", "asu"]
    assert document["machine"]["versions"]["torch"] == torch.__version__
    assert "asu" in capsys.readouterr().out
    scale.main(arguments(path, "--methods", "ga", "--batch-size", "4"))
    assert [case.batch_size for case in quick] == [8, 8, 8, 4]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("no"),
        InputError("one example alone does not fit into the device's memory"),
    ],
    ids=type,
)
def test_a_case_without_memory_is_recorded_and_the_next_goes_on(
    quick, tmp_path, monkeypatch, error
):
    path = tmp_path / "scale.json"
    measured = scale.measure_case

    def full(case: Case, bench: Bench) -> dict:
        if case.method == "ga":
            raise error
        return measured(case, bench)

    monkeypatch.setattr(scale, "measure_case", full)
    assert scale.main(arguments(path, "--methods", "ga,asu")) == 0
    first, second = json.loads(path.read_text())["cases"]
    assert first.pop("commit") == second["commit"] == code_commit()
    assert first == {"case": Case("tiny", "ga", 256).to_dict(), "error": OUT_OF_MEMORY}
    assert second["case"]["method"] == "asu"
    assert "error" not in second
    scale.main(arguments(path, "--methods", "ga,asu"))
    assert len(quick) == 1


def test_another_error_is_recorded_and_tried_again(quick, tmp_path, monkeypatch):
    path = tmp_path / "scale.json"
    with monkeypatch.context() as broken:
        broken.setattr(scale, "measure_case", lambda case, bench: 1 / 0)
        assert scale.main(arguments(path, "--methods", "ga")) == 1
    assert "ZeroDivisionError" in json.loads(path.read_text())["cases"][0]["error"]
    assert scale.main(arguments(path, "--methods", "ga")) == 0
    (record,) = json.loads(path.read_text())["cases"]
    assert "error" not in record


def test_no_case_begins_when_the_time_is_over(quick, tmp_path, capsys):
    scale.main(arguments(tmp_path / "scale.json", "--minutes", "0"))
    assert quick == []
    assert "cases are left" in capsys.readouterr().out


def test_a_file_of_another_machine_is_refused(quick, tmp_path):
    path = tmp_path / "scale.json"
    path.write_text(json.dumps({"machine": {"device": "an abacus"}}))
    with pytest.raises(SystemExit, match="abacus"):
        scale.main(arguments(path))


@pytest.mark.slow
def test_growth_has_a_record_of_every_request(tmp_path, capsys):
    path = tmp_path / "scale.json"
    more = ["--growth", "5", "--growth-shape", "tiny"]
    assert scale.main(arguments(path, *more)) == 0
    (stream,) = json.loads(path.read_text())["growth"]
    assert {len(values) for values in stream["requests"].values()} == {5}
    assert all(stream["requests"]["accepted"])
    assert len(set(stream["requests"]["generation_bytes"][1:])) == 1
    ledger = stream["requests"]["ledger_bytes"]
    assert ledger == sorted(set(ledger))
    assert all(f > g for f, g in zip(stream["requests"]["folder_bytes"], ledger, strict=True))
    assert scale.main(arguments(path, *more)) == 0
    assert "already" in capsys.readouterr().out
    assert scale.main(arguments(path, *more, "--growth-preset", "default")) == 0
    assert "already" not in capsys.readouterr().out
    streams = json.loads(path.read_text())["growth"]
    assert [(s["preset"], s["settings"]["step"]) for s in streams] == [
        ("paper", "select"),
        ("default", "calibrate"),
    ]


def test_results_of_a_smaller_card_have_a_file_of_their_own(tmp_path):
    whole = {"device": "a card"}
    path = tmp_path / "scale.json"
    Results(path, whole).save()
    Results(path, whole | {"versions": "later"})
    for other in (whole | {"left_bytes": 10}, {"device": "another"}):
        with pytest.raises(SystemExit, match="give another file"):
            Results(path, other)


@pytest.mark.slow
def test_without_a_gpu_nothing_of_it_can_be_held():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit, match="is there a GPU"), only_left(1, CPU):
        pass


def live_bytes() -> int:
    """Return the bytes of all tensors that Python knows of."""
    gc.collect()
    # Nothing of another class: the compiler leaves tensors without numbers behind.
    return sum(thing.nbytes for thing in gc.get_objects() if type(thing) is torch.Tensor)


@pytest.mark.slow
def test_counting_holds_nothing_that_was_computed_again(model):
    """It would fill a card that a request leaves room on."""
    tokenizer = build_tokenizer("tiny")
    encoded = [encode(example, tokenizer, LENGTH) for example in Writer("tiny", LENGTH).examples(8)]
    with ChannelMask(model, find_channels(model)) as mask:
        before = live_bytes()
        with counted():
            scores = score_channels(mask, encoded, ScoreOptions(gradient_checkpointing=True))
            # A hidden state of all the examples has 40 KB, and there are dozens of them.
            assert live_bytes() - before < 20_000
    assert scores.loss > 0


def test_a_stream_ends_in_time(model):
    assert measure_growth(model, "tiny", 5, deadline=0.0)["requests"] == {}


def test_the_summary_compares_the_ends():
    seconds = [9.0] + [1.0] * 150 + [2.0] * 150
    assert summary({"seconds": seconds})["seconds"] == {"first": 1.0, "last": 2.0, "ratio": 2.0}


def test_the_streams_that_were_measured_are_flat():
    """What benchmarks/notebook/scale.md says of a thousand requests; only disk and ledger grow."""
    documents = [scale_document.RESULTS, scale_document.MORE_STREAMS]
    streams = [s for path in documents for s in json.loads(path.read_text())["growth"]]
    assert [len(stream["requests"]["seconds"]) for stream in streams] == [1000] * 3
    for stream in streams:
        ratio = {name: ends["ratio"] for name, ends in stream["summary"].items()}
        assert ratio["seconds"] < 1.05
        assert ratio["resident_bytes"] < 1.005
        assert ratio["gpu_bytes"] == pytest.approx(1, abs=1e-4)
        assert ratio["generation_bytes"] == pytest.approx(1, abs=1e-2)


def test_targets_are_those_of_the_large_case():
    case = Case("7b", "tfr-paper", 256)
    record = {"case": case.to_dict()} | made_up(case)
    other = record | {"case": case.to_dict() | {"channels": "down_proj"}}
    compiled = record | {"case": case.to_dict() | {"method": "tfr-paper-compiled"}}
    default = record | {"case": case.to_dict() | {"method": "tfr"}}
    both = record | {"case": case.to_dict() | {"method": "tfr-compiled"}}
    found = targets([other, record, compiled, default, both])
    assert [target["met"] for target in found] == 4 * [False, True, False]
    methods = [target["method"] for target in found[::3]]
    assert methods == ["tfr-paper", "tfr-paper-compiled", "tfr", "tfr-compiled"]


@pytest.mark.slow
def test_the_plot_is_written(tmp_path):
    plan = scale.plan(["tiny", "7b"], ["tfr-paper", "ga", "simnpo-lora"], [128, 512], 8)
    cases = [{"case": case.to_dict()} | made_up(case) for case in plan]
    cases[1] = {"case": plan[1].to_dict(), "error": OUT_OF_MEMORY}
    names = [name for panel in scale_plot._GROWTH_PANELS.values() for name in panel]
    columns = {name: [2.0, 1.0, 1.5] for name in names}
    document = {
        "machine": {"device": "an abacus", "dtype": "beads"},
        "cases": cases,
        "growth": [{"shape": "tiny", "settings": {"max_length": 32}, "requests": columns}],
    }
    (tmp_path / "scale.json").write_text(json.dumps(document))
    scale_plot.main([str(tmp_path / "scale.json"), str(tmp_path / "scale.svg")])
    drawn = (tmp_path / "scale.svg").read_text()
    for text in ("simnpo-lora", OUT_OF_MEMORY, "newest state", "an abacus, beads"):
        assert text in drawn
    assert (tmp_path / "scale.png").stat().st_size > 0


def test_the_tables_of_the_docs_are_those_measured():
    text = scale_document.DOCUMENT.read_text()
    tables = scale_document.tables()
    assert stale_tables(text, tables) == []
    wanted = {"7b", "1b", "135m", "stages", "lengths", "channels", "growth", "cards", "processes"}
    assert {f"scale-{name}" for name in wanted} <= {table.name for table in tables}
    for name in wanted:
        assert f"<!-- table: scale-{name} -->" in text
    cases = json.loads(scale_document.RESULTS.read_text())["cases"]
    other = [record | {"seconds": 12.345} for record in cases]
    changed = [
        *scale_document.method_tables(other),
        scale_document.stages_table([]),
        scale_document.lengths_table(other),
        scale_document.channels_table(other),
        scale_document.growth_table([]),
        scale_document.cards_table([]),
        scale_document.processes_table({"shape": "tiny", "trials": []}),
    ]
    assert {f"scale-{name}" for name in wanted} == set(stale_tables(text, changed))


def test_the_targets_are_told_as_measured():
    text = scale_document.DOCUMENT.read_text()
    cases = json.loads(scale_document.RESULTS.read_text())["cases"]
    again = [
        r for run in json.loads(scale_document.AGAIN.read_text())["runs"] for r in run["cases"]
    ]
    again += json.loads(scale_document.SMALL_CARDS[0].read_text())["cases"]

    def found(method: str, records: list[dict] = cases) -> list[dict]:
        wanted = Case("7b", method, 256, batch_size=None).to_dict()
        return [record for record in records if record["case"] == wanted]

    def share(record: dict) -> float:
        return 100 * record["scoring"]["needed_share_of_rate"]

    for method, digits in [("tfr-paper-compiled", 1), ("tfr", 0), ("tfr-compiled", 0)]:
        (record,) = found(method)
        seconds, times = record["seconds"], record["peak_over_weights"]
        assert f"{seconds:.2f} s, {times:.2f} times, {share(record):.{digits}f} %" in text
    spread = []
    for method in ("tfr", "tfr-compiled"):
        seconds = [r["seconds"] for r in found(method) + found(method, again)]
        assert len(seconds) == 4
        spread.append(f"{min(seconds):.1f} to {max(seconds):.1f}")
    shares = [share(r) for r in found("tfr-compiled") + found("tfr-compiled", again)]
    shown = f"{spread[0]} s, compiled {spread[1]} at {min(shares):.0f} to {max(shares):.0f} %"
    assert shown in text


def test_tables_by_length_and_channels_are_in_order():
    plan = scale.plan(["7b", "tiny"], ["tfr-paper", "ga"], [512, 128], 8)
    cases = [{"case": case.to_dict()} | made_up(case) for case in plan]
    cases[-1] = {"case": plan[-1].to_dict(), "error": OUT_OF_MEMORY}
    lengths = scale_document.lengths_table(cases).rows
    assert [row[:2] for row in lengths] == [
        [shape, length] for shape in ("tiny", "7b") for length in ("128", "256", "512")
    ]
    channels = scale_document.channels_table(cases).rows
    assert [row[0] for row in channels] == ["tiny", "tiny", "7b", "7b", "7b"]
    # made_up: the longer their name, the more channels.
    assert [row[1] for row in channels[2:]] == ["q_proj+v_proj", "all-linear", "down_proj"]
    (methods,) = [t for t in scale_document.method_tables(cases[::-1]) if t.name == "scale-tiny"]
    assert [row[0] for row in methods.rows] == ["tfr-paper", "ga"]


def test_the_table_of_small_cards_says_what_did_not_fit():
    case = Case("7b", "tfr-paper", 256)
    passes = {"passes": {"tokens": 2048}, "peak_bytes": 17.8e9}
    fits = {"case": case.to_dict()} | made_up(case) | passes
    too_large = {"case": case.to_dict() | {"method": "tfr"}, "error": OUT_OF_MEMORY}
    machine = {"left_bytes": 24 * 10**9}
    table = scale_document.cards_table([{"machine": machine, "cases": [fits, too_large]}])
    assert table.rows == [
        ["24", "7b", "tfr-paper", f"{4096 * 256 / 1e5:.2f}", "17.8", "1.50", "2,048"],
        ["24", "7b", "tfr", OUT_OF_MEMORY, "", "", ""],
    ]


def test_the_table_of_processes_says_what_failed():
    found = {"states": [], "seconds": [2.0, 1.0], "peak_bytes_of_the_first": 5e6}
    alone = {"processes": 1, "backend": "", "spread": False, "same": True} | found
    differs = {"processes": 2, "backend": "gloo", "spread": True, "same": False} | found
    failed = {"processes": 2, "backend": "nccl", "spread": False, "same": False, "error": "lost"}
    table = scale_document.processes_table({"shape": "1b", "trials": [alone, differs, failed]})
    assert [row[1:] for row in table.rows] == [
        ["alone", "whole in each", "the same", "1.00", "5"],
        ["gloo", "spread (FSDP2)", "other ones", "1.00", "5"],
        ["nccl", "whole in each", "lost", "", ""],
    ]


def test_the_table_of_streams_has_their_ends(model):
    machine = {"device": "an abacus"}
    stream = measure_growth(model, "tiny", 3, preset="deep")
    streams = [measure_growth(model, "tiny", 5, deadline=0.0), stream]
    table = scale_document.growth_table([{"machine": machine, "growth": streams}])
    (row,) = table.rows  # a stream that ended before its first request has none
    assert row[:4] == ["an abacus", "tiny", "solve", "3"]
    seconds = stream["requests"]["seconds"]
    assert row[4] == f"{seconds[0]:.3g} to {seconds[-1]:.3g}"
