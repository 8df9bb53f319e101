"""Where the emulator is stricter than the library, and where the library ends its process: rules over calls, with reasons.

The rules are held to both ways: the emulator refuses every call that one of the stricter rules describes, and where none
does it accepts what the library accepts.
"""

from __future__ import annotations

from math import prod
from tests.support.generated_cases import (
    BF16,
    BLOCK_FLOATS,
    FLOATS,
    INTEGERS,
    ROW_MAJOR,
    TILE,
    Attribute,
    Call,
    Made,
    Operand,
)
from tests.support.generated_delta import STRICTER as DELTA_RULES
from tests.support.generated_experts import STRICTER as EXPERT_RULES
from tests.support.generated_transfers import TRANSFERS

from tests.support.generated_properties import (
    Rule,
    any_tensor,
    bounds_do_not_cover,
    broadcast,
    cast_between_kinds,
    empty_range,
    head_columns,
    looked_up_layout,
    odd_pairs,
    other_dimension,
    partial_blocks,
    partial_tile,
    program_without_compute,
    shape_of,
    short_name,
    short_tables,
    size_of,
    start_off_the_chunks,
    tensor_is,
    type_named,
    unmodelled_transpose,
    unusual_norm_weight,
    without_memory,
)

NOT_MODELLED = "emitted modules do not use it"
NUMBERS = (
    *("dim", "dim1", "dim2", "k", "seed", "seeds", "batch_idx", "chunk_start_idx", "epsilon", "scale", "scalar"),
    *(
        "sliding_window_size",
        "b",
        "beta",
        "threshold",
        "repeats",
        "num_heads",
        "gate_column_offset",
        "input_column_offset",
    ),
)
PADDING = "padding would be taken for tokens"
MATMULS = ("linear", "minimal_matmul", "dit_minimal_matmul_addcmul_fused")
BINARY, REDUCTIONS = ("add", "mul", "subtract"), ("max", "sum")
ATTENTION, CHUNKED = "scaled_dot_product_attention", "chunked_scaled_dot_product_attention"


