"""Names and limits that planning, results, tables and pages share."""

from __future__ import annotations

from typing import Final, Literal

# The kinds of cells, by what is done and measured in them.
Kind = Literal["stream", "tofu", "robust"]
STREAM: Final = "stream"
TOFU: Final = "tofu"
ROBUST: Final = "robust"

# The untouched model, as a variant.
UNTOUCHED: Final = "none"
# The variant that is a model trained without the forget set.
ORACLE: Final = "retain90"

# The variant of a stream that is a model trained without anything the stream forgets.
TASK_ORACLE: Final = "oracle"

# Seeds from here on are for tuning; results are reported on those below.
FIRST_TUNING_SEED: Final = 1000
