"""Prefill of qwen3.5-27b on p150. Written by codegen, do not edit.

Rebuild:   codegen build qwen3.5-27b --target p150
Manifest:  models/qwen3.5-27b.toml
Geometry:  f8a3b07d9aeed841

    64 layers of 5120 hidden and 17408 intermediate, 24 query and 4 key-value heads of 256, 248320 vocabulary
    12288 tokens of context, 384 key-value blocks of 32 tokens
    bfloat8_b weights, bfloat8_b keys and values, bfloat16 activations

    variant          rows            tokens a row
    single           1               96 320 640 1280 2048
    batched          2               96 320 640
    chunked          1               96 320 640 1280 2048
    chunked_batched  2               96 320 640
"""

from runtime.backend import ttnn
from runtime.phases import Convolved, Projected, Recurred, phase
from runtime.tables import (
    REPLICATE,
    Board,
    DeltaTables,
    GatedDeltaNet,
    Geometry,
    Input,
    Places,
    Rope,
    Shape,
    State,
    Store,
    Weight,
)

# --- constants: geometry, precision, memory and compute -------------------------------------------------------------

MODEL = "qwen3.5-27b"
TARGET = "p150"

VOCABULARY = 248320  # model.vocabulary
HIDDEN = 5120  # model.hidden
INTERMEDIATE = 17408  # model.intermediate
LAYERS = 64  # model.layers
QUERY_HEADS = 24  # model.query_heads
KEY_VALUE_HEADS = 4  # model.key_value_heads
HEAD_DIM = 256  # model.head_dim
QUERY_WIDTH = 6144  # 24 query heads x 256
QUERY_KEY_VALUE_WIDTH = 8192  # (24 query + 2 x 4 key-value heads) x 256
ATTENTION_SCALE = 0.0625  # 256 ** -0.5, exact in float32
NORM_EPSILON = 1e-06  # model.norm_epsilon
ROTARY_STYLE = "half_split"  # model.head_dim
LAYER_KINDS = ("gated_delta_net", "gated_delta_net", "gated_delta_net", "full") * 16  # model.layer_kinds

ATTENTION_LAYERS = 16  # with keys and values
RECURRENT_LAYERS = 48  # with a state and a tail
KEY_HEADS = 16  # model.gated_delta_net.key_heads
VALUE_HEADS = 48  # model.gated_delta_net.value_heads
KEY_DIM = 128  # model.gated_delta_net.key_dim
VALUE_DIM = 128  # model.gated_delta_net.value_dim
KEY_WIDTH = 2048  # 16 key heads x 128
VALUE_WIDTH = 6144  # 48 value heads x 128
CONVOLUTION_WIDTH = 10240  # queries and keys of 2048, values of 6144
TAIL_TOKENS = 3  # that the convolution sees before a token: model.gated_delta_net.kernel 4 - 1
RECURRENT_CHUNK = 32  # tokens at a time: what the operation takes with raw heads
STATE_SLOTS = 2  # target.p150.state_slots

TILE = 32
ROW_SLOTS = TILE  # last rows that one pass can pick: one tile of rows
TOP_K = 32  # candidates that sampling draws from: one tile of columns
CONTEXT = 12288  # target.p150.context
BLOCK_SIZE = 32  # target.p150.block_size
KEY_VALUE_BLOCKS = 384  # target.p150.key_value_blocks
PREFILL_CHUNK = 2048  # target.p150.prefill_chunk
ALIGNMENT = 128  # lcm(32 block, 128 attention chunk, 32 recurrent chunk)

GEOMETRY = Geometry(
    vocabulary=248320,
    hidden=HIDDEN,
    intermediate=17408,
    layers=LAYERS,
    query_heads=24,
    key_value_heads=4,
    head_dim=HEAD_DIM,
    norm_epsilon=NORM_EPSILON,
    query_key_value_bias=False,
    query_key_norm=True,
    tied_embeddings=False,
    rope=Rope(
        kind="default",
        theta=10000000.0,
        dimensions=64,
    ),
    fused_projections=False,
    full_attention_layers=(3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63),
    unit_offset_norms=True,
    attention_gate=True,
    gated_delta_net=GatedDeltaNet(
        key_heads=KEY_HEADS,
        value_heads=VALUE_HEADS,
        key_dim=KEY_DIM,
        value_dim=VALUE_DIM,
        kernel=4,
        published="split",
    ),
)
BOARD = Board(
    name="p150",
    architecture="blackhole",
    grid=(11, 10),
    dram_banks=8,
    dram_bank_bytes=4277141376,
    dram_alignment=64,
    l1_bank_bytes=1461120,
    l1_limit=1572864,
)

ACTIVATION_DTYPE = ttnn.bfloat16  # target.p150.dtypes.activation
WEIGHT_DTYPE = ttnn.bfloat8_b  # target.p150.dtypes.weights
INDEX_DTYPE = ttnn.uint32
STATE_DTYPE = ttnn.float32  # target.p150.dtypes.state
RATE_DTYPE = ttnn.bfloat16  # as published
EMBEDDING_DTYPE = ttnn.bfloat16  # target.p150.dtypes.embedding
HEAD_DTYPE = ttnn.bfloat8_b  # target.p150.dtypes.head
KEY_VALUE_DTYPE = ttnn.bfloat8_b  # target.p150.dtypes.key_value
HEADS_DTYPE = KEY_VALUE_DTYPE  # as the caches hold them, so that no cast follows
NORM_DTYPE = ttnn.bfloat16  # as published
BIAS_DTYPE = ttnn.bfloat16  # as published
ROTARY_DTYPE = ttnn.bfloat16  # the one type that both rotary operations take
DRAM = ttnn.DRAM_MEMORY_CONFIG
L1 = ttnn.L1_MEMORY_CONFIG
TILED = ttnn.TILE_LAYOUT
ROW_MAJOR = ttnn.ROW_MAJOR_LAYOUT

