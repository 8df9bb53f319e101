"""Mistral: with a window and without, heads narrower than hidden / query heads."""

from __future__ import annotations

from dataclasses import replace

from tests.support.tiny.base import BASE, LINEAR, WINDOW, YARN

KIND = "Mistral"
GEOMETRIES = {"mistral": replace(BASE, rope=replace(BASE.rope, theta=1000000.0))}
VARIATIONS = {
    "mistral-heads-narrower-than-hidden": replace(BASE, hidden=160),
    "mistral-linear": replace(BASE, rope=LINEAR),
    "mistral-yarn": replace(BASE, rope=YARN),
}
WINDOWED = {"mistral-windowed": replace(BASE, sliding_window=WINDOW)}
