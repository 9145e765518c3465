"""The list of all commands in docs/commands.md.

python -m tools.command_list
"""

from __future__ import annotations

import typer

from tfrnet.cli.app import build_app, group_of


def command_list() -> str:
    """Return a table for each group of commands: what each does, in its first sentence."""
    commands = typer.main.get_command(build_app()).commands
    parts = []
    for group in dict.fromkeys(map(group_of, commands)):
        names = [name for name in commands if group_of(name) == group]
        lines = [f"| `{name}` | {first_sentence(commands[name].help)} |" for name in names]
        head = (f"**{group}**", "", "| command | what it does |", "| --- | --- |")
        parts.append("\n".join([*head, *lines]))
    return "\n\n".join(parts)


def first_sentence(help_text: str) -> str:
    """Return the first sentence of a command's help."""
    return " ".join(help_text.partition("\n\n")[0].split()).partition(". ")[0].removesuffix(".")


if __name__ == "__main__":
    print(command_list())
