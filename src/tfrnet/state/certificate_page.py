"""A certificate as one page that prints: no script, nothing loaded from anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from typing import Any

from tfrnet.audit.figures import Given
from tfrnet.core.signing import short

_STYLE = """
body { font: 11pt/1.45 Georgia, serif; color: #111; max-width: 46rem; margin: 2.5rem auto; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.05rem; margin: 1.4rem 0 .3rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .15rem 0; border-bottom: 1px solid #ddd; }
th { font-weight: normal; color: #444; width: 14rem; padding-right: 1rem; }
td { overflow-wrap: anywhere; } code { font-size: .85em; overflow-wrap: anywhere; }
@page { margin: 2cm; } @media print { body { margin: 0; max-width: none; } }
"""


def certificate_page(certificate: Mapping[str, Any]) -> str:
    """Return the page of a certificate."""
    request, place = certificate["request"], certificate["ledger"]
    guard, forgetting = certificate["guard"], certificate["forgetting"]
    method, model = certificate["method"], certificate["model"]
    digest = hashlib.sha256(_STYLE.encode()).digest()
    policy = f"default-src 'none'; style-src 'sha256-{base64.b64encode(digest).decode()}'"
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>Certificate of {escape(request['id'])}</title><style>{_STYLE}</style></head><body>"
        f"<h1>Certificate of an applied deletion request</h1>"
        "<p>This page shows what the signed JSON file beside it says. Only that file can be "
        "checked: <code>tfrnet certificate --check FILE --public-key KEY</code>.</p>"
        + _section(
            "Request",
            {
                "id": request["id"],
                "received": certificate["received"],
                "applied": certificate["applied"],
                "examples": request["examples"],
                "keyed digest of its examples": request["digest"],
            },
        )
        + _section(
            "What was measured",
            {
                "loss on the request's answers": _change(forgetting),
                f"loss on {guard['examples']} guard examples": _change(guard),
                **{
                    f"loss on group {number} of them": _change(losses)
                    for number, losses in enumerate(guard.get("groups", []), 1)
                },
                **_wordings(forgetting),
            },
        )
        + _section(
            "How",
            {
                "method": f"{method['name']}, seed {method['seed']}",
                "base model": model["name"],
                "fingerprint of its weights": model["fingerprint"],
                "generation": certificate["generation"],
                "digest of the state": certificate["state_digest"],
                "versions": ", ".join(f"{n} {v}" for n, v in certificate["versions"].items()),
            },
        )
        + _section(
            "Ledger",
            {
                "state": place["state"],
                "line": f"{place['sequence']}, {place['hash']}",
                "head": f"{place['head']['sequence']}, {place['head']['hash']}",
                "issued": certificate["issued"]["time"],
                "signed by key": short(certificate["signer"]),
                "signature": certificate["signature"],
            },
        )
        + _section("Settings", method["settings"])
        + "<h2>What this does not say</h2><p>The losses say how much less likely the deleted "
        "answers became in the model that acts by this state. They do not show that nothing about "
        "them can be found in the base model's weights, nor in copies made before.</p>"
        "</body></html>\n"
    )


def _section(title: str, facts: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><th>{escape(str(name))}<td>{escape('not known' if value is None else str(value))}"
        for name, value in facts.items()
    )
    return f"<h2>{escape(title)}</h2><table>{rows}</table>"


def _wordings(forgetting: Mapping[str, Any]) -> dict[str, str]:
    """Return in how many wordings the answers were given, and are, if the request was audited."""
    if "wordings_tried" not in forgetting:
        return {}
    counts = (forgetting[f"wordings_{name}"] for name in ("tried", "given_before", "given_after"))
    return {"given in": Given(*counts).count}


def _change(losses: Mapping[str, Any]) -> str:
    before, after = losses["loss_before"], losses["loss_after"]
    shown = ["not known" if value is None else f"{value:.3f}" for value in (before, after)]
    return f"{shown[0]} before, {shown[1]} after"
