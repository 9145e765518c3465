"""The unlearned model, as OpenAI's clients ask for it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from tfrnet.serve.completions import Job, refuse_unknown_model
from tfrnet.serve.problems import Problem
from tfrnet.serve.routes.common import StrictRoute, TheService, needs
from tfrnet.serve.schema import ChatIn, CompletionIn
from tfrnet.serve.service import Service
from tfrnet.serve.tokens import Token

router = APIRouter(prefix="/v1", tags=["completions"], route_class=StrictRoute)

GENERATION_HEADER = "X-Tfrnet-Generation"

Asker = Annotated[Token, needs("complete")]


@router.get("/models", summary="The model that is served")
def models(service: TheService, caller: Asker) -> dict[str, Any]:
    """Return the unlearned model, and with @0 the untouched one, which is for admins."""
    names = [service.name, f"{service.name}@0"]
    shown = [
        {"id": name, "object": "model", "created": 0, "owned_by": "tfrnet"}
        for name in (names if caller.allows("admin") else names[:1])
    ]
    return {"object": "list", "data": shown}


@router.post("/completions", response_model=None, summary="Go on from a prompt")
async def completions(
    sent: CompletionIn, service: TheService, caller: Asker, http: Request
) -> Response:
    """Complete prompts; the header X-Tfrnet-Generation says which generation answered."""
    return await _answer(sent, service, caller, http)


@router.post("/chat/completions", response_model=None, summary="Answer a conversation")
async def chat(sent: ChatIn, service: TheService, caller: Asker, http: Request) -> Response:
    """Answer by the tokenizer's own chat template."""
    return await _answer(sent, service, caller, http)


async def _answer(
    sent: CompletionIn | ChatIn, service: Service, caller: Token, http: Request
) -> Response:
    untouched = refuse_unknown_model(sent.model, service.name)
    if untouched and not caller.allows("admin"):
        raise Problem(403, "the untouched model needs a token with the scope admin")
    job = Job(service.engine, service.encoder, sent, sent.model or service.name)
    await job.begin(untouched)
    if not sent.stream:
        whole = await job.whole(http.is_disconnected)
        _count(service, job)
        return JSONResponse(whole, headers={GENERATION_HEADER: job.generations()})
    first = await job.begun(http.is_disconnected)

    async def counted() -> Any:
        try:
            async for text in job.stream(first):
                yield text
        finally:
            job.leave()
            _count(service, job)

    return StreamingResponse(
        counted(),
        media_type="text/event-stream",
        headers={GENERATION_HEADER: job.generations(), "Cache-Control": "no-store"},
    )


def _count(service: Service, job: Job) -> None:
    usage = job.usage()
    service.metrics.tokens.labels("prompt").inc(usage["prompt_tokens"])
    service.metrics.tokens.labels("completion").inc(usage["completion_tokens"])
