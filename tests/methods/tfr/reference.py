"""The method written a second time, straight from its contract, in float64 and without haste.

One example at a time, all logits, NumPy after the gradients; it shares no code with the package.
"""

from __future__ import annotations

import math

import numpy as np
import torch


class Reference:
    """State and update of the paper's method for one model."""

    def __init__(self, model, tokenizer, module_names, **settings):
        self.model, self.tokenizer, self.s = model.double(), tokenizer, settings
        self.modules = [model.get_submodule(name) for name in module_names]
        self.widths = [m.nf if hasattr(m, "nf") else m.out_features for m in self.modules]
        count = sum(self.widths)
        self.state = {
            "mask": np.ones(count),
            **{k: np.zeros(count) for k in ("risk", "velocity", "variance", "hits", "priority")},
        }

    def loss(self, example, mask):
        """Return L(x), its gradient for the mask, and the number of tokens."""
        leaves = [
            torch.tensor(part, requires_grad=True)
            for part in np.split(mask, np.cumsum(self.widths)[:-1])
        ]
        hooks = [
            module.register_forward_hook(lambda m, i, out, leaf=leaf: out * leaf)
            for module, leaf in zip(self.modules, leaves, strict=True)
        ]
        text = f"{example.prompt} {example.answer}"
        ids = self.tokenizer(text)["input_ids"]
        first = len(self.tokenizer(example.prompt)["input_ids"])
        logits = self.model(torch.tensor([ids])).logits[0].double()
        nll = -torch.log_softmax(logits, -1)
        loss = sum(nll[i - 1, ids[i]] for i in range(first, len(ids))) / (len(ids) - first)
        loss.backward()
        for hook in hooks:
            hook.remove()
        gradient = np.concatenate([leaf.grad.numpy() for leaf in leaves])
        return loss.item(), gradient, len(ids)

    def psi(self, examples):
        scores = [
            np.abs(gradient) / tokens
            for _, gradient, tokens in (self.loss(x, self.state["mask"]) for x in examples)
        ]
        return np.mean(scores, axis=0)

    def mean_loss(self, examples, mask):
        return float(np.mean([self.loss(x, mask)[0] for x in examples]))

    def standardise(self, psi):
        out = []
        for part in np.split(psi, np.cumsum(self.widths)[:-1]):
            centred = part - np.median(part)
            spread = 1.4826 * np.median(np.abs(centred))
            if spread == 0:
                spread = 1.2533 * np.mean(np.abs(centred))
            out.append(centred / spread if spread else np.zeros_like(part))
        return np.concatenate(out)

    def request(self, forget, retain, guard):
        """Apply one request; return (accepted, P, Q, U, guard before, guard after)."""
        s, old = self.s, self.state
        f, r = self.standardise(self.psi(forget)), self.standardise(self.psi(retain))
        chi = np.maximum(s["forget_weight"] * f - s["retain_weight"] * r - s["risk_margin"], 0)
        risk = s["risk_decay"] * old["risk"] + (1 - s["risk_decay"]) * chi
        velocity = risk - old["risk"]
        acceleration = velocity - old["velocity"]
        variance = (
            s["variance_decay"] * old["variance"] + (1 - s["variance_decay"]) * (chi - risk) ** 2
        )
        kappa = np.quantile(chi[chi > 0], s["hit_quantile"]) if (chi > 0).any() else 0.0
        hits = s["hit_decay"] * old["hits"] + (1 - s["hit_decay"]) * (chi > kappa)
        priority = (
            risk
            * (1 + s["hit_weight"] * hits)
            / (1 + np.abs(velocity) + np.abs(acceleration) + np.sqrt(variance))
        )
        tau = s["dormant_threshold"]
        mask, count = old["mask"], len(chi)
        room = math.floor(s["max_sparsity"] * count) - int((mask <= tau).sum())
        k = max(0, min(s["budget"], room))
        active = [c for c in range(count) if mask[c] > tau and priority[c] > 0]
        chosen = sorted(active, key=lambda c: (-priority[c], c))[:k]
        hat = mask.copy()
        hat[chosen] *= 1 - s["suppress_strength"]
        past_priority = old["priority"] if s["use_history"] else np.zeros(count)
        past_hits = old["hits"] if s["use_history"] else np.zeros(count)
        pool = [
            c
            for c in range(count)
            if hat[c] <= tau
            and chi[c] <= s["current_risk_ceiling"]
            and past_priority[c] <= s["history_risk_ceiling"]
        ]
        score = (
            s["retain_gain"] * r
            - s["current_penalty"] * chi
            - s["history_penalty"] * past_priority
            - s["hit_penalty"] * past_hits
        )
        recovered = [
            c
            for c in pool
            if score[c] > s["recovery_threshold"] and c not in chosen and s["use_recovery"]
        ]
        new = hat.copy()
        for c in recovered:
            new[c] += s["recover_strength"] * (1 - hat[c])
        new = np.clip(new, 0, 1)
        before, after = self.mean_loss(guard, mask), self.mean_loss(guard, new)
        limit = (1 + s["guard_relative"]) * before + s["guard_absolute"]
        accepted = math.isfinite(after) and (after <= limit or not s["use_guard"])
        if accepted:
            self.state = {
                "mask": new,
                "risk": risk,
                "velocity": velocity,
                "variance": variance,
                "hits": hits,
                "priority": priority,
            }
        return accepted, chosen, pool, recovered, before, after
