"""The modelled time to a first token beside what was published of hand-written runtimes on boards.

Published figures are from the vendor's public model pages for its own runtime: other programs than those emitted here, with the
host's part in them. The ratio says how far the model, which counts the device alone, lies from what such a runtime reached.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.measure import Figure
from generator import catalog, geometry, manifest, targets
from generator.pass_time import pass_time
from generator.placement import choose_programs
from generator.shapes import PassShape

CHUNK = 2048


@dataclass(frozen=True)
class Published:
    """Seconds to the first token of one prompt: measured, least and greatest of those published, and the vendor's theory."""

    model: str
    target: str
    tokens: int
    measured: tuple[float, float]
    theory: float | None = None


PUBLISHED = (
    Published("llama-3.1-8b", "n150", 128, (0.104, 0.104), 0.051),
    Published("llama-3.1-8b", "p150", 128, (0.057, 0.076), 0.030),
    Published("llama-3.2-1b", "n150", 128, (0.023, 0.026), 0.009),
    Published("llama-3.2-3b", "n150", 128, (0.052, 0.055), 0.021),
    Published("llama-3.2-1b", "n150", 65536, (20.1, 20.1)),
    Published("llama-3.2-3b", "n150", 65536, (46.7, 46.7)),
    Published("llama-3.1-8b", "n150", 65536, (64.4, 64.4)),
)


def modelled(model: str, target: str, tokens: int) -> float:
    """Seconds of the passes of one prompt: one of its own length, or whole chunks."""
    resolved = geometry.resolve(manifest.load(catalog.BUILT_IN, model), targets.load_board(catalog.BUILT_IN, target))
    block = resolved.block_size
    if tokens <= CHUNK:
        shape = PassShape("single", 1, tokens, tokens // block, 0, "last", "")
        return pass_time(resolved, choose_programs(resolved, (shape,)), shape).seconds
    wide = replace(resolved, context=max(tokens, resolved.context))
    shape = PassShape("chunked", 1, CHUNK, CHUNK // block, wide.context // block, "last", "")
    programs = choose_programs(wide, (shape,))
    passes = [pass_time(wide, programs, shape, start) for start in range(0, tokens, CHUNK)]
    return sum(one.without_tail for one in passes) + passes[-1].tail


def figure_of(one: Published) -> str:
    return f"modelled time to a first token, {one.model} {one.target} {one.tokens}"


def measure() -> list[Figure]:
    """Prints the table. Its figures have no limit, since nothing here can be held to a board."""
    figures = []
    print(
        f"{'model':<14} {'board':<5} {'tokens':>6} {'modelled':>9} {'published':>15} {'theory':>8}  published / modelled"
    )
    for one in PUBLISHED:
        seconds = modelled(one.model, one.target, one.tokens)
        least, greatest = one.measured
        ratios = (least / seconds, greatest / seconds)
        span = f"{least:.3f}" if least == greatest else f"{least:.3f} to {greatest:.3f}"
        theory = "-" if one.theory is None else f"{one.theory:.3f}"
        told = f"{ratios[0]:.2f}" if least == greatest else f"{ratios[0]:.2f} to {ratios[1]:.2f}"
        print(f"{one.model:<14} {one.target:<5} {one.tokens:>6} {seconds:>8.3f}s {span:>14}s {theory:>7}s  {told}")
        figures.append(Figure(figure_of(one), "s", (seconds,)))
    return figures
