"""Mixtral."""

from __future__ import annotations

from dataclasses import replace

from runtime.tables import Experts
from tests.support.tiny.base import BASE, WINDOW

KIND = "Mixtral"
GEOMETRIES = {
    "mixtral": replace(
        BASE,
        intermediate=128,
        experts=Experts(count=4, per_token=2, intermediate=128, renormalise=True, published="mixtral"),
    ),
}
WINDOWED = {"mixtral-windowed": replace(GEOMETRIES["mixtral"], sliding_window=WINDOW)}
