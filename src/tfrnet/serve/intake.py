"""Taking a deletion request in: checked as far as can be before it is accepted."""

from __future__ import annotations

import time
from datetime import UTC, timedelta

from tfrnet.core.errors import InputError
from tfrnet.data.requests import parse_request
from tfrnet.serve.queue import ConflictError, Entry, Queue, Submission, refuse_ambiguous_id
from tfrnet.serve.schema import RequestIn
from tfrnet.serve.webhooks import Addresses
from tfrnet.session import Session
from tfrnet.state.applied import is_applied
from tfrnet.state.digests import request_digest

# What can be done to a request stands after its id in an address.
ACTIONS = ("events", "approve", "deny", "cancel", "certificate")
# GDPR, Art. 12(3): at the latest within one month.
USUAL_TIME = timedelta(days=30)
_LONGEST_TIME = timedelta(days=3650)


class Intake:
    """Checks what is sent and puts it into the queue."""

    def __init__(self, session: Session, queue: Queue, addresses: Addresses) -> None:
        self._session = session
        self._queue = queue
        self._addresses = addresses

    def submit(self, sent: RequestIn, by: str) -> tuple[Entry, bool]:
        """Return the request as it stands, and whether it is new."""
        body = sent.model_dump(mode="json", exclude_none=True)
        examples = body["examples"]
        request = parse_request({"id": sent.id, "examples": examples}, "the body")
        refuse_ambiguous_id(request.id, ACTIONS)
        for url in sent.callback_urls:
            self._addresses.refuse(url)
        store = self._session.store
        digest = request_digest(request, store.key())
        try:
            is_applied(store, request)
        except InputError as error:
            raise ConflictError(str(error)) from None
        self._session.unlearner.prepare([request])
        submission = Submission(
            request, digest, body, self._deadline(sent), tuple(sent.callback_urls), by
        )
        return self._queue.submit(submission, self.may_be_tried_again)

    def may_be_tried_again(self, entry: Entry) -> bool:
        """Tell whether an ended request may be sent once more: undone, cancelled or failed ones."""
        history = self._session.store.history
        if entry.state == "completed":
            return entry.id not in history.applied
        if entry.state == "rejected":
            return entry.id not in history.rejected
        return True

    @staticmethod
    def _deadline(sent: RequestIn) -> float:
        if sent.due is None:
            return time.time() + USUAL_TIME.total_seconds()
        due = sent.due if sent.due.tzinfo else sent.due.replace(tzinfo=UTC)
        if due.timestamp() < time.time():
            raise InputError("due is in the past")
        if due.timestamp() > time.time() + _LONGEST_TIME.total_seconds():
            raise InputError("due is more than ten years from now")
        return due.timestamp()
