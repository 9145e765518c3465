"""Printing what the demo keeps, as retain data: `python -m tfrnet.demo.kept > FILE`."""

from __future__ import annotations

import json

from tfrnet.demo.corpus import load_facts, split

if __name__ == "__main__":
    for fact in split(load_facts(), "capitals").retain:
        print(json.dumps(fact.example().to_dict()))
