"""What Prometheus reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """Figures of one service; none of them names a request."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._queue = Gauge("tfrnet_requests", "Requests by state", ["state"], registry=registry)
        self._overdue = Gauge(
            "tfrnet_requests_overdue", "Requests past their deadline", registry=registry
        )
        self._generation = Gauge("tfrnet_generation", "Generation that answers", registry=registry)
        self._lag = Gauge(
            "tfrnet_replica_lag_seconds", "How long a replica has been behind", registry=registry
        )
        self._completions = Gauge(
            "tfrnet_completions", "Completions now", ["state"], registry=registry
        )
        self._stages = Histogram(
            "tfrnet_stage_seconds",
            "Seconds of a request by stage",
            ["stage"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._losses = Gauge(
            "tfrnet_loss", "Losses of the last request", ["of", "when"], registry=registry
        )
        self._capacity = Gauge(
            "tfrnet_capacity", "Share of channels above the dormant threshold", registry=registry
        )
        self._change = Gauge(
            "tfrnet_mask_change", "Change of channels by the mask", ["of"], registry=registry
        )
        self._outcomes = Counter(
            "tfrnet_outcomes", "Requests that ended", ["outcome"], registry=registry
        )
        self.tokens = Counter("tfrnet_tokens", "Tokens", ["kind"], registry=registry)
        self.errors = Counter("tfrnet_errors", "Errors", ["where"], registry=registry)
        self.deliveries = Counter("tfrnet_webhooks", "Webhooks", ["result"], registry=registry)
        self._answers = Histogram(
            "tfrnet_http_seconds",
            "Seconds until an answer is complete",
            ["method", "route", "status"],
            buckets=_SECONDS,
            registry=registry,
        )

    def http(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._answers.labels(method, route, str(status)).observe(seconds)
        if status >= 500:
            self.errors.labels("http").inc()

    def applied(self, outcome: Mapping[str, Any]) -> None:
        """Take in what the ledger says of a request."""
        self._outcomes.labels(outcome["outcome"]).inc()
        for stage, seconds in outcome.get("seconds", {}).items():
            self._stages.labels(stage).observe(seconds)
        for of in ("forget", "guard"):
            for when in ("before", "after"):
                loss = outcome.get(f"{of}_loss_{when}")
                self._losses.labels(of, when).set(math.nan if loss is None else loss)
        if outcome.get("capacity") is not None:
            self._capacity.set(outcome["capacity"])
        for of in ("mean", "largest") if outcome.get("mask") else ():
            self._change.labels(of).set(outcome["mask"][f"{of}_change"])

    def page(self, facts: Callable[[], Mapping[str, Any]]) -> bytes:
        """Return the page, with what is true at this moment."""
        now = facts()
        for state, count in now["queue"].items():
            self._queue.labels(state).set(count)
        self._overdue.set(now["overdue"])
        self._generation.set(now["generation"])
        self._lag.set(now["lag"])
        for state, count in now["completions"].items():
            self._completions.labels(state).set(count)
        return generate_latest(self._registry)