STRICTER = (
    {
        # everywhere
        "empty tensors": Rule(
            "a tensor without values or dimensions is a mistake of the caller's",
            (),
            lambda call: any_tensor(call, lambda tensor: tensor.volume == 0 or not tensor.shape)
            and short_name(call) not in (*TRANSFERS, "reshape", "unsqueeze_to_4D"),
        ),
        "true as a name": Rule(
            "the bindings take a bool for the number of a data type or layout, which is a mistake",
            (),
            lambda call: isinstance(call["dtype"], bool) or isinstance(call["layout"], bool),
        ),
        "true as a number": Rule(
            "a bool where a number belongs is a mistake, which the bindings let pass for some arguments",
            (),
            lambda call: any(isinstance(call[name], bool) for name in NUMBERS),
        ),
        "places on the host": Rule(
            "the library drops the place for some types and keeps it for others",
            ("zeros",),
            lambda call: call["device"] is None and call["memory_config"] is not None,
        ),
        # views and moves
        "empty ranges": Rule("an empty tensor is a mistake of the caller's", ("slice",), empty_range),
        "ranges into the padding": Rule(
            "what lies behind the values is not theirs",
            ("slice",),
            lambda call: isinstance(call["slice_end"], list)
            and any(end > size for end, size in zip(call["slice_end"], shape_of(call, "input_tensor"))),
        ),
        "other dimensions transposed": Rule(NOT_MODELLED, ("transpose",), unmodelled_transpose),
        # look-ups, norm and heads
        "indices of other ranks": Rule(
            NOT_MODELLED, ("embedding",), lambda call: len(shape_of(call, "input_tensor")) != 2
        ),
        "tables of one dimension": Rule(NOT_MODELLED, ("embedding",), lambda call: len(shape_of(call, "weight")) < 2),
        "indices in bfloat16": Rule(
            "bfloat16 holds whole numbers up to 256 only",
            ("embedding",),
            lambda call: tensor_is(call, "input_tensor", lambda ids: ids.dtype == BF16),
        ),
        "looked up as integers": Rule(
            "a table holds floats", ("embedding",), lambda call: type_named(call["dtype"]) in INTEGERS
        ),
        "type of rows looked up": Rule(
            "the library may ignore the type without a word where rows come out",
            ("embedding",),
            lambda call: looked_up_layout(call) == ROW_MAJOR and type_named(call["dtype"]) not in ("", BF16),
        ),
        "norm weights": Rule(
            "a norm has one weight for each column, which models keep in bfloat16 or float32",
            ("rms_norm",),
            unusual_norm_weight,
        ),
        "heads of part of a tile": Rule(
            "the library takes the next multiple of 32 for their width", ("nlp_create_qkv_heads",), head_columns
        ),
        "heads of padded tokens": Rule(
            PADDING, ("nlp_create_qkv_heads",), lambda call: size_of(call, "input", -2) % 32
        ),
        "transposed keys": Rule(
            NOT_MODELLED, ("nlp_create_qkv_heads",), lambda call: call["transpose_k_heads"] is not False
        ),
        "heads that share tiles": Rule("heads would share tiles", ("nlp_concat_heads",), partial_tile),
        "heads of five dimensions": Rule(
            NOT_MODELLED, ("nlp_concat_heads", "rotary_embedding_hf"), lambda call: len(shape_of(call, "input")) != 4
        ),
        "rotation of integers": Rule(
            "integers have no angles",
            ("rotary_embedding_hf",),
            lambda call: any_tensor(call, lambda tensor: tensor.dtype in INTEGERS),
        ),
        "rotation of part of a tile": Rule(
            "the last tile would be rotated in part", ("rotary_embedding_llama",), partial_tile
        ),
        "tables of other widths": Rule(
            "each column has its angle",
            ("rotary_embedding_hf",),
            lambda call: {size_of(call, name, -1) for name in ("input", "cos", "sin")} != {size_of(call, "input", -1)},
        ),
        "transformations of other ranks": Rule(
            NOT_MODELLED, ("rotary_embedding_llama",), lambda call: shape_of(call, "matrix") != (1, 1, 32, 32)
        ),
        "short tables": Rule("rows beyond the tables would be read", ("rotary_embedding_llama",), short_tables),
        # the cache
        "page tables of other forms": Rule(
            "the kernel reads rows of numbers",
            ("paged_fill_cache",),
            lambda call: tensor_is(call, "page_table", lambda table: table.layout == TILE or len(table.shape) != 2),
        ),
        "cache inputs of five dimensions": Rule(
            NOT_MODELLED, ("paged_fill_cache",), lambda call: len(shape_of(call, "input")) != 4
        ),
        "cache rows": Rule(
            "the kernel moves tiles",
            ("paged_fill_cache",),
            lambda call: any_tensor(call, lambda tensor: tensor.layout == ROW_MAJOR and tensor.dtype in FLOATS),
        ),
        "cache blocks": Rule(
            "a block is whole tiles, or half a tile",
            ("paged_fill_cache",),
            lambda call: size_of(call, "cache", -2) not in (16, 32, 64, 128),
        ),
        "cache heads of part of a tile": Rule("heads would share tiles", ("paged_fill_cache",), partial_tile),
        "caches of heads of other widths": Rule(
            "the library compares what the widths are padded to",
            ("paged_fill_cache",),
            lambda call: size_of(call, "input", -1) != size_of(call, "cache", -1),
        ),
        "page tables that are too short": Rule(
            "the library counts a block of 16 as the tile that it is padded to",
            ("paged_fill_cache",),
            lambda call: size_of(call, "input", 2) > size_of(call, "page_table", 1) * size_of(call, "cache", 2),
        ),
        "tokens of part of a block": Rule("the last block would hold padding", ("paged_fill_cache",), partial_blocks),
        # matrices
        "float bias": Rule(
            "a bias is added to floats",
            ("linear",),
            lambda call: tensor_is(call, "bias", lambda bias: bias.dtype in INTEGERS),
        ),
        "bias of several rows": Rule(NOT_MODELLED, ("linear",), lambda call: prod(shape_of(call, "bias")[:-1]) != 1),
        "bias beside a transposed weight": Rule(
            "the library refuses it in some places of memory, with a message about shapes",
            ("linear",),
            lambda call: call["transpose_b"] is True and isinstance(call["bias"], Operand),
        ),
        "bias in rows": Rule(
            NOT_MODELLED, ("linear",), lambda call: tensor_is(call, "bias", lambda bias: bias.layout == ROW_MAJOR)
        ),
        "integer products": Rule(
            "products of floats are floats", MATMULS, lambda call: type_named(call["dtype"]) in INTEGERS
        ),
        "fused activation": Rule(
            "activation= says it",
            ("linear",),
            lambda call: isinstance(call["program_config"], Made) and call["program_config"].fields["fused_activation"],
        ),
        "program without its compute configuration": Rule(
            "the limit of a subblock depends on it", ("linear", "matmul"), program_without_compute
        ),
        "matrices of one dimension": Rule(
            NOT_MODELLED,
            ("linear",),
            lambda call: min(len(shape_of(call, "input_tensor_a")), len(shape_of(call, "input_tensor_b"))) < 2,
        ),
        "minimal matmuls without their configurations": Rule(
            "the blocks that the library would choose are not modelled",
            MATMULS[1:],
            lambda call: not isinstance(call["config"], Made) or not isinstance(call["compute_kernel_config"], Made),
        ),
        "pairs in odd subblocks": Rule(
            "the kernel walks a subblock by twos and would read past its end", MATMULS[1:2], odd_pairs
        ),
        "residuals of other shapes": Rule(
            NOT_MODELLED,
            MATMULS[2:],
            lambda call: shape_of(call, "base") != (*shape_of(call, "a")[:-1], size_of(call, "b", -1))
            or prod(shape_of(call, "factors")) != size_of(call, "b", -1),
        ),
        # attention
        "attention that is not causal": Rule(NOT_MODELLED, (ATTENTION,), lambda call: call["is_causal"] is False),
        "attention to other lengths": Rule(
            "causal attention compares positions of equal sequences",
            (ATTENTION,),
            lambda call: size_of(call, "q", 2) != size_of(call, "k", 2),
        ),
        "windows of a batch": Rule(
            NOT_MODELLED,
            (ATTENTION,),
            lambda call: tensor_is(call, "cu_window_seqlens", lambda bounds: shape_of(call, "q")[:1] != (1,)),
        ),
        "bounds that do not cover": Rule("rows beyond the bounds would be read", (ATTENTION,), bounds_do_not_cover),
        "sinks in block floats": Rule(
            "the kernel reads the tile as bfloat16",
            (ATTENTION, CHUNKED),
            lambda call: tensor_is(call, "attention_sink", lambda sink: sink.dtype in BLOCK_FLOATS),
        ),
        "windows beyond signed numbers": Rule(
            "the kernel counts in signed numbers of 32 bits",
            (ATTENTION, CHUNKED),
            lambda call: isinstance(call["sliding_window_size"], int) and call["sliding_window_size"] >= 2**31,
        ),
        "both starts": Rule(
            "one of them is ignored without a word",
            (CHUNKED,),
            lambda call: call["chunk_start_idx"] is not None and call["chunk_start_idx_tensor"] is not None,
        ),
        "starts off the chunks": Rule(
            "the start must be a multiple of the chunks that the library then takes", (CHUNKED,), start_off_the_chunks
        ),
        "odd page tables": Rule(
            "only a start that is a number, which emitted modules never give, goes with rows that are not of 32 bytes",
            (CHUNKED,),
            lambda call: size_of(call, "page_table", -1) % 8,
        ),
        "values of other blocks": Rule(
            "keys and values share a page table", (CHUNKED,), lambda call: shape_of(call, "k") != shape_of(call, "v")
        ),
        "chunks of padded tokens": Rule(PADDING, (CHUNKED,), lambda call: size_of(call, "q", 2) % 32),
        # element by element and along rows
        "broadcasts": Rule(NOT_MODELLED, BINARY, broadcast),
        "sums of rows": Rule(
            NOT_MODELLED, BINARY, lambda call: any_tensor(call, lambda tensor: tensor.layout == ROW_MAJOR)
        ),
        "sums of integers": Rule(
            NOT_MODELLED, BINARY, lambda call: any_tensor(call, lambda tensor: tensor.dtype in INTEGERS)
        ),
        "sums as integers": Rule(NOT_MODELLED, BINARY, lambda call: type_named(call["dtype"]) in INTEGERS),
        "activations by number or text": Rule(
            "an activation has a name",
            BINARY,
            lambda call: any(
                isinstance(call[f"input_tensor_{side}_activations"], list)
                and any(not isinstance(item, Attribute) for item in call[f"input_tensor_{side}_activations"])
                for side in "ab"
            ),
        ),
        "numbers as operands": Rule(
            NOT_MODELLED,
            BINARY,
            lambda call: not isinstance(call["a"], Operand)
            or (not isinstance(call["b"], Operand) and short_name(call) != "mul"),
        ),
        "activations of numbers": Rule(
            "a number can be stated as it should be",
            ("mul",),
            lambda call: isinstance(call["b"], (int, float)) and call["input_tensor_b_activations"],
        ),
        "factors without end": Rule(
            "infinity leaves nothing of what it multiplies",
            ("mul",),
            lambda call: isinstance(call["b"], float) and abs(call["b"]) > 3.5e38,
        ),
        "variants by number": Rule("a variant has a name", ("gelu",), lambda call: isinstance(call["variant"], int)),
        "casts between floats and integers": Rule(NOT_MODELLED, ("typecast",), cast_between_kinds),
        "other dimensions": Rule(NOT_MODELLED, ("max", "sum", "argmax", "topk", "gather"), other_dimension),
        "reductions of rows": Rule(
            NOT_MODELLED,
            REDUCTIONS,
            lambda call: tensor_is(call, "input_tensor", lambda tensor: tensor.layout == ROW_MAJOR),
        ),
        "reductions of integers": Rule(
            NOT_MODELLED,
            (*REDUCTIONS, "argmax"),
            lambda call: tensor_is(call, "input_tensor", lambda tensor: tensor.dtype in INTEGERS),
        ),
        "no candidates": Rule("an empty tensor is a mistake of the caller's", ("topk",), lambda call: call["k"] == 0),
        "other rows gathered": Rule(
            NOT_MODELLED, ("gather",), lambda call: shape_of(call, "input")[:-1] != shape_of(call, "index")[:-1]
        ),
        "gathering rows": Rule(
            NOT_MODELLED, ("gather",), lambda call: any_tensor(call, lambda tensor: tensor.layout == ROW_MAJOR)
        ),
        # drawing a token
        "seeds without users": Rule(
            NOT_MODELLED,
            ("manual_seed",),
            lambda call: isinstance(call["seeds"], Operand) != isinstance(call["user_ids"], Operand),
        ),
    }
    | EXPERT_RULES
    | DELTA_RULES
)


CRASHES = {
    "tensors without device memory": Rule(
        "many operations look up the device of a tensor before they check that it has one", (), without_memory
    ),
    "empty tensors": Rule(
        "these divide by the number of tiles or heads",
        ("nlp_concat_heads", "rotary_embedding_llama", "transpose", "typecast", "repeat_interleave", "permute"),
        lambda call: any_tensor(call, lambda tensor: tensor.volume == 0),
    ),
    "heads of five dimensions": Rule(
        "the number of heads is taken from the wrong place and divides",
        ("rotary_embedding_llama",),
        lambda call: len(shape_of(call, "input")) > 4,
    ),
}


def described_by(rules: dict[str, Rule], call: Call) -> list[str]:
    return [name for name, rule in rules.items() if rule.describes(call)]
