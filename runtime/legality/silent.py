"""Rules that the library does not check: it accepts such calls and computes something else, or hangs a device.

One function for each rule, which takes a call and yields what is wrong with it. Tensors are only asked for their
shapes. Rules about whole passes (transfers inside a trace, buffers over L1) are at the end. Observed with ttnn
0.81.1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from runtime.tables import TILE


@dataclass(frozen=True)
class Arguments:
    """A call of the library before it is made."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def get(self, position: int | None, name: str) -> Any:
        """An argument by its name or its place among the positional ones; None where it is left out."""
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[position] if position is not None and position < len(self.args) else None


Rule = Callable[[Arguments, int], Iterator[str]]

ATTENTION = "ttnn.transformer.scaled_dot_product_attention"
CHUNKED = "ttnn.transformer.chunked_scaled_dot_product_attention"
SPLIT_HEADS = "ttnn.experimental.nlp_create_qkv_heads"
INTERLEAVED_ROTARY = "ttnn.experimental.rotary_embedding_llama"
FILL_CACHE = "ttnn.experimental.paged_fill_cache"


def scale_is_a_float32(call: Arguments, alignment: int) -> Iterator[str]:
    """The kernel takes float32. One operation refuses any other number and all the others round it without a word, so
    that a module would compute something else than what it states."""
    scale = call.get(None, "scale")
    if scale is None:
        return
    rounded = struct.unpack("<f", struct.pack("<f", scale))[0]
    if type(scale) is not float or rounded != scale:
        yield f"scale is {scale!r}, which is no float32: the kernel would compute with {rounded!r}; state that number"


def chunked_attention_states_its_chunks(call: Arguments, alignment: int) -> Iterator[str]:
    """Without a configuration the library takes chunk sizes of its own and does not hold tokens or start to them."""
    program = call.get(None, "program_config")
    if program is None:
        yield "chunked attention has no program_config: starts and tokens are then held against no chunk size"
        return
    tokens = call.get(0, "input_tensor_q").shape[2]
    for side, size in (("q", program.q_chunk_size), ("k", program.k_chunk_size)):
        if alignment % size:
            yield f"chunks may start at any multiple of {alignment} tokens, which {side}_chunk_size {size} does not divide"
    if tokens % program.q_chunk_size:
        yield f"a chunk of {tokens} tokens is no multiple of q_chunk_size {program.q_chunk_size}: its end is not computed"


def chunked_attention_has_one_start(call: Arguments, alignment: int) -> Iterator[str]:
    """The start is a number or a tensor; with both, the kernel need not read the one that was meant."""
    starts = [call.get(4, "chunk_start_idx"), call.get(None, "chunk_start_idx_tensor")]
    given = sum(start is not None for start in starts)
    if given != 1:
        yield f"chunked attention is given {given} starts; give chunk_start_idx or chunk_start_idx_tensor"


def heads_fill_the_width(call: Arguments, alignment: int) -> Iterator[str]:
    """The library cuts heads of whole tiles out of whatever width there is."""
    width = call.get(0, "input").shape[-1]
    query, key_value = call.get(None, "num_heads"), call.get(None, "num_kv_heads")
    heads = query + 2 * (query if key_value is None else key_value)
    if width % heads:
        yield f"a width of {width} holds no whole number of elements for each of {heads} heads"
    elif width // heads % TILE:
        yield f"heads of {width // heads} elements are no whole tiles of {TILE}: the library would return wider ones"


def interleaved_rotary_takes_whole_tiles(call: Arguments, alignment: int) -> Iterator[str]:
    """Pairs of the last, partial tile are turned with elements that do not exist."""
    size = call.get(0, "input_tensor").shape[-1]
    if size % TILE:
        yield f"heads of {size} elements are no whole tiles of {TILE}, which rotary_embedding_llama needs"


def filled_tokens_are_whole_blocks(call: Arguments, alignment: int) -> Iterator[str]:
    """The last, partial block is written as if it were whole, over keys or values that may belong to another row."""
    block, tokens = call.get(0, "cache_tensor").shape[2], call.get(1, "input_tensor").shape[2]
    if tokens % block:
        yield f"{tokens} tokens are written to blocks of {block}, of which they are no multiple"


RULES: dict[str, tuple[Rule, ...]] = {
    ATTENTION: (scale_is_a_float32,),
    CHUNKED: (scale_is_a_float32, chunked_attention_states_its_chunks, chunked_attention_has_one_start),
    SPLIT_HEADS: (heads_fill_the_width,),
    INTERLEAVED_ROTARY: (interleaved_rotary_takes_whole_tiles,),
    FILL_CACHE: (filled_tokens_are_whole_blocks,),
}


def broken_rules(call: Arguments, alignment: int) -> Iterable[str]:
    """What is wrong with a call that the library may accept. `alignment`: every start of a chunk is a multiple of so
    many tokens."""
    return [message for rule in RULES.get(call.name, ()) for message in rule(call, alignment)]


def transfer_in_trace(kind: str, name: str) -> str:
    """A trace holds device commands only: what the host did while it was recorded is not repeated when it is replayed,
    so that the replay would use the values of the recording."""
    what = "writes host values to the device" if kind == "upload" else "reads device values back to the host"
    return f"{what} ({name}) inside the body that a trace records, where a replay does not repeat it"


def over_l1(name: str, buffers: int, tensors: int, limit: int) -> str | None:
    """Without dispatch the library does not hold circular buffers of attention against the memory of a core."""
    if buffers + tensors <= limit:
        return None
    return (
        f"{name} needs {buffers} bytes of buffers beside {tensors} of tensors in the L1 of one core, which has {limit}"
    )
