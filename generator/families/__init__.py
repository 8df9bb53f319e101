"""The families that can be built. A new one is a file in this folder that has FAMILY."""

from __future__ import annotations

from generator.families.family import Family
from generator.found import found

FAMILIES: dict[str, Family] = {one.name: one for one in found(__name__, __path__, "FAMILY")}
