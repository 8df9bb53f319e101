"""Last hidden rows -> what the caller asked for: the sampling paths that a module may list."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

from runtime.errors import UnknownSampling
from runtime.resources import Scope

LOGITS = "logits"
ARGMAX = "argmax"
PATHS = (LOGITS, ARGMAX)


def sampling_path(module: ModuleType, sampling: str | None) -> str:
    """None asks for logits; any other name must be one that the module and the runtime both have."""
    name = LOGITS if sampling is None else sampling
    served = [path for path in PATHS if path in module.SAMPLING]
    if name not in served:
        raise UnknownSampling(f"sampling {name!r} is not served by this module; it serves {', '.join(served)}")
    return name


def postprocess(
    module: ModuleType, weights: SimpleNamespace, hidden: Any, last_rows: Any, sampling: str, scope: Scope
) -> Any:
    """Hidden rows of a pass -> logits [1, 1, rows, vocabulary], or token ids [1, 1, rows]. The output is owned by
    `scope`.
    """
    scores = scope.own(module.logits(hidden, last_rows, weights))
    if sampling == LOGITS:
        return scores
    return scope.own(module.argmax(scores))
