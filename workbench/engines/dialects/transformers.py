"""`transformers serve`: text both ways, no counts of draft tokens.

Source:
    transformers 5.24.0: `transformers/cli/serving/completion.py`; `_build_generation_config` in
    `transformers/cli/serving/utils.py`. It refuses fields that it does not know.
"""

import json
from typing import Any

from workbench.engines.record import Dialect, Query, neutral


def body(query: Query, model: str | None) -> dict[str, Any]:
    # Otherwise it draws only if the model's generation config says so, and cuts off at top-k 50.
    config = {
        "do_sample": query.warping.temperature > 0,
        "top_k": query.warping.top_k,
        "max_new_tokens": query.max_tokens,
        **({"min_p": query.warping.min_p} if query.warping.min_p else {}),
    }
    return {**neutral(query, model), "generation_config": json.dumps(config)}


TRANSFORMERS = Dialect(
    "transformers",
    body,
    sign="/load_model",
    cuts=frozenset({"top_k", "top_p", "min_p"}),
)
