"""`tfrnet token`: who may do what with a service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.lists import names
from tfrnet.cli.output import Output

command = typer.Typer(
    help="Make, list and revoke the tokens of 'tfrnet serve --tokens FILE'.",
    no_args_is_help=True,
)

Tokens = Annotated[Path, typer.Option(help="File of tokens.")]
Name = Annotated[str, typer.Option(help="Whose token it is.")]


@command.command()
def add(
    tokens: Tokens,
    name: Name,
    scopes: Annotated[
        str,
        typer.Option(
            help="What it allows, separated by commas: submit,approve,read,complete,admin."
        ),
    ] = "submit,read",
    days: Annotated[
        int | None, typer.Option(min=1, help="Days until it expires.", show_default=False)
    ] = None,
    as_json: opt.AsJson = False,
) -> int:
    """Make a token and print it, once: the file keeps its hash only.

    A running service accepts it from the next call on.
    """
    from tfrnet.serve.tokens import add_token

    output = Output(as_json)
    secret = add_token(tokens, name, names(scopes), days)
    output.say(secret)
    output.result("token", {"name": name, "scopes": list(names(scopes)), "token": secret})
    return 0


@command.command("list")
def list_tokens(tokens: Tokens, as_json: opt.AsJson = False) -> int:
    """List the tokens of a file."""
    from tfrnet.serve.tokens import read_tokens

    output = Output(as_json)
    found = read_tokens(tokens)
    for token in found:
        end = "has expired" if token.is_expired else f"until {token.expires or 'revoked'}"
        output.say(f"{token.name}: {', '.join(token.scopes)}, {end}")
    values = [{"name": t.name, "scopes": list(t.scopes), "expires": t.expires} for t in found]
    output.result("tokens", {"tokens": values})
    return 0


@command.command()
def revoke(tokens: Tokens, name: Name) -> int:
    """Take a token back; a running service refuses it from the next call on."""
    from tfrnet.serve.tokens import revoke_token

    revoke_token(tokens, name)
    Output(as_json=False).say(f"{name}: revoked")
    return 0