NORM_COMPUTE = ttnn.WormholeComputeKernelConfig(  # a small part of a pass
    math_fidelity=ttnn.MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
ROTARY_COMPUTE = ttnn.WormholeComputeKernelConfig(  # a small part of a pass
    math_fidelity=ttnn.MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
RATE_COMPUTE = ttnn.WormholeComputeKernelConfig(  # a small part of a pass
    math_fidelity=ttnn.MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
MATMUL_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat8_b weights
    math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
HEAD_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat8_b head
    math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
ATTENTION_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat8_b keys and values
    math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
DELTA_COMPUTE = (
    ttnn.WormholeComputeKernelConfig(  # the one arithmetic that the recurrence takes; its kernels do not sum in L1
        math_fidelity=ttnn.MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=False
    )
)

# --- tables: the closed set of passes and their programs ------------------------------------------------------------

WAVES = (1, 2)  # target.p150.waves
LENGTHS = (96, 320, 640, 1280, 2048)  # target.p150.lengths

# variant, rows, tokens a row, fill pages, read pages (to the padded end of any chunk), rows for the head, body digest
TRACES = (
    Shape("single", 1, 96, 3, 0, "last", "b623b55da9b97be4"),
    Shape("single", 1, 320, 10, 0, "last", "bd468ad4ee7158d5"),
    Shape("single", 1, 640, 20, 0, "last", "0f52c4d62b5ec84c"),
    Shape("single", 1, 1280, 40, 0, "last", "dbb9bf87c5052d88"),
    Shape("single", 1, 2048, 64, 0, "last", "dd2354368a4d4c5b"),
    Shape("batched", 2, 96, 6, 0, "last", "c423449d83ab41ec"),
    Shape("batched", 2, 320, 20, 0, "last", "1c3097c89560bb43"),
    Shape("batched", 2, 640, 40, 0, "last", "aa600f91166e27c1"),
    Shape("chunked", 1, 96, 3, 408, "last", "c11465e2e782f8b7"),
    Shape("chunked", 1, 320, 10, 408, "last", "4d6687da02a8ba2c"),
    Shape("chunked", 1, 640, 20, 408, "last", "d0b097a6b42fb9f9"),
    Shape("chunked", 1, 1280, 40, 408, "last", "78ab66356359590c"),
    Shape("chunked", 1, 2048, 64, 408, "last", "68fce091d3e44d79"),
    Shape("chunked_batched", 2, 96, 6, 408, "last", "767dcfd35f6d41a3"),
    Shape("chunked_batched", 2, 320, 20, 408, "last", "b1dc61471da4b1cb"),
    Shape("chunked_batched", 2, 640, 40, 408, "last", "4a1f9c45172ddfd9"),
)
SAMPLING = ("logits", "argmax", "top_k")
PROGRAMS = tuple((shape.digest, ending) for shape in TRACES for ending in SAMPLING)


def multicast_2d(columns, rows, inner, subblock_m, subblock_n, block_m, block_n, core_m, core_n):
    """Rows of cores share tokens and columns of cores share output columns; all but the grid counts tiles."""
    return ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        compute_with_storage_grid_size=(columns, rows),
        in0_block_w=inner,
        out_subblock_h=subblock_m,
        out_subblock_w=subblock_n,
        out_block_h=block_m,
        out_block_w=block_n,
        per_core_M=core_m,
        per_core_N=core_n,
        transpose_mcast=False,
        fused_activation=None,
        fuse_batch=True,
    )


def multicast_1d(columns, rows, inner, subblock_m, subblock_n, block_m, block_n, core_m, core_n):
    """Every core holds all tokens and a slice of the output columns; all but the grid counts tiles."""
    return ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
        compute_with_storage_grid_size=(columns, rows),
        in0_block_w=inner,
        out_subblock_h=subblock_m,
        out_subblock_w=subblock_n,
        out_block_h=block_m,
        out_block_w=block_n,
        per_core_M=core_m,
        per_core_N=core_n,
        fuse_batch=True,
        fused_activation=None,
        mcast_in0=True,
    )


def minimal(columns, rows, block_m, block_k, block_n, subblock_m, subblock_n):
    """Blocks of a matmul that fuses what follows it; all but the grid counts tiles."""
    return ttnn.MinimalMatmulConfig(
        compute_with_storage_grid_size=(columns, rows),
        M_block_size=block_m,
        K_block_size=block_k,
        N_block_size=block_n,
        subblock_h=subblock_m,
        subblock_w=subblock_n,
    )


def attention_chunks(query_tokens, key_tokens):
    """Tokens of queries and keys that one core holds at a time."""
    return ttnn.SDPAProgramConfig(
        compute_with_storage_grid_size=BOARD.grid,
        q_chunk_size=query_tokens,
        k_chunk_size=key_tokens,
        exp_approx_mode=False,
    )


# (role, tiles of tokens in the pass): how the matmul is cut over the cores
MATMULS = {
    ("mixed", 3): multicast_1d(11, 10, 8, 1, 3, 3, 3, 3, 3),
    ("mixed", 6): multicast_1d(11, 10, 8, 1, 3, 6, 3, 6, 3),
    ("mixed", 10): multicast_2d(11, 10, 8, 1, 3, 1, 30, 1, 30),
    ("mixed", 20): multicast_2d(11, 10, 8, 1, 4, 2, 32, 2, 32),
    ("mixed", 40): multicast_2d(11, 10, 5, 1, 4, 4, 32, 4, 32),
    ("mixed", 64): multicast_2d(11, 10, 8, 1, 4, 7, 16, 7, 32),
    ("output_gate", 3): multicast_1d(11, 10, 8, 1, 2, 3, 2, 3, 2),
    ("output_gate", 6): multicast_1d(11, 10, 8, 2, 2, 6, 2, 6, 2),
    ("output_gate", 10): multicast_2d(11, 10, 8, 1, 3, 1, 18, 1, 18),
    ("output_gate", 20): multicast_2d(11, 10, 8, 1, 3, 2, 18, 2, 18),
    ("output_gate", 40): multicast_2d(11, 10, 8, 1, 3, 4, 18, 4, 18),
    ("output_gate", 64): multicast_2d(11, 10, 8, 1, 3, 7, 18, 7, 18),
    ("rates", 3): multicast_2d(11, 3, 8, 1, 1, 1, 1, 1, 1),
    ("rates", 6): multicast_2d(11, 6, 8, 1, 1, 1, 1, 1, 1),
    ("rates", 10): multicast_2d(11, 10, 8, 1, 1, 1, 1, 1, 1),
    ("rates", 20): multicast_2d(11, 10, 8, 2, 1, 2, 1, 2, 1),
    ("rates", 40): multicast_2d(11, 10, 8, 4, 1, 4, 1, 4, 1),
    ("rates", 64): multicast_2d(11, 10, 8, 1, 1, 7, 1, 7, 1),
    ("tails", 3): multicast_1d(11, 10, 3, 1, 3, 1, 3, 1, 3),
    ("tails", 6): multicast_1d(11, 10, 6, 1, 3, 1, 3, 1, 3),
    ("tails", 10): multicast_1d(11, 10, 5, 1, 3, 1, 3, 1, 3),
    ("tails", 20): multicast_1d(11, 10, 5, 1, 3, 1, 3, 1, 3),
    ("tails", 40): multicast_1d(11, 10, 8, 1, 3, 1, 3, 1, 3),
    ("tails", 64): multicast_1d(11, 10, 8, 1, 3, 1, 3, 1, 3),
    ("delta_output", 3): multicast_1d(11, 10, 8, 1, 2, 3, 2, 3, 2),
    ("delta_output", 6): multicast_1d(11, 10, 8, 2, 2, 6, 2, 6, 2),
    ("delta_output", 10): multicast_2d(11, 10, 8, 1, 3, 1, 15, 1, 15),
    ("delta_output", 20): multicast_2d(11, 10, 8, 1, 4, 2, 16, 2, 16),
    ("delta_output", 40): multicast_2d(11, 10, 8, 1, 4, 4, 16, 4, 16),
    ("delta_output", 64): multicast_2d(11, 10, 8, 1, 4, 7, 16, 7, 16),
    ("query_key_value", 3): multicast_1d(11, 10, 8, 1, 3, 3, 3, 3, 3),
    ("query_key_value", 6): multicast_1d(11, 10, 8, 1, 3, 6, 3, 6, 3),
    ("query_key_value", 10): multicast_2d(11, 10, 8, 1, 3, 1, 24, 1, 24),
    ("query_key_value", 20): multicast_2d(11, 10, 8, 1, 4, 2, 24, 2, 24),
    ("query_key_value", 40): multicast_2d(11, 10, 8, 1, 4, 4, 24, 4, 24),
    ("query_key_value", 64): multicast_2d(11, 10, 5, 1, 4, 7, 24, 7, 24),
    ("attention_gate", 3): multicast_1d(11, 10, 8, 1, 2, 3, 2, 3, 2),
    ("attention_gate", 6): multicast_1d(11, 10, 8, 2, 2, 6, 2, 6, 2),
    ("attention_gate", 10): multicast_2d(11, 10, 8, 1, 3, 1, 18, 1, 18),
    ("attention_gate", 20): multicast_2d(11, 10, 8, 1, 3, 2, 18, 2, 18),
    ("attention_gate", 40): multicast_2d(11, 10, 8, 1, 3, 4, 18, 4, 18),
    ("attention_gate", 64): multicast_2d(11, 10, 5, 1, 3, 7, 18, 7, 18),
    ("attention_output", 3): multicast_1d(11, 10, 8, 1, 2, 3, 2, 3, 2),
    ("attention_output", 6): multicast_1d(11, 10, 8, 2, 2, 6, 2, 6, 2),
    ("attention_output", 10): multicast_2d(11, 10, 8, 1, 3, 1, 15, 1, 15),
    ("attention_output", 20): multicast_2d(11, 10, 8, 1, 4, 2, 16, 2, 16),
    ("attention_output", 40): multicast_2d(11, 10, 8, 1, 4, 4, 16, 4, 16),
    ("attention_output", 64): multicast_2d(11, 10, 6, 1, 4, 7, 16, 7, 16),
    ("gate_up", 3): minimal(11, 10, 1, 8, 52, 1, 4),
    ("gate_up", 6): minimal(11, 10, 1, 8, 52, 1, 4),
    ("gate_up", 10): minimal(11, 10, 1, 8, 52, 1, 4),
    ("gate_up", 20): minimal(11, 10, 2, 5, 50, 2, 2),
    ("gate_up", 40): minimal(11, 10, 4, 8, 20, 1, 4),
    ("gate_up", 64): minimal(11, 10, 7, 8, 20, 1, 4),
    ("down", 3): multicast_1d(11, 10, 8, 1, 2, 3, 2, 3, 2),
    ("down", 6): multicast_1d(11, 10, 8, 2, 2, 6, 2, 6, 2),
    ("down", 10): multicast_2d(11, 10, 8, 1, 3, 1, 15, 1, 15),
    ("down", 20): multicast_2d(11, 10, 8, 1, 4, 2, 16, 2, 16),
    ("down", 40): multicast_2d(11, 10, 8, 1, 4, 4, 16, 4, 16),
    ("down", 64): multicast_2d(11, 10, 8, 1, 4, 7, 16, 7, 16),
    ("head", 1): multicast_1d(11, 10, 5, 1, 4, 1, 72, 1, 72),
}

# rows of a pass: how the recurrence of its recurrent layers runs
RECURRENCE = {1: "alone", 2: "rows"}
DELTA_RULE = ttnn.ChunkGdnFusedProgramConfig()  # one program: 48 value heads take at most half the cores
CONVOLUTION = ttnn.QkvCausalConv1dSiluProgramConfig(channel_chunk_size=256)

# (variant, rows, tokens a row): how attention is cut
ATTENTION = {
    ("single", 1, 96): attention_chunks(32, 32),
    ("single", 1, 320): attention_chunks(64, 64),
    ("single", 1, 640): attention_chunks(64, 128),
    ("single", 1, 1280): attention_chunks(128, 256),
    ("single", 1, 2048): attention_chunks(256, 256),
    ("batched", 2, 96): attention_chunks(32, 32),
    ("batched", 2, 320): attention_chunks(64, 64),
    ("batched", 2, 640): attention_chunks(128, 128),
    ("chunked", 1, 96): attention_chunks(32, 128),
    ("chunked", 1, 320): attention_chunks(64, 128),
    ("chunked", 1, 640): attention_chunks(64, 128),
    ("chunked", 1, 1280): attention_chunks(128, 128),
    ("chunked", 1, 2048): attention_chunks(128, 128),
    ("chunked_batched", 2, 96): attention_chunks(32, 128),
    ("chunked_batched", 2, 320): attention_chunks(64, 128),
    ("chunked_batched", 2, 640): attention_chunks(128, 128),
}

# tiles of tokens in the pass: where a layer's intermediates lie, in the order normed, heads, attended, gated
PLACES = {
    3: Places(L1, L1, L1, L1),
    6: Places(L1, L1, L1, L1),
    10: Places(L1, L1, L1, L1),
    20: Places(DRAM, L1, L1, L1),
    40: Places(DRAM, L1, L1, L1),
    64: Places(DRAM, L1, L1, DRAM),
}

# --- weights and stores: every long-lived device tensor -------------------------------------------------------------

HIDDEN_NORM = (1, 1, HIDDEN // TILE, TILE)  # the row-major form that rms_norm takes: rows of one tile's width
HEAD_NORM = (1, 1, HEAD_DIM // TILE, TILE)

WEIGHTS = (
    Weight(
        "embedding",
        ("language_model.model.embed_tokens.weight",),
        "rows",
        (VOCABULARY, HIDDEN),
        EMBEDDING_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight("rotary_cos", (), "rotary_cos", (CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("rotary_sin", (), "rotary_sin", (CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE),
    Weight(
        "final_norm",
        ("language_model.model.norm.weight",),
        "offset_norm",
        HIDDEN_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "head", ("language_model.lm_head.weight",), "projection", (HIDDEN, VOCABULARY), HEAD_DTYPE, TILED, REPLICATE
    ),
    Weight("validity", (), "validity", (2, VALUE_HEADS), ACTIVATION_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("row_start", (), "no_numbers", (1,), INDEX_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("identity", (), "identity", (1, 1, RECURRENT_CHUNK, RECURRENT_CHUNK), STATE_DTYPE, TILED, REPLICATE),
    Weight(
        "lower_triangle", (), "lower_triangle", (1, 1, RECURRENT_CHUNK, RECURRENT_CHUNK), STATE_DTYPE, TILED, REPLICATE
    ),
    Weight("all_ones", (), "ones", (1, 1, RECURRENT_CHUNK, RECURRENT_CHUNK), STATE_DTYPE, TILED, REPLICATE),
    Weight("quadrants", (), "quadrants", (1, 1, TILE, 3 * TILE), STATE_DTYPE, TILED, REPLICATE),
)


def of_layer(name, sources, transform, shape, dtype, layout=TILED, experts=0, kind=""):
    """A weight of every layer, or of those of a kind, from tensors by their names within it."""
    published = tuple(["language_model.model.layers.{layer}." + source for source in sources])
    return Weight(name, published, transform, shape, dtype, layout, REPLICATE, experts=experts, kind=kind)


def of_delta(name, sources, transform, shape, dtype, layout=TILED):
    """A weight of every recurrent layer."""
    return of_layer(name, sources, transform, shape, dtype, layout, kind="gated_delta_net")


def of_full(name, sources, transform, shape, dtype, layout=TILED):
    """A weight of every layer with attention."""
    return of_layer(name, sources, transform, shape, dtype, layout, kind="full")


LAYER_WEIGHTS = (
    of_delta("delta_norm", ("input_layernorm.weight",), "offset_norm", HIDDEN_NORM, NORM_DTYPE, ROW_MAJOR),
    of_delta("mixed", ("linear_attn.in_proj_qkv.weight",), "projection", (HIDDEN, CONVOLUTION_WIDTH), WEIGHT_DTYPE),
    of_delta("output_gate", ("linear_attn.in_proj_z.weight",), "projection", (HIDDEN, VALUE_WIDTH), WEIGHT_DTYPE),
    of_delta("decay", ("linear_attn.in_proj_a.weight",), "projection", (HIDDEN, VALUE_HEADS), RATE_DTYPE),
    of_delta("update", ("linear_attn.in_proj_b.weight",), "projection", (HIDDEN, VALUE_HEADS), RATE_DTYPE),
    of_delta("decay_bias", ("linear_attn.dt_bias",), "bias", (1, 1, 1, VALUE_HEADS), STATE_DTYPE),
    of_delta("decay_rate", ("linear_attn.A_log",), "decay_rate", (1, 1, 1, VALUE_HEADS), STATE_DTYPE),
    of_delta("tap_0", ("linear_attn.conv1d.weight",), "tap_0", (1, 1, 1, CONVOLUTION_WIDTH), BIAS_DTYPE),
    of_delta("tap_1", ("linear_attn.conv1d.weight",), "tap_1", (1, 1, 1, CONVOLUTION_WIDTH), BIAS_DTYPE),
    of_delta("tap_2", ("linear_attn.conv1d.weight",), "tap_2", (1, 1, 1, CONVOLUTION_WIDTH), BIAS_DTYPE),
    of_delta("tap_3", ("linear_attn.conv1d.weight",), "tap_3", (1, 1, 1, CONVOLUTION_WIDTH), BIAS_DTYPE),
    of_delta("value_norm", ("linear_attn.norm.weight",), "norm", (VALUE_DIM,), NORM_DTYPE),
    of_delta("delta_output", ("linear_attn.out_proj.weight",), "projection", (VALUE_WIDTH, HIDDEN), WEIGHT_DTYPE),
    of_full("attention_norm", ("input_layernorm.weight",), "offset_norm", HIDDEN_NORM, NORM_DTYPE, ROW_MAJOR),
    of_full(
        "query_key_value",
        ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"),
        "gated_partial_projection",
        (HIDDEN, QUERY_KEY_VALUE_WIDTH),
        WEIGHT_DTYPE,
    ),
    of_full("attention_gate", ("self_attn.q_proj.weight",), "gated_by_projection", (HIDDEN, QUERY_WIDTH), WEIGHT_DTYPE),
    of_full("query_norm", ("self_attn.q_norm.weight",), "partial_offset_norm", HEAD_NORM, NORM_DTYPE, ROW_MAJOR),
    of_full("key_norm", ("self_attn.k_norm.weight",), "partial_offset_norm", HEAD_NORM, NORM_DTYPE, ROW_MAJOR),
    of_full("attention_output", ("self_attn.o_proj.weight",), "projection", (QUERY_WIDTH, HIDDEN), WEIGHT_DTYPE),
    of_layer("mlp_norm", ("post_attention_layernorm.weight",), "offset_norm", HIDDEN_NORM, NORM_DTYPE, ROW_MAJOR),
    of_layer(
        "gate_up",
        ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
        "paired_projection",
        (HIDDEN, 2 * INTERMEDIATE),
        WEIGHT_DTYPE,
    ),
    of_layer("down", ("mlp.down_proj.weight",), "projection", (INTERMEDIATE, HIDDEN), WEIGHT_DTYPE),
)

BLOCKS = (KEY_VALUE_BLOCKS, KEY_VALUE_HEADS, BLOCK_SIZE, HEAD_DIM)
STORES = (
    Store("keys", ATTENTION_LAYERS, BLOCKS, KEY_VALUE_DTYPE, TILED, REPLICATE),
    Store("values", ATTENTION_LAYERS, BLOCKS, KEY_VALUE_DTYPE, TILED, REPLICATE),
)
STATES = (
    State("states", RECURRENT_LAYERS, (1, VALUE_HEADS, KEY_DIM, VALUE_DIM), STATE_DTYPE, TILED, REPLICATE),
    State("tails", RECURRENT_LAYERS, (1, TAIL_TOKENS, CONVOLUTION_WIDTH), ACTIVATION_DTYPE, ROW_MAJOR, REPLICATE),
)

# --- inputs: the host values of a pass and when a replay copies them again ------------------------------------------


def packed_inputs(shape):
    """Rows lie back to back in one sequence: tokens, positions, the blocks to fill, the rows that reach the head, which
    tokens are no padding, and where the tail of each row comes from.
    """
    packed = shape.rows * shape.tokens
    return (
        Input("tokens", (1, packed), ttnn.uint32, "always"),
        Input("positions", (1, packed), ttnn.uint32, "always"),
        Input("fill_table", (1, shape.fill_pages), ttnn.int32, "always"),
        Input("last_rows", (1, ROW_SLOTS), ttnn.uint32, "changed"),
        Input("valid", (1, packed), ttnn.uint32, "changed"),
        Input("tail_selection", (1, 1, TILE, packed), ttnn.bfloat16, "changed"),
        Input("tail_picks", (1, TAIL_TOKENS * shape.rows), ttnn.uint32, "changed"),
    )


def batched_inputs(shape):
    """A wave also states where each padded row begins and where the last one ends."""
    return (*packed_inputs(shape), Input("row_bounds", (shape.rows + 1,), ttnn.int32, "never"))


def chunked_inputs(shape):
    """Chunks also read the blocks of their rows from the first one on, and state the one position that all start at."""
    return (
        *packed_inputs(shape),
        Input("read_table", (shape.rows, shape.read_pages), ttnn.int32, "always"),
        Input("start", (1,), ttnn.int32, "always"),
    )


INPUTS = {
    "single": packed_inputs,
    "batched": batched_inputs,
    "chunked": chunked_inputs,
    "chunked_batched": chunked_inputs,
}
SAMPLING_INPUTS = (
    Input("top_k", (ROW_SLOTS,), ttnn.uint32, "changed"),
    Input("top_p", (ROW_SLOTS,), ttnn.bfloat16, "changed"),
    Input("inverse_temperature", (ROW_SLOTS,), ttnn.bfloat16, "changed"),
)

# --- body: one pass; a tensor dies with its last name, and is deallocated where the name would outlive its use ------


def embed(tokens, weights):
    """Token ids [1, tokens] -> hidden [1, 1, tokens, HIDDEN]."""
    hidden = ttnn.embedding(tokens, weights.embedding, layout=TILED, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    return ttnn.unsqueeze_to_4D(hidden)


def rotary(positions, weights):
    """Positions [1, tokens] -> their rows of the cosine and sine tables, each [1, 1, tokens, HEAD_DIM]."""
    cos = ttnn.embedding(positions, weights.rotary_cos, layout=TILED, dtype=ROTARY_DTYPE, memory_config=DRAM)
    sin = ttnn.embedding(positions, weights.rotary_sin, layout=TILED, dtype=ROTARY_DTYPE, memory_config=DRAM)
    return ttnn.unsqueeze_to_4D(cos), ttnn.unsqueeze_to_4D(sin)


def held_by(kinds, stores):
    """What each layer reads and writes: its key and value caches, or the states and tails of the rows of a wave."""
    held = {"full": zip(stores.keys, stores.values), "gated_delta_net": zip(stores.states, stores.tails)}
    for kind in kinds:
        yield next(held[kind])


def delta_tables(inputs, weights):
    """What all recurrent layers of a pass read beside their weights."""
    valid = ttnn.embedding(inputs.valid, weights.validity, layout=TILED, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    return DeltaTables(
        valid=ttnn.unsqueeze_to_4D(valid),
        tail_selection=ttnn.to_layout(inputs.tail_selection, TILED, memory_config=DRAM),
        row_start=weights.row_start,
        identity=weights.identity,
        lower_triangle=weights.lower_triangle,
        all_ones=weights.all_ones,
        quadrants=weights.quadrants,
    )


def mlp(hidden, layer, shape):
    """Add the gated feed-forward of one layer, down(silu(gate(x)) * up(x)), to hidden, which is used up."""
    place = PLACES[shape.token_tiles]
    normed = ttnn.rms_norm(
        hidden,
        epsilon=NORM_EPSILON,
        weight=layer.mlp_norm,
        memory_config=place.normed,
        compute_kernel_config=NORM_COMPUTE,
    )
    gated = ttnn.experimental.minimal_matmul(
        normed,
        layer.gate_up,
        config=MATMULS["gate_up", shape.token_tiles],
        memory_config=place.gated,
        dtype=ACTIVATION_DTYPE,
        compute_kernel_config=MATMUL_COMPUTE,
        fuse_swiglu=True,
    )
    ttnn.deallocate(normed)
    fed = ttnn.linear(
        gated,
        layer.down,
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
        program_config=MATMULS["down", shape.token_tiles],
        compute_kernel_config=MATMUL_COMPUTE,
    )
    ttnn.deallocate(gated)
    summed = ttnn.add(hidden, fed, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    ttnn.deallocate(hidden)
    return summed


def projection(role, normed, weight, shape):
    """Normed tokens through one of the wide projections."""
    return ttnn.linear(
        normed,
        weight,
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
        program_config=MATMULS[role, shape.token_tiles],
        compute_kernel_config=MATMUL_COMPUTE,
    )


def rates(normed, weight, shape):
    """A number for each value head of each token, in float32."""
    return ttnn.linear(
        normed,
        weight,
        dtype=STATE_DTYPE,
        memory_config=DRAM,
        program_config=MATMULS["rates", shape.token_tiles],
        compute_kernel_config=RATE_COMPUTE,
    )


@phase(of="gated_delta_net")
def project(hidden, delta, layer, shape):
    """Phase 1, over all tokens at once: what is convolved, the output gate, and how much each token decays and updates
    the state, float32 [1, 1, tokens, VALUE_HEADS]; padding does neither.
    """
    normed = ttnn.rms_norm(
        hidden,
        epsilon=NORM_EPSILON,
        weight=layer.delta_norm,
        memory_config=PLACES[shape.token_tiles].normed,
        compute_kernel_config=NORM_COMPUTE,
    )
    mixed = projection("mixed", normed, layer.mixed, shape)
    gate = projection("output_gate", normed, layer.output_gate, shape)
    decay = rates(normed, layer.decay, shape)
    update = rates(normed, layer.update, shape)
    ttnn.deallocate(normed)
    # decay = exp(decay_rate * softplus(decay + bias)), of which the logarithm is kept; update = sigmoid(update)
    decay = ttnn.add(decay, layer.decay_bias, dtype=STATE_DTYPE, memory_config=DRAM)
    decay = ttnn.softplus(decay, beta=1.0, threshold=20.0, memory_config=DRAM)
    decay = ttnn.mul(decay, layer.decay_rate, dtype=STATE_DTYPE, memory_config=DRAM)
    decay = ttnn.mul(decay, delta.valid, dtype=STATE_DTYPE, memory_config=DRAM)
    update = ttnn.mul(
        update,
        delta.valid,
        input_tensor_a_activations=[ttnn.UnaryOpType.SIGMOID],
        dtype=STATE_DTYPE,
        memory_config=DRAM,
    )
    return Projected(mixed, gate, decay, update)


def convolve_row(own, tail, delta, layer):
    """Queries, keys and values of one row [1, tokens, width]."""
    return ttnn.experimental.kda.qkv_causal_conv1d_silu(
        own,
        tail,
        layer.tap_0,
        layer.tap_1,
        layer.tap_2,
        layer.tap_3,
        KEY_WIDTH,
        KEY_WIDTH,
        VALUE_WIDTH,
        actual_start=delta.row_start,
        predecessor_carry=tail,
        program_config=CONVOLUTION,
        memory_config=DRAM,
        compute_kernel_config=DELTA_COMPUTE,
    )


def whole(packed, rows):
    """The one row of a pass."""
    yield packed


def each(packed, rows):
    """Every row [1, size, width] of a wave [1, rows x size, width]."""
    size = packed.shape[1] // rows
    for row in range(rows):
        yield ttnn.slice(packed, (0, row * size, 0), (1, (row + 1) * size, packed.shape[2]), memory_config=DRAM)


ROWS_OF = {"single": whole, "batched": each, "chunked": whole, "chunked_batched": each}


def advance_tails(mixed, tails, delta, inputs, shape):
    """The last real tokens of each row become its tail; a row with fewer of them keeps what it lacks of its old tail.
    They are selected by a product with ones and zeros, which is exact and reads the tokens as they lie.
    """
    selected = ttnn.linear(
        delta.tail_selection,
        mixed,
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
        program_config=MATMULS["tails", shape.token_tiles],
        compute_kernel_config=RATE_COMPUTE,
    )
    selected = ttnn.reshape(ttnn.to_layout(selected, ROW_MAJOR, memory_config=DRAM), (1, TILE, CONVOLUTION_WIDTH))
    both = ttnn.concat([*tails[: shape.rows], selected], dim=1, memory_config=DRAM)
    ends = ttnn.embedding(inputs.tail_picks, both, layout=ROW_MAJOR, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    for end, tail in zip(ROWS_OF[shape.variant](ends, shape.rows), tails):
        ttnn.copy(end, tail)


@phase(of="gated_delta_net", takes=Projected)
def convolve(projected, tails, delta, layer, inputs, shape):
    """Phase 2, each row by itself: a convolution behind the last tokens before it, then silu. Its own last tokens
    become the tail of what follows it.
    """
    mixed = ttnn.reshape(projected.mixed, (1, shape.rows * shape.tokens, CONVOLUTION_WIDTH))
    rows = []
    for own, tail in zip(ROWS_OF[shape.variant](mixed, shape.rows), tails):
        rows.append(convolve_row(own, tail, delta, layer))
    advance_tails(projected.mixed, tails, delta, inputs, shape)
    ttnn.deallocate(projected.mixed)
    return Convolved(tuple(rows), projected)


def delta_rule(query, key, value, decay, update, state, delta):
    """Raw heads side by side [rows, tokens, width] and the states before them -> what the states gave, [rows x
    VALUE_HEADS, tokens, VALUE_DIM], and the states after them, both in float32.
    """
    return ttnn.transformer.chunk_gated_delta_rule(
        query,
        key,
        value,
        decay,
        update,
        initial_state=state,
        output_final_state=True,
        chunk_size=RECURRENT_CHUNK,
        output_head_major=True,
        program_config=DELTA_RULE,
        eye=delta.identity,
        tril=delta.lower_triangle,
        ones=delta.all_ones,
        masks=delta.quadrants,
        memory_config=DRAM,
        compute_kernel_config=DELTA_COMPUTE,
    )


def recur_alone(rows, decay, update, states, delta, shape):
    """The one row of a pass."""
    given, after = delta_rule(*rows[0], decay, update, states[0], delta)
    ttnn.copy(after, states[0])
    return given


def recur_rows(rows, decay, update, states, delta, shape):
    """One row of a wave after another, since the cores do not hold all heads of all rows."""
    results = []
    rates_of_rows = zip(each(decay, shape.rows), each(update, shape.rows))
    for row, (own_decay, own_update), state in zip(rows, rates_of_rows, states):
        given, after = delta_rule(*row, own_decay, own_update, state, delta)
        ttnn.copy(after, state)
        results.append(given)
    return ttnn.concat(results, dim=0, memory_config=DRAM)


RECUR = {
    "alone": recur_alone,
    "rows": recur_rows,
}


@phase(of="gated_delta_net", takes=Convolved, elsewhere="nothing")
def recur(convolved, states, delta, layer, shape):
    """Phase 2, in the order of the tokens: every state decays, is updated and read. The operation first makes queries
    and keys of unit length.
    """
    decay = ttnn.reshape(convolved.projected.decay, (1, shape.rows * shape.tokens, VALUE_HEADS))
    update = ttnn.reshape(convolved.projected.update, (1, shape.rows * shape.tokens, VALUE_HEADS))
    given = RECUR[RECURRENCE[shape.rows]](convolved.rows, decay, update, states, delta, shape)
    ttnn.deallocate(decay)
    ttnn.deallocate(update)
    return Recurred(given, convolved.projected)


@phase(of="gated_delta_net", takes=Recurred, elsewhere="nothing")
def finish(recurred, hidden, layer, shape):
    """Phase 3, over all tokens at once: norm each head of what the states gave, times silu of the gate, and add it to
    hidden, which is used up.
    """
    gate = ttnn.reshape(recurred.projected.gate, (shape.rows, shape.tokens, VALUE_WIDTH))
    normed = ttnn.experimental.kda.sigmoid_gated_rms_norm(
        recurred.given,
        gate,
        layer.value_norm,
        VALUE_HEADS,
        epsilon=NORM_EPSILON,
        memory_config=DRAM,
        compute_kernel_config=DELTA_COMPUTE,
        output_dtype=ACTIVATION_DTYPE,
    )
    ttnn.deallocate(recurred.given)
    kept = ttnn.mul(normed, gate, dtype=ACTIVATION_DTYPE, memory_config=DRAM)  # silu(gate) = gate * sigmoid(gate)
    ttnn.deallocate(normed)
    ttnn.deallocate(recurred.projected.gate)
    kept = ttnn.reshape(kept, (1, 1, shape.rows * shape.tokens, VALUE_WIDTH))
    mixed = ttnn.linear(
        kept,
        layer.delta_output,
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
        program_config=MATMULS["delta_output", shape.token_tiles],
        compute_kernel_config=MATMUL_COMPUTE,
    )
    summed = ttnn.add(hidden, mixed, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    ttnn.deallocate(hidden)
    return summed


def gated_delta_net(hidden, cos, sin, delta, layer, held, inputs, shape):
    """Add linear attention with a recurrent state to hidden [1, 1, tokens, HIDDEN], which is used up. The states and
    tails of the rows go on from what they hold.
    """
    states, tails = held
    projected = project(hidden, delta, layer, shape)
    convolved = convolve(projected, tails, delta, layer, inputs, shape)
    recurred = recur(convolved, states, delta, layer, shape)
    return finish(recurred, hidden, layer, shape)


def head_norm(heads, weight, place):
    """Root-mean-square norm of every head by itself: [1, heads, tokens, HEAD_DIM]."""
    return ttnn.rms_norm(
        heads, epsilon=NORM_EPSILON, weight=weight, memory_config=place.heads, compute_kernel_config=NORM_COMPUTE
    )


def rotate_halves(heads, cos, sin, place):
    """Turn the first half of each head against the second, as published weights are laid out."""
    return ttnn.experimental.rotary_embedding_hf(
        heads, cos, sin, is_decode_mode=False, memory_config=place.heads, compute_kernel_config=ROTARY_COMPUTE
    )


def attend_single(query, key, value, key_cache, value_cache, inputs, shape):
    """One row over its own keys and values, which are all in the pass: [1, 1, tokens, QUERY_WIDTH]."""
    return ttnn.transformer.scaled_dot_product_attention(
        query,
        key,
        value,
        is_causal=True,
        scale=ATTENTION_SCALE,
        output_concat_heads=True,
        memory_config=PLACES[shape.token_tiles].attended,
        program_config=ATTENTION["single", shape.rows, shape.tokens],
        compute_kernel_config=ATTENTION_COMPUTE,
    )


def attend_batched(query, key, value, key_cache, value_cache, inputs, shape):
    """A wave of rows packed back to back: causal inside the bounds of each row, nothing across them."""
    return ttnn.transformer.scaled_dot_product_attention(
        query,
        key,
        value,
        is_causal=True,
        cu_window_seqlens=inputs.row_bounds,
        scale=ATTENTION_SCALE,
        output_concat_heads=True,
        memory_config=PLACES[shape.token_tiles].attended,
        program_config=ATTENTION["batched", shape.rows, shape.tokens],
        compute_kernel_config=ATTENTION_COMPUTE,
    )


def attend_chunked(query, key, value, key_cache, value_cache, inputs, shape):
    """A chunk over everything that its row has in the cache, the chunk itself included."""
    attended = ttnn.transformer.chunked_scaled_dot_product_attention(
        query,
        key_cache,
        value_cache,
        inputs.read_table,
        chunk_start_idx_tensor=inputs.start,
        scale=ATTENTION_SCALE,
        memory_config=PLACES[shape.token_tiles].attended,
        program_config=ATTENTION["chunked", shape.rows, shape.tokens],
        compute_kernel_config=ATTENTION_COMPUTE,
    )
    return ttnn.experimental.nlp_concat_heads(attended, memory_config=PLACES[shape.token_tiles].attended)


def attend_chunked_batched(query, key, value, key_cache, value_cache, inputs, shape):
    """Chunks of several rows that start at one position: queries become a batch, since each row has its own cache."""
    rows = ttnn.transpose(
        ttnn.reshape(query, (QUERY_HEADS, shape.rows, shape.tokens, HEAD_DIM)),
        0,
        1,
        memory_config=PLACES[shape.token_tiles].heads,
    )
    attended = ttnn.transformer.chunked_scaled_dot_product_attention(
        rows,
        key_cache,
        value_cache,
        inputs.read_table,
        chunk_start_idx_tensor=inputs.start,
        scale=ATTENTION_SCALE,
        memory_config=PLACES[shape.token_tiles].attended,
        program_config=ATTENTION["chunked_batched", shape.rows, shape.tokens],
        compute_kernel_config=ATTENTION_COMPUTE,
    )
    ttnn.deallocate(rows)
    joined = ttnn.experimental.nlp_concat_heads(attended, memory_config=PLACES[shape.token_tiles].attended)
    return ttnn.reshape(joined, (1, 1, shape.rows * shape.tokens, QUERY_WIDTH))


ATTEND = {
    "single": attend_single,
    "batched": attend_batched,
    "chunked": attend_chunked,
    "chunked_batched": attend_chunked_batched,
}


@phase(of="full")
def attention(hidden, cos, sin, layer, key_cache, value_cache, inputs, shape):
    """Add the self-attention of one layer to hidden [1, 1, tokens, HIDDEN], which is used up; fill its caches."""
    place = PLACES[shape.token_tiles]
    normed = ttnn.rms_norm(
        hidden,
        epsilon=NORM_EPSILON,
        weight=layer.attention_norm,
        memory_config=place.normed,
        compute_kernel_config=NORM_COMPUTE,
    )
    query_key_value = ttnn.linear(
        normed,
        layer.query_key_value,
        dtype=HEADS_DTYPE,
        memory_config=place.heads,
        program_config=MATMULS["query_key_value", shape.token_tiles],
        compute_kernel_config=MATMUL_COMPUTE,
    )
    gate = ttnn.linear(
        normed,
        layer.attention_gate,
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
        program_config=MATMULS["attention_gate", shape.token_tiles],
        compute_kernel_config=MATMUL_COMPUTE,
    )
    ttnn.deallocate(normed)
    query, key, value = ttnn.experimental.nlp_create_qkv_heads(
        query_key_value,
        num_heads=QUERY_HEADS,
        num_kv_heads=KEY_VALUE_HEADS,
        transpose_k_heads=False,
        memory_config=place.heads,
    )
    ttnn.deallocate(query_key_value)
    query = head_norm(query, layer.query_norm, place)
    key = head_norm(key, layer.key_norm, place)
    query = rotate_halves(query, cos, sin, place)
    key = rotate_halves(key, cos, sin, place)
    ttnn.experimental.paged_fill_cache(key_cache, key, inputs.fill_table, batch_idx=0)
    ttnn.experimental.paged_fill_cache(value_cache, value, inputs.fill_table, batch_idx=0)
    attended = ATTEND[shape.variant](query, key, value, key_cache, value_cache, inputs, shape)
    ttnn.deallocate(query)
    ttnn.deallocate(key)
    ttnn.deallocate(value)
    kept = ttnn.mul(
        attended,
        gate,
        input_tensor_b_activations=[ttnn.UnaryOpType.SIGMOID],
        dtype=ACTIVATION_DTYPE,
        memory_config=place.attended,
    )
    ttnn.deallocate(attended)
    ttnn.deallocate(gate)
    attended = kept
    projected = ttnn.linear(
        attended,
        layer.attention_output,
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
        program_config=MATMULS["attention_output", shape.token_tiles],
        compute_kernel_config=MATMUL_COMPUTE,
    )
    ttnn.deallocate(attended)
    summed = ttnn.add(hidden, projected, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    ttnn.deallocate(hidden)
    return summed


def attend_layer(hidden, cos, sin, delta, layer, held, inputs, shape):
    """Add the self-attention of a layer, which holds its caches."""
    return attention(hidden, cos, sin, layer, *held, inputs, shape)


MIXERS = {"gated_delta_net": gated_delta_net, "full": attend_layer}


def layers(hidden, cos, sin, inputs, weights, stores, shape, kinds=LAYER_KINDS):
    """All layers over hidden [1, 1, tokens, HIDDEN], which is used up; each writes its keys and values, or states."""
    delta = delta_tables(inputs, weights)
    for kind, layer, held in zip(kinds, weights.layers, held_by(kinds, stores)):
        hidden = MIXERS[kind](hidden, cos, sin, delta, layer, held, inputs, shape)
        hidden = mlp(hidden, layer, shape)
    return hidden


def body(inputs, weights, stores, shape):
    """One pass up to the last layer: what a trace of `shape` records."""
    hidden = embed(inputs.tokens, weights)
    cos, sin = rotary(inputs.positions, weights)
    return layers(hidden, cos, sin, inputs, weights, stores, shape)


def logits(hidden, last_rows, weights):
    """The picked rows of hidden [1, 1, tokens, HIDDEN] -> logits [1, 1, ROW_SLOTS, VOCABULARY]; no other is normed."""
    rows = ttnn.embedding(last_rows, hidden, layout=TILED, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    normed = ttnn.rms_norm(
        ttnn.unsqueeze_to_4D(rows),
        epsilon=NORM_EPSILON,
        weight=weights.final_norm,
        memory_config=DRAM,
        compute_kernel_config=NORM_COMPUTE,
    )
    return ttnn.linear(
        normed,
        weights.head,
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
        program_config=MATMULS["head", 1],
        compute_kernel_config=HEAD_COMPUTE,
    )


def argmax(scores):
    """Logits -> the likeliest token of each picked row [1, 1, ROW_SLOTS]; on row-major rows every core searches."""
    rows = ttnn.to_layout(scores, ROW_MAJOR, memory_config=DRAM)
    return ttnn.argmax(rows, dim=-1, memory_config=DRAM)


def top_k(scores, choice):
    """Logits -> a token [1, 1, 1, ROW_SLOTS] for each picked row by its own k, p and temperature; seeded beforehand."""
    values, indices = ttnn.topk(scores, k=TOP_K, dim=-1, largest=True, sorted=True, memory_config=DRAM)
    candidates = ttnn.to_layout(ttnn.typecast(indices, ttnn.uint32, memory_config=DRAM), ROW_MAJOR, memory_config=DRAM)
    return ttnn.sampling(values, candidates, k=choice.top_k, p=choice.top_p, temp=choice.inverse_temperature)


def log_probabilities(scores, tokens):
    """Natural logarithm of the probability of a token for each picked row, [1, 1, ROW_SLOTS, 1] in float32."""
    wide = ttnn.typecast(scores, ttnn.float32, memory_config=DRAM)
    highest = ttnn.max(wide, dim=-1, keepdim=True, memory_config=DRAM, compute_kernel_config=NORM_COMPUTE)
    shifted = ttnn.subtract(wide, highest, dtype=ttnn.float32, memory_config=DRAM)
    ttnn.deallocate(wide)
    powers = ttnn.exp(shifted, memory_config=DRAM)
    total = ttnn.sum(powers, dim=-1, keepdim=True, memory_config=DRAM, compute_kernel_config=NORM_COMPUTE)
    index = ttnn.to_layout(ttnn.reshape(tokens, (1, 1, ROW_SLOTS, 1)), TILED, memory_config=DRAM)
    chosen = ttnn.gather(shifted, -1, index, memory_config=DRAM)
    return ttnn.subtract(chosen, ttnn.log(total, memory_config=DRAM), dtype=ttnn.float32, memory_config=DRAM)


# --- traces: record a pass once and run it again on the same addresses ----------------------------------------------


def begin_capture(device):
    """Open a recording -> its trace id. Whoever opens one must release it, also when the capture fails."""
    return ttnn.begin_trace_capture(device, cq_id=0)


def capture(device, trace, inputs, weights, stores, shape):
    """Record the body of `shape` over persistent inputs -> hidden, which holds nothing before the first replay."""
    hidden = body(inputs, weights, stores, shape)
    ttnn.end_trace_capture(device, trace, cq_id=0)
    return hidden


def replay(device, trace):
    """Run a recorded pass on whatever its inputs hold now, without waiting for it."""
    ttnn.execute_trace(device, trace, cq_id=0, blocking=False)
