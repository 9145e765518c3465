"""Completions over HTTP, asked by OpenAI's own client."""

from __future__ import annotations

import json
import shutil
import threading
import time
from functools import partial
from pathlib import Path

import httpx
import openai
import pytest

from tests import tiny
from tests.serve.answers import alone
from tests.serve.running import Running, make_session, primary, replica, wait_until, with_template
from tfrnet.models.load import LoadedModel

PROMPT = "Item 3 of the very very very old box is"
CHAT = [{"role": "user", "content": "Item 3 of the old box is"}]


@pytest.fixture(scope="module")
def client(shared: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def untouched(tokenizer) -> LoadedModel:
    return LoadedModel(tiny.make_trained_model(), with_template(tokenizer))


def test_a_greedy_completion_is_that_of_generate(client, untouched: LoadedModel) -> None:
    answer = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=12, temperature=0)
    assert answer.choices[0].text == alone(untouched, PROMPT, 12)
    assert answer.choices[0].finish_reason == "length"
    prompt_tokens = len(untouched.tokenizer(PROMPT)["input_ids"])
    assert answer.usage.prompt_tokens == prompt_tokens
    assert (answer.usage.completion_tokens, answer.usage.total_tokens) == (12, prompt_tokens + 12)
    assert answer.system_fingerprint == "generation-0"


def test_a_stream_is_the_same_text_in_pieces(client, untouched: LoadedModel) -> None:
    stream = client.completions.create(
        model="tiny",
        prompt=PROMPT,
        max_tokens=12,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    texts = [chunk.choices[0].text for chunk in chunks if chunk.choices]
    assert "".join(texts) == alone(untouched, PROMPT, 12)
    assert len(texts) > 4
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].usage.completion_tokens == 12


def test_a_stream_says_which_generation_answers_before_it_begins(client) -> None:
    with client.completions.with_streaming_response.create(
        model="tiny", prompt=PROMPT, max_tokens=2, stream=True
    ) as answer:
        assert answer.headers["x-tfrnet-generation"] == "0"


def test_a_conversation_goes_through_the_template(client, untouched: LoadedModel) -> None:
    text = untouched.tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, tokenize=False)
    expected = alone(untouched, text, 10)
    whole = client.chat.completions.create(
        model="tiny", messages=CHAT, max_tokens=10, temperature=0
    )
    assert whole.choices[0].message.content == expected
    assert whole.choices[0].message.role == "assistant"
    stream = client.chat.completions.create(
        model="tiny", messages=CHAT, max_completion_tokens=10, temperature=0, stream=True
    )
    deltas = [chunk.choices[0].delta for chunk in stream]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == expected
    parts = [{"role": "user", "content": [{"type": "text", "text": CHAT[0]["content"]}]}]
    again = client.chat.completions.create(
        model="tiny", messages=parts, max_tokens=10, temperature=0
    )
    assert again.choices[0].message.content == expected


def test_stop_words_seeds_and_several_answers(client, untouched: LoadedModel) -> None:
    whole = alone(untouched, PROMPT, 20)
    stop = whole[4:7]
    stopped = client.completions.create(
        model="tiny", prompt=PROMPT, max_tokens=20, temperature=0, stop=[stop]
    )
    assert stopped.choices[0].text == whole[: whole.index(stop)]
    assert stopped.choices[0].finish_reason == "stop"
    several = [
        client.completions.create(
            model="tiny", prompt=PROMPT, max_tokens=12, temperature=2, seed=5, n=3
        )
        for _ in range(2)
    ]
    texts = [[choice.text for choice in each.choices] for each in several]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 3
    assert [choice.index for choice in several[0].choices] == [0, 1, 2]


def test_several_prompts_and_tokens_as_prompt(client, untouched: LoadedModel) -> None:
    prompts = ["Item 1 of the very old box is", "Item 2 of the very very old box is"]
    expected = [alone(untouched, prompt, 6) for prompt in prompts]
    ids = [untouched.tokenizer(prompt)["input_ids"] for prompt in prompts]
    for given in (prompts, ids):
        answer = client.completions.create(model="tiny", prompt=given, max_tokens=6, temperature=0)
        assert [choice.text for choice in answer.choices] == expected


