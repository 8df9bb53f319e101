"""The configurations that can be imported, by model_type. A new one is a file in this folder that has ROWS, of one or more."""

from __future__ import annotations

from collections.abc import Mapping

from generator.found import found
from generator.importing.config_class import ConfigClass, Wrapper

ROWS: tuple[ConfigClass | Wrapper, ...] = sum(found(__name__, __path__, "ROWS"), ())
CLASSES: tuple[ConfigClass, ...] = tuple(one for one in ROWS if isinstance(one, ConfigClass))
TABLE: Mapping[str, ConfigClass] = {one.model_type: one for one in CLASSES}
WRAPPERS: Mapping[str, Wrapper] = {one.model_type: one for one in ROWS if isinstance(one, Wrapper)}
