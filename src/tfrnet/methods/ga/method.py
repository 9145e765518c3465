"""GA, gradient ascent (Jang et al., ACL 2023): L = -(token mean of the forget loss).

No retain term and no reference model. The loss has no lower bound; `forget_ceiling` ends a request
early. The original trains on all tokens of a text (loss_tokens=all) without an end of text; here
the default is the answer's tokens, since the prompt is not what should be forgotten.
"""

from __future__ import annotations

from tfrnet.core.search_space import SearchSpace
from tfrnet.methods.ga.config import GAConfig
from tfrnet.training.ascent import AscentUnlearner


class GradientAscent(AscentUnlearner):
    """Raises the loss of the forget answers."""

    method = "ga"
    label = "GA"
    config_class = GAConfig
    search_space = SearchSpace(
        {
            "learning_rate": (2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4),
            "steps": (1, 2, 5, 10, 20),
            "forget_ceiling": (3.0, 6.0, 12.0, 30.0, None),
        },
        start=GAConfig.tuned,
    )
    config: GAConfig


METHOD = GradientAscent
