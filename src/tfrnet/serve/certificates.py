"""Certificates of applied requests, signed with the state's key."""

from __future__ import annotations

from typing import Any

from tfrnet.core.clock import now
from tfrnet.core.errors import InputError
from tfrnet.core.signing import named_key
from tfrnet.serve.problems import Problem
from tfrnet.serve.service import Service
from tfrnet.state.certificate import make_certificate
from tfrnet.state.signer import Signer


def issue_certificate(service: Service, name: str) -> dict[str, Any]:
    """Return the certificate of a request that is in force."""
    primary = service.needed_primary
    primary.queue.find(name)
    store = primary.session.store
    path = named_key(service.options.signing_key)
    key = Signer(service.folder, path).key_for(store.public_key)
    if key is None:
        raise Problem(
            409,
            "the state is not signed, so it cannot issue certificates; start the service with "
            "--key FILE",
        )
    try:
        return make_certificate(store.manifest, store.entries, name, now(), key)
    except InputError as error:
        raise Problem(409, str(error)) from None