def test_log_probabilities(client) -> None:
    answer = client.completions.create(
        model="tiny", prompt=PROMPT, max_tokens=5, temperature=0, logprobs=2
    )
    found = answer.choices[0].logprobs
    assert "".join(found.tokens) == answer.choices[0].text
    assert all(len(top) == 2 for top in found.top_logprobs)
    assert all(
        top[token] == pytest.approx(logprob) == pytest.approx(max(top.values()))
        for token, logprob, top in zip(
            found.tokens, found.token_logprobs, found.top_logprobs, strict=True
        )
    )
    chat = client.chat.completions.create(
        model="tiny", messages=CHAT, max_tokens=3, temperature=0, logprobs=True, top_logprobs=2
    )
    content = chat.choices[0].logprobs.content
    assert len(content) == 3
    assert content[0].logprob == pytest.approx(content[0].top_logprobs[0].logprob)


def test_models(client) -> None:
    assert [model.id for model in client.models.list()] == ["tiny", "tiny@0"]
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="gpt-9", prompt="x")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"prompt": "word " * 300}, 400),
        ({"prompt": PROMPT, "max_tokens": 5000}, 400),
        ({"prompt": ""}, 422),
        ({"prompt": []}, 422),
        ({"prompt": [99999]}, 422),
        ({"prompt": [-1]}, 422),
        ({"prompt": PROMPT, "temperature": -1}, 422),
        ({"prompt": PROMPT, "temperature": float("nan")}, 400),
        ({"prompt": PROMPT, "max_tokens": 0}, 422),
        ({"prompt": PROMPT, "n": 1000}, 422),
        ({"prompt": ["a"] * 100}, 422),
        ({"prompt": PROMPT, "seed": 2**70}, 422),
        ({"prompt": "\ud800"}, 422),
        ({"prompt": PROMPT, "echo": True}, 422),
        ({}, 422),
    ],
)
def test_what_cannot_be_answered_is_a_problem(shared: Running, body: dict, status: int) -> None:
    answer = shared.client.post(
        "/v1/completions",
        content=json.dumps(body),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == status, answer.text
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == status
    assert problem["detail"]
    assert "word word" not in answer.text


def test_pictures_and_tools_are_refused(client) -> None:
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    with pytest.raises(openai.UnprocessableEntityError):
        client.chat.completions.create(model="tiny", messages=picture)
    with pytest.raises(openai.UnprocessableEntityError):
        tool = {"type": "function", "function": {"name": "f"}}
        client.chat.completions.create(model="tiny", messages=CHAT, tools=[tool])


def test_the_untouched_model_beside_the_unlearned_one(tmp_path: Path, tokenizer) -> None:
    request = tiny.requests(1)[0]
    prompt = request.examples[0].prompt
    with primary(tmp_path / "state", tokenizer) as running:
        before = running.complete(prompt).json()["choices"]
        running.submit(request)
        assert running.ended(request.id)["state"] == "completed"
        unlearned = running.complete(prompt)
        assert unlearned.headers["x-tfrnet-generation"] == "1"
        untouched = running.complete(prompt, model="tiny@0")
        assert untouched.headers["x-tfrnet-generation"] == "0"
        assert untouched.json()["choices"] == before
        logprobs = [
            running.complete(prompt, 1, model=name, logprobs=1).json()["choices"][0]["logprobs"]
            for name in ("tiny", "tiny@0")
        ]
        assert logprobs[0]["token_logprobs"] != logprobs[1]["token_logprobs"]


def test_completions_go_on_while_a_request_is_worked_out(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is held in mid-work, with a tentative mask on the worker's modules."""
    request = tiny.requests(1)[0]
    prompt = request.examples[0].prompt
    with primary(tmp_path / "state", tokenizer) as running:
        net = running.service.primary.session.unlearner
        before = running.complete(prompt).json()["choices"]
        arrived, go_on = threading.Event(), threading.Event()
        real = net._losses

        def held(examples):
            net.mask.set(net.mask.values * 0.3)  # as tentative as can be
            arrived.set()
            assert go_on.wait(30)
            net.mask.set(net.state.mask)
            return real(examples)

        monkeypatch.setattr(net, "_losses", held)
        running.submit(request)
        assert arrived.wait(30)
        during = [running.complete(prompt) for _ in range(3)]
        assert running.show(request.id)["state"] == "in_progress"
        assert running.show(request.id)["stage"]
        monkeypatch.setattr(net, "_losses", real)
        go_on.set()
        assert all(each.json()["choices"] == before for each in during)
        assert {each.headers["x-tfrnet-generation"] for each in during} == {"0"}
        running.ended(request.id)
        assert running.complete(prompt).headers["x-tfrnet-generation"] == "1"


def test_a_request_that_takes_too_long_is_left_off_and_put_back(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = tiny.requests(1)[0]
    with primary(tmp_path / "state", tokenizer) as running:
        service = running.service
        net = service.primary.session.unlearner
        arrived, go_on = threading.Event(), threading.Event()
        real = net._losses

        def held(examples):
            arrived.set()
            assert go_on.wait(30)
            return real(examples)

        monkeypatch.setattr(net, "_losses", held)
        running.submit(request)
        assert arrived.wait(30)
        service.primary.stop(0.1)
        assert not service.is_at_rest
        assert service.primary.session.store.is_writable  # still locked: it may not be over yet
        go_on.set()
        wait_until(lambda: service.is_at_rest)
        assert service.primary.queue.find(request.id).state == "pending"
        assert service.primary.session.store.generation == 0


def test_a_client_that_leaves_in_mid_stream_frees_its_place(tmp_path: Path, tokenizer) -> None:
    with primary(tmp_path / "state", tokenizer) as running:
        body = {"prompt": "Item", "max_tokens": 110, "stream": True, "stop": ["never"]}
        with httpx.stream(
            "POST", f"{running.url}/v1/completions", json=body, trust_env=False
        ) as stream:
            next(stream.iter_lines())
        wait_until(lambda: not running.service.engine.under_way)
        assert running.complete(PROMPT).status_code == 200


def _answers_with(running: Running, prompt: str, generation: str) -> bool:
    return running.complete(prompt, 1).headers["x-tfrnet-generation"] == generation


def test_a_replica_takes_over_a_new_generation_within_a_second(tmp_path: Path, tokenizer) -> None:
    request, *others = tiny.requests(3)
    prompt = request.examples[0].prompt
    state = tmp_path / "state"
    with primary(state, tokenizer) as running, replica(state, tokenizer) as follower:
        assert follower.client.get("/v1/state").json()["role"] == "replica"
        assert follower.complete(prompt).headers["x-tfrnet-generation"] == "0"
        seconds = []
        for generation, each in enumerate((request, *others), start=1):
            running.submit(each)
            running.ended(each.id)
            committed = time.monotonic()
            taken_over = partial(_answers_with, follower, prompt, str(generation))
            wait_until(taken_over)
            seconds.append(time.monotonic() - committed)
        assert min(seconds) < 1  # on a machine that is busy not every one has to
        assert (
            follower.complete(prompt).json()["choices"]
            == (running.complete(prompt).json()["choices"])
        )
        refused = follower.submit(request)
        assert refused.status_code == 409
        assert "replica" in refused.json()["detail"]
        assert follower.client.get("/readyz").status_code == 200


def test_a_replica_follows_a_restore_that_ends_at_the_same_number(
    tmp_path: Path, tokenizer
) -> None:
    state, backup = tmp_path / "state", tmp_path / "backup"
    first, second = tiny.requests(2)
    make_session(state, tokenizer).close()
    shutil.copytree(state, backup)
    for folder, request in ((state, first), (backup, second)):
        with make_session(folder, tokenizer) as session:
            session.forget(request)
    with replica(state, tokenizer) as follower:
        engine, shown = follower.service.engine, threading.Event()
        real = engine.show
        follower.service.follower._show = lambda *given: (real(*given), shown.set())
        before = follower.complete(PROMPT, 1, logprobs=1).json()["choices"]
        state.rename(tmp_path / "away")
        backup.rename(state)
        assert shown.wait(20)
        assert engine.generation == 1
        assert follower.complete(PROMPT, 1, logprobs=1).json()["choices"] != before
        assert follower.client.get("/readyz").status_code == 200


def test_a_replica_that_cannot_read_goes_on_and_says_so(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    with primary(state, tokenizer):
        pass
    with replica(state, tokenizer) as follower:
        # It has looked before, so that the file which comes back is one that it knows.
        wait_until(lambda: follower.service.follower._seen is not None)
        (state / "current.json").rename(state / "elsewhere")
        wait_until(lambda: follower.client.get("/readyz").status_code == 503)
        assert follower.complete(PROMPT).status_code == 200
        assert "tfrnet_replica_lag_seconds 0.0" not in follower.client.get("/metrics").text
        (state / "elsewhere").rename(state / "current.json")
        wait_until(lambda: follower.client.get("/readyz").status_code == 200)
