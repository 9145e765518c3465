"""`tfrnet request`: deletion requests to a running service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output

if TYPE_CHECKING:
    from tfrnet.serve.client import Client

command = typer.Typer(
    help="Send deletion requests to a running 'tfrnet serve', and follow them.",
    no_args_is_help=True,
)

Url = Annotated[str, typer.Option(envvar="TFRNET_URL", help="Address of the service.")]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="TFRNET_TOKEN", help="Token, best given as TFRNET_TOKEN.", show_default=False
    ),
]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the request.")]
DEFAULT_URL = "http://127.0.0.1:8000"


@command.command()
def submit(
    file: Annotated[Path, typer.Argument(help="JSON Lines of requests, sent in order.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: opt.AsJson = False,
) -> int:
    """Send the requests of a file. Those that the service already has are not applied twice."""
    from tfrnet.data.requests import read_requests
    from tfrnet.serve.client import ServiceError

    output, client = Output(as_json), _client(url, token)
    requests, sent = read_requests(file), []
    for request in requests:
        try:
            sent.append(client.submit(request.to_dict()))
        except ServiceError as error:
            if not sent:
                raise
            output.result("requests", {"requests": sent})
            raise ServiceError(
                f"{error}; {len(sent)} of {len(requests)} requests were sent, those before "
                f"{request.id!r}; submit the file again to send the rest",
                error.status,
            ) from None
        output.say(_line(sent[-1]))
    output.result("requests", {"requests": sent})
    return 0


@command.command("list")
def list_requests(
    state: Annotated[
        str | None,
        typer.Option(
            help="Only those that are pending, in_progress, completed, rejected, failed or "
            "cancelled.",
            show_default=False,
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: opt.AsJson = False,
) -> int:
    """List the requests of a service."""
    output, found = Output(as_json), list(_client(url, token).requests(state))
    for request in found:
        output.say(_line(request))
    output.result("requests", {"requests": found})
    return 0


@command.command()
def show(name: Id, url: Url = DEFAULT_URL, token: Token = None, as_json: opt.AsJson = False) -> int:
    """Show a request. Exit code 1 if it was rejected, failed or cancelled."""
    return _show(Output(as_json), _client(url, token).show(name))


@command.command()
def watch(
    name: Id, url: Url = DEFAULT_URL, token: Token = None, as_json: opt.AsJson = False
) -> int:
    """Show the progress of a request until it has ended. The exit code is that of 'show'."""
    output, client = Output(as_json), _client(url, token)
    for event in client.watch(name):
        output.say(": ".join(filter(None, [event["event"], event.get("stage")])))
    return _show(output, client.show(name))


@command.command()
def approve(
    name: Id, url: Url = DEFAULT_URL, token: Token = None, as_json: opt.AsJson = False
) -> int:
    """Approve a request that waits for approval."""
    return _show(Output(as_json), _client(url, token).approve(name))


@command.command()
def deny(
    name: Id,
    reason: Annotated[str, typer.Option(help="Why; it is kept and shown.")] = "",
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: opt.AsJson = False,
) -> int:
    """Refuse a request that waits for approval; its words are destroyed."""
    _show(Output(as_json), _client(url, token).deny(name, reason))
    return 0


@command.command()
def cancel(
    name: Id, url: Url = DEFAULT_URL, token: Token = None, as_json: opt.AsJson = False
) -> int:
    """Cancel a request that nobody works on yet; its words are destroyed."""
    _show(Output(as_json), _client(url, token).cancel(name))
    return 0


def _client(url: str, token: str | None) -> Client:
    from tfrnet.serve.client import Client

    return Client(url, token)


def _show(output: Output, request: dict[str, Any]) -> int:
    output.say(_line(request))
    if request.get("guard_groups"):
        output.say(f"  guard by group: {request['guard_groups']}")
    if request.get("audit"):
        output.say(f"  audit: {request['audit']}")
    output.result("request", request)
    return int(request["state"] in ("rejected", "failed", "cancelled"))


def _line(request: dict[str, Any]) -> str:
    from tfrnet.serve.client import OPEN

    words = [f"{request['id']}: {request['state']}"]
    if request["approval"] == "waiting" and request["state"] == "pending":
        words.append("waiting for approval")
    if request["state"] in OPEN:
        words.append(f"{request['days_left']:.0f} days left")
    words += filter(None, [request.get("stage"), request["reason"]])
    if outcome := request["outcome"]:
        words.append(f"generation {outcome['generation']}")
    return ", ".join(words)
