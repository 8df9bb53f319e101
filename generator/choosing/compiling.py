"""What the passes of a module take to compile where no kernel is cached.

The library compiles the kernels of an operation for its sizes and its configuration and keeps them by what they are made of: passes of
as many tokens share most of theirs, whatever their variant, and operations whose kernels know no sizes are compiled once. A target is
what the compiler makes, one for each processor of a core that a kernel runs on. The numbers below were fitted to the targets that ttnn
0.81.1 compiles for modules of seven families on mock devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from generator.geometry import RECURRENT, Resolved
from generator.layer import layer_steps
from generator.pass_time import ATTENTION
from generator.placement import choose_programs
from generator.shapes import enumerate_shapes

OF_A_MATMUL, OF_AN_OPERATION = 10, 1  # targets for each number of tokens
OF_ATTENTION = {"single": 5, "batched": 5, "ragged": 5, "chunked": 6, "chunked_batched": 4}  # for each pass
OF_SCORES = 15  # for each pass, where products with keys and values are matmuls
OF_A_MODULE, ONCE_OF_AN_OPERATION = 85, 5  # whatever its sizes: the head, drawing, norms, sums
Pass = tuple[str, int]  # variant, and tokens of all rows together


@dataclass(frozen=True)
class Compiling:
    """Targets of a model: `once`, for each number of tokens, and for each pass by its variant; `seconds_each` of a processor."""

    once: int
    size: int
    own: Mapping[str, int]
    seconds_each: float

    def seconds(self, passes: Iterable[Pass]) -> float:
        return self.seconds_each * self.targets(passes)

    def seconds_of_a_size(self, variant: str) -> float:
        """Of a pass with a number of tokens that no other has."""
        return self.seconds_each * (self.size + self.own[variant])

    def targets(self, passes: Iterable[Pass]) -> int:
        passes = tuple(passes)
        sizes = {tokens for _, tokens in passes}
        return self.once + self.size * len(sizes) + sum(self.own[variant] for variant, _ in passes)


def compiling(resolved: Resolved) -> Compiling:
    """Counted on the operations of one pass's layers. Matmuls of one kind of layer find most kernels of another's."""
    shape = enumerate_shapes(resolved)[0]
    cut = choose_programs(resolved, (shape,)).attentions[shape]
    layers = [layer_steps(resolved, shape, cut, kind) for kind in resolved.kinds]
    names = {step.operation for steps in layers for step in steps}
    roles = {step.role for steps in layers for step in steps if step.role}
    matmuls = max(len({step.role for step in steps if step.role}) for steps in layers)
    attentions = sum(kind != RECURRENT for kind in resolved.kinds)
    return Compiling(
        once=OF_A_MODULE + ONCE_OF_AN_OPERATION * len(names),
        size=OF_A_MATMUL * matmuls + OF_AN_OPERATION * len(names - roles - {ATTENTION}),
        own={
            variant: attentions * (OF_SCORES if resolved.attention_soft_cap else targets)
            for variant, targets in OF_ATTENTION.items()
        },
        seconds_each=resolved.board.rates.compile_seconds,
    )


def passes_of(
    resolved: Resolved, lengths: Iterable[int], waves: Sequence[int], ragged_tokens: Iterable[int]
) -> Iterator[Pass]:
    """The passes of a module with other lengths and waves, each a program. Where waves from the start of prompts are ragged, only
    chunks have waves of equal rows.
    """
    for length in lengths:
        for wave in waves:
            if wave > 1 and wave * length > resolved.wave_tokens:
                continue
            if wave == 1:
                yield "single", length
            elif not resolved.ragged_tokens:
                yield "batched", wave * length
            if not resolved.attention_soft_cap:
                yield "chunked" if wave == 1 else "chunked_batched", wave * length
    for tokens in ragged_tokens:
        yield "ragged", tokens
