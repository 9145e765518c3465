"""`tfrnet head`: where a ledger stands, for keeping elsewhere."""

from __future__ import annotations

import sys

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output


def command(state: opt.State = opt.DEFAULT_STATE, key: opt.ReadKey = None) -> int:
    """Print one line of JSON that says where the ledger stands, signed with the state's key.

    Keep these lines out of reach of those who can write to the state: 'tfrnet verify --head FILE'
    then finds removed lines, rewritten history, forks and older copies. A file may hold many of
    them: 'tfrnet head >> heads.jsonl'.
    """
    from tfrnet.core.canonical import canonical
    from tfrnet.core.clock import now
    from tfrnet.core.signing import named_key
    from tfrnet.state.head import make_head
    from tfrnet.state.signer import Signer
    from tfrnet.state.store import StateStore

    output = Output(as_json=False)
    store = StateStore.open(state)
    path = named_key(key)
    signing = Signer(state, path).key_for(store.public_key) if path else None
    if signing is None:
        why = "no key is given" if store.public_key else f"state {state} is not signed"
        output.note(f"this head is not signed: {why}")
    sys.stdout.write(canonical(make_head(store, now(), signing)).decode() + "\n")
    return 0
