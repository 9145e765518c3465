"""Our figures are those of lm-evaluation-harness, on the exported default model."""

import pytest
import torch

from tests.datasets import needs_real, real_source
from tests.exports import export_as
from tests.integration.harness import run_harness, write_tasks
from tfrnet.data.tasks import find_task
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.tasks import evaluate_task
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask
from tfrnet.models.load import load_model

pytestmark = [pytest.mark.real, pytest.mark.slow, needs_real]
COUNTS = {"boolq": 4, "openbookqa": 12, "arithmetic": 8}


@pytest.fixture(scope="module")
def exported(real, tmp_path_factory):
    """The default model with a mask folded in, loaded again from its folder."""
    folder = tmp_path_factory.mktemp("export") / "model"
    with ChannelMask(real.model, find_channels(real.model)) as mask:
        values = torch.ones(mask.index.total)
        values[::997] = 0.5
        mask.set(values)
        export_as("dense", mask, real.tokenizer, folder)
    return load_model(str(folder), "float32", "cpu")


@pytest.fixture(scope="module")
def items():
    source = real_source()
    sets = {}
    for name, count in COUNTS.items():
        task = find_task("arithmetic:2da" if name == "arithmetic" else name)
        pool = task.load(task.evaluation, source)
        if name == "boolq":
            # The first of them, and among the first a long one that has to be cut.
            pool.sort(key=lambda item: not 1200 < len(item.prompt) < 1400)
        sets[name] = pool[:count]
    return sets


@pytest.fixture(scope="module")
def theirs(exported, items, tmp_path_factory):
    folder = tmp_path_factory.mktemp("harness")
    write_tasks(items, folder)
    return run_harness(exported, folder, list(items), batch_size=8, max_length=256)


@pytest.mark.parametrize("name", COUNTS)
def test_decisions_are_identical_and_log_likelihoods_agree(name, exported, items, theirs):
    result = evaluate_task(
        Evaluator(exported, batch_size=5), find_task(name), items[name], "peer", 256, "lm_eval"
    )
    assert len(theirs[name]) == COUNTS[name]
    for sample, peer in zip(result.samples, theirs[name], strict=True):
        log_likelihoods = [response[0] for response in peer["filtered_resps"]]
        assert sample["log_likelihoods"] == pytest.approx(log_likelihoods, abs=1e-4)
        ours = sample["greedy"] if name == "arithmetic" else sample["acc"]
        assert ours == peer["acc"]
        if name == "openbookqa":
            assert sample["acc_norm"] == peer["acc_norm"]
    if name == "boolq":
        assert result.details["truncated"] > 0, "an example longer than max_length is wanted too"
