"""Completions: those of `generate`, whatever runs beside them, each with one mask."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from transformers import MambaConfig, MambaForCausalLM

from tests import tiny
from tests.serve.answers import GREEDY, Asked, alone
from tfrnet.core.errors import InputError
from tfrnet.core.tensors import TensorState
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask
from tfrnet.models.load import LoadedModel
from tfrnet.models.twin import twin_of
from tfrnet.serve.engine import Answer, Engine, Piece, TooManyError
from tfrnet.serve.sampling import Sampling

PROMPTS = [f"Item {number} of the {'very ' * (number % 5)}old box is" for number in range(9)]


def attach(model) -> ChannelMask:
    return ChannelMask(model, find_channels(model))


def mask_of(model, seed: int) -> TensorState:
    """A mask that changes what the model says."""
    torch.manual_seed(seed)
    return TensorState({"mask": (torch.rand(find_channels(model).total) > 0.3).float()})


@contextmanager
def serving(loaded: LoadedModel, state: TensorState | None = None, **options) -> Iterator[Engine]:
    total = find_channels(loaded.model).total
    state = state or TensorState({"mask": torch.ones(total)})
    engine = Engine(loaded, attach, state, 0, **options)
    try:
        yield engine
    finally:
        engine.stop(30)


def masked_alone(loaded: LoadedModel, state: TensorState, prompt: str, tokens: int) -> str:
    twin = twin_of(loaded.model)
    with attach(twin) as mask:
        mask.show(state)
        return alone(LoadedModel(twin, loaded.tokenizer), prompt, tokens)


@pytest.fixture
def loaded(tokenizer) -> LoadedModel:
    return LoadedModel(tiny.make_trained_model(), tokenizer)


@pytest.mark.parametrize("architecture", sorted(tiny.ARCHITECTURES))
def test_greedy_answers_are_those_of_generate_alone(architecture: str, tokenizer) -> None:
    loaded = LoadedModel(tiny.make_model(architecture), tokenizer)
    expected = [alone(loaded, prompt, 6 + i) for i, prompt in enumerate(PROMPTS)]
    with serving(loaded, rows=4) as engine:
        asked = []
        for i, prompt in enumerate(PROMPTS):
            asked.append(Asked(engine, loaded, prompt, 6 + i))
            time.sleep(0.004 * (i % 3))  # so that some join others under way
        assert [each.text() for each in asked] == expected


def test_a_model_that_answers_cannot_be_continued_on_is_refused_at_once(tokenizer) -> None:
    config = MambaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, state_size=4
    )
    model = MambaForCausalLM(config).eval()
    with pytest.raises(InputError, match="cannot answer with a MambaForCausalLM"):
        Engine(LoadedModel(model, tokenizer), attach, TensorState({}), 0)


def test_rows_come_and_go_without_touching_the_others(loaded: LoadedModel) -> None:
    """A short answer leaves and a long prompt joins while another is in mid-text."""
    expected = alone(loaded, PROMPTS[0], 60)
    with serving(loaded) as engine:
        long = Asked(engine, loaded, PROMPTS[0], 60)
        for prompt in (PROMPTS[4] * 3, PROMPTS[1], PROMPTS[3] * 2):
            assert Asked(engine, loaded, prompt, 5).text() == alone(loaded, prompt, 5)
        assert long.text() == expected


def test_a_stop_word_ends_the_text_before_it(loaded: LoadedModel) -> None:
    whole = alone(loaded, PROMPTS[0], 30)
    stop = whole[7:12]
    with serving(loaded) as engine:
        pieces = Asked(engine, loaded, PROMPTS[0], 30, stop=("never there", stop)).all()
    assert "".join(piece.text for piece in pieces) == whole[: whole.index(stop)]
    assert pieces[-1].finish == "stop"


def test_a_seed_gives_the_same_text_in_any_company(loaded: LoadedModel) -> None:
    sampling = Sampling(temperature=1.5, top_p=0.9, seed=7)
    with serving(loaded) as engine:
        first = Asked(engine, loaded, PROMPTS[0], 20, sampling=sampling).text()
        beside = [Asked(engine, loaded, prompt, 25) for prompt in PROMPTS]
        again = Asked(engine, loaded, PROMPTS[0], 20, sampling=sampling).text()
        other = Asked(
            engine, loaded, PROMPTS[0], 20, sampling=Sampling(temperature=1.5, seed=8)
        ).text()
        assert all(each.text() for each in beside)
    assert first == again
    assert first not in (other, alone(loaded, PROMPTS[0], 20))


def test_log_probabilities_are_those_of_a_plain_pass(loaded: LoadedModel) -> None:
    with serving(loaded) as engine:
        pieces = Asked(
            engine, loaded, PROMPTS[0], 4, sampling=Sampling(temperature=0, logprobs=3)
        ).all()
    ids = loaded.tokenizer(PROMPTS[0])["input_ids"]
    for piece in pieces:
        with torch.no_grad():
            logprobs = loaded.model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
        best = logprobs.topk(3)
        assert piece.choice.token == int(best.indices[0])
        assert piece.choice.logprob == pytest.approx(float(best.values[0]), abs=1e-4)
        assert [token for token, _ in piece.choice.top] == best.indices.tolist()
        ids.append(piece.choice.token)


def test_an_answer_keeps_its_mask_and_the_next_has_the_new_one(loaded: LoadedModel) -> None:
    states = [mask_of(loaded.model, seed) for seed in range(3)]
    expected = [masked_alone(loaded, state, PROMPTS[0], 80) for state in states]
    assert len(set(expected)) == 3
    with serving(loaded, states[0]) as engine:
        asked = []
        for generation, state in enumerate(states):
            engine.show(state, generation)
            asked.append(Asked(engine, loaded, PROMPTS[0], 80))
            asked[-1].pieces.get(timeout=30)  # it has begun
        assert engine.generation == 2
        for generation, each in enumerate(asked):
            # The first piece was taken above.
            assert expected[generation].endswith(each.text())
            assert each.answer.generation == generation


def test_no_answer_mixes_masks_while_they_change_all_the_time(loaded: LoadedModel) -> None:
    states = [mask_of(loaded.model, seed) for seed in range(4)]
    expected = [masked_alone(loaded, state, PROMPTS[2], 24) for state in states]
    assert len(set(expected)) == 4
    done = threading.Event()
    with serving(loaded, states[0], rows=4) as engine:

        def change() -> None:
            number = 0
            while not done.wait(0.003):
                number += 1
                engine.show(states[number % 4], number)

        changer = threading.Thread(target=change)
        changer.start()
        seen = set()
        try:
            for _ in range(12):
                for each in [Asked(engine, loaded, PROMPTS[2], 24) for _ in range(4)]:
                    text = each.text()
                    assert text == expected[each.answer.generation % 4]
                    seen.add(text)
        finally:
            done.set()
            changer.join()
    assert len(seen) > 1


def test_a_state_that_does_not_fit_is_refused_and_the_old_one_stays(loaded: LoadedModel) -> None:
    before = alone(loaded, PROMPTS[0], 6)
    with serving(loaded) as engine:
        with pytest.raises(ValueError, match="a mask of shape"):
            engine.show(TensorState({"mask": torch.ones(3)}), 1)
        assert engine.generation == 0
        assert Asked(engine, loaded, PROMPTS[0], 6).text() == before
        engine.show(mask_of(loaded.model, 0), 2)
        assert engine.generation == 2


def test_the_untouched_model_can_be_asked_beside(loaded: LoadedModel) -> None:
    state = mask_of(loaded.model, 0)
    before, after = alone(loaded, PROMPTS[0], 12), masked_alone(loaded, state, PROMPTS[0], 12)
    assert before != after
    with serving(loaded, state) as engine:
        untouched = Asked(engine, loaded, PROMPTS[0], 12, untouched=True)
        assert Asked(engine, loaded, PROMPTS[0], 12).text() == after
        assert untouched.text() == before


def test_a_client_that_leaves_frees_its_row(loaded: LoadedModel) -> None:
    with serving(loaded, rows=1) as engine:
        left = Asked(engine, loaded, PROMPTS[0], 110, stop=())
        left.pieces.get(timeout=30)
        left.answer.cancelled = True
        assert Asked(engine, loaded, PROMPTS[1], 4).text() == alone(loaded, PROMPTS[1], 4)
        assert left.answer.tokens < 110


def test_a_failed_pass_ends_its_answers_and_the_next_are_made(loaded: LoadedModel) -> None:
    errors: list[BaseException] = []
    with serving(loaded, failed=errors.append) as engine:
        pieces: queue.Queue[Piece] = queue.Queue()
        engine.submit(Answer([tiny.VOCABULARY + 5], 4, pieces.put))  # no such token
        assert pieces.get(timeout=30).finish == "error"
        assert [type(error) for error in errors] == [IndexError]
        assert Asked(engine, loaded, PROMPTS[1], 4).text() == alone(loaded, PROMPTS[1], 4)


def test_one_answer_fails_and_those_beside_it_do_not(loaded: LoadedModel) -> None:
    errors: list[BaseException] = []
    with serving(loaded, failed=errors.append) as engine:
        beside = Asked(engine, loaded, PROMPTS[0], 40)
        beside.pieces.get(timeout=30)
        wrong: tuple = (5,)  # no word
        assert Asked(engine, loaded, PROMPTS[1], 9, stop=wrong).all()[-1].finish == "error"
        assert [type(error) for error in errors] == [TypeError]
        assert beside.all()[-1].finish == "length"


def test_more_than_may_wait_are_refused(loaded: LoadedModel) -> None:
    with serving(loaded, rows=1, most_waiting=2) as engine:
        first = Asked(engine, loaded, PROMPTS[0], 100)
        first.pieces.get(timeout=30)
        waiting = [Asked(engine, loaded, PROMPTS[1], 2) for _ in range(2)]
        with pytest.raises(TooManyError):
            Asked(engine, loaded, PROMPTS[1], 2)
        first.answer.cancelled = True
        assert all(each.text() for each in waiting)


def test_a_twin_has_the_same_weights_and_modules_of_its_own(loaded: LoadedModel) -> None:
    twin = twin_of(loaded.model)
    pairs = zip(twin.named_parameters(), loaded.model.named_parameters(), strict=True)
    assert all(mine is yours for (_, mine), (_, yours) in pairs)
    assert not set(twin.modules()) & set(loaded.model.modules())
    assert twin.get_output_embeddings().weight is loaded.model.get_output_embeddings().weight


def test_a_model_with_hooks_has_no_twin(loaded: LoadedModel) -> None:
    with attach(loaded.model) as mask, pytest.raises(InputError, match="use one device"):
        mask.show(mask_of(loaded.model, 0))
        twin_of(loaded.model)


@pytest.mark.real
@pytest.mark.slow
def test_the_real_model_answers_a_crowd_as_it_does_each_alone(real) -> None:
    prompts = ["The capital of France is", "Once upon a time", "2 + 2 =", "Water boils at"]
    expected = [alone(real, prompt, 12) for prompt in prompts]
    with serving(real) as engine:
        asked = [Asked(engine, real, prompt, 12, sampling=GREEDY) for prompt in prompts]
        assert [each.text() for each in asked] == expected
