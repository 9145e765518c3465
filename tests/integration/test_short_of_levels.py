"""An accepted request that the guard stopped short says so, when it is told of and later."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedTokenizerFast

from tests import tiny
from tests.integration.commands import Tfrnet
from tests.methods.tfr.plain import PLAIN
from tfrnet import Session, TFRConfig
from tfrnet.cli.output import outcome_line


def test_it_is_said_and_stays_in_the_history(
    tfrnet: Tfrnet, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    tight = {"guard_relative": 0.03, "retain_examples": 8, "steps": 6}
    full = {"hold_rivals": True, "held_rivals": None, "level_quantile": 0.5}
    with Session(
        tiny.make_trained_model(),
        tokenizer,
        tmp_path / "state",
        tiny.examples(20, 100),
        config=TFRConfig.from_dict(PLAIN | tight | full),
        batch_size=4,
    ) as session:
        outcome = session.forget(tiny.requests(1)[0])
    assert outcome.accepted
    assert outcome_line(outcome).endswith(" s (3 of 3 examples above their level)")
    history = tfrnet("history", "--state", tmp_path / "state").out
    assert history.rstrip().endswith(" (3 of 3 examples above their level)")
