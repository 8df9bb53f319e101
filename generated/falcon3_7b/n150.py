"""Prefill of falcon3-7b on n150. Written by codegen, do not edit.

Rebuild:   codegen build falcon3-7b --target n150
Manifest:  models/falcon3-7b.toml
Geometry:  e457061da9509b9d

    28 layers of 3072 hidden and 23040 intermediate, 12 query and 4 key-value heads of 256, 131080 vocabulary
    32768 tokens of context, 1024 key-value blocks of 32 tokens
    bfloat8_b weights, bfloat8_b keys and values, bfloat16 activations

    variant          rows            tokens a row
    single           1               96 256 512 768 1280 2048
    ragged           up to 8         256 together
    ragged           up to 16        512 together
    ragged           up to 24        768 together
    ragged           up to 20        1280 2560 together
    ragged           up to 28        1792 together
    ragged           up to 32        4096 together
    chunked          1               96 256 512 768 1280 2048
    chunked_batched  2 4 8 16 32     96
    chunked_batched  2 4 8 16        256
    chunked_batched  2 4 8           512
    chunked_batched  2 4             768
    chunked_batched  2               1280 2048
"""

from runtime.backend import ttnn
from runtime.tables import REPLICATE, Board, Geometry, Input, Places, Rope, Shape, Store, Weight

# --- constants: geometry, precision, memory and compute -------------------------------------------------------------

MODEL = "falcon3-7b"
TARGET = "n150"

VOCABULARY = 131080  # model.vocabulary
HIDDEN = 3072  # model.hidden
INTERMEDIATE = 23040  # model.intermediate
LAYERS = 28  # model.layers
QUERY_HEADS = 12  # model.query_heads
KEY_VALUE_HEADS = 4  # model.key_value_heads
HEAD_DIM = 256  # model.head_dim
QUERY_WIDTH = 3072  # 12 query heads x 256
QUERY_KEY_VALUE_WIDTH = 5120  # (12 query + 2 x 4 key-value heads) x 256
ATTENTION_SCALE = 0.0625  # 256 ** -0.5, exact in float32
NORM_EPSILON = 1e-06  # model.norm_epsilon
ROTARY_STYLE = "half_split"  # model.head_dim

TILE = 32
ROW_SLOTS = TILE  # last rows that one pass can pick: one tile of rows
TOP_K = 32  # candidates that sampling draws from: one tile of columns
CONTEXT = 32768  # target.n150.context
BLOCK_SIZE = 32  # target.n150.block_size
KEY_VALUE_BLOCKS = 1024  # target.n150.key_value_blocks
PREFILL_CHUNK = 2048  # target.n150.prefill_chunk
ALIGNMENT = 128  # lcm(32 block, 128 attention chunk)

GEOMETRY = Geometry(
    vocabulary=131080,
    hidden=HIDDEN,
    intermediate=23040,
    layers=LAYERS,
    query_heads=12,
    key_value_heads=4,
    head_dim=HEAD_DIM,
    norm_epsilon=NORM_EPSILON,
    query_key_value_bias=False,
    query_key_norm=False,
    tied_embeddings=False,
    rope=Rope(
        kind="default",
        theta=1000042.0,
        dimensions=256,
    ),
    fused_projections=False,
)
BOARD = Board(
    name="n150",
    architecture="wormhole_b0",
    grid=(8, 8),
    dram_banks=12,
    dram_bank_bytes=1072693184,
    dram_alignment=32,
    l1_bank_bytes=1393312,
    l1_limit=1499136,
)

ACTIVATION_DTYPE = ttnn.bfloat16  # target.n150.dtypes.activation
WEIGHT_DTYPE = ttnn.bfloat8_b  # target.n150.dtypes.weights
EMBEDDING_DTYPE = ttnn.bfloat16  # target.n150.dtypes.embedding
HEAD_DTYPE = ttnn.bfloat8_b  # target.n150.dtypes.head
KEY_VALUE_DTYPE = ttnn.bfloat8_b  # target.n150.dtypes.key_value
HEADS_DTYPE = KEY_VALUE_DTYPE  # as the caches hold them, so that no cast follows
NORM_DTYPE = ttnn.bfloat16  # as published
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
MATMUL_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat8_b weights
    math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
HEAD_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat8_b head
    math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
ATTENTION_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat8_b keys and values
    math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)

# --- tables: the closed set of passes and their programs ------------------------------------------------------------

WAVES = (1, 2, 4, 8, 16, 32)  # target.n150.waves
LENGTHS = (96, 256, 512, 768, 1280, 2048)  # target.n150.lengths
RAGGED_TOKENS = (256, 512, 768, 1280, 1792, 2560, 4096)  # target.n150.ragged_tokens

# A ragged pass holds at most so many rows, which share rows x tokens as they need, in whole blocks. They are packed by
# the last number: modelled microseconds of a pass without its attention, which costs a row the same in any wave.
# variant, rows, tokens a row, fill pages, read pages (to the padded end of any chunk), rows for the head, body digest
TRACES = (
    Shape("single", 1, 96, 3, 0, "last", "dc3b3998b31bb7c5", 33028),
    Shape("single", 1, 256, 8, 0, "last", "62f5436f66a557df", 39222),
    Shape("single", 1, 512, 16, 0, "last", "73838ad4747f489f", 62845),
    Shape("single", 1, 768, 24, 0, "last", "3728e472020d5e10", 90697),
    Shape("single", 1, 1280, 40, 0, "last", "dc529f6be5de2f5c", 146218),
    Shape("single", 1, 2048, 64, 0, "last", "3313d4dbdba8e742", 230788),
    Shape("ragged", 8, 32, 8, 0, "last", "28570fe8262b38a2", 39232),
    Shape("ragged", 16, 32, 16, 0, "last", "fb9d9c72687bf49f", 62855),
    Shape("ragged", 24, 32, 24, 0, "last", "ad6eb96484ecc44d", 90707),
    Shape("ragged", 20, 64, 40, 0, "last", "d0eb0ac6032f1b9e", 146228),
    Shape("ragged", 28, 64, 56, 0, "last", "295ff092bae90d84", 203317),
    Shape("ragged", 20, 128, 80, 0, "last", "caac3062d091982c", 286767),
    Shape("ragged", 32, 128, 128, 0, "last", "1985b46ea8ed56d9", 461562),
    Shape("chunked", 1, 96, 3, 1048, "last", "e61499d1f62a5a4d"),
    Shape("chunked", 1, 256, 8, 1048, "last", "84d551470219e316"),
    Shape("chunked", 1, 512, 16, 1048, "last", "89a8cdf5b7d6b6bb"),
    Shape("chunked", 1, 768, 24, 1048, "last", "ee3d4a21845a8547"),
    Shape("chunked", 1, 1280, 40, 1048, "last", "7ec2abe731f624bd"),
    Shape("chunked", 1, 2048, 64, 1048, "last", "221b4bed72c77025"),
    Shape("chunked_batched", 2, 96, 6, 1048, "last", "139d3d133f761df4"),
    Shape("chunked_batched", 4, 96, 12, 1048, "last", "1b79be98500d8819"),
    Shape("chunked_batched", 8, 96, 24, 1048, "last", "7d0321a12bdb938e"),
    Shape("chunked_batched", 16, 96, 48, 1048, "last", "50eb7de8a761d96c"),
    Shape("chunked_batched", 32, 96, 96, 1048, "last", "2eedc71d8ee38b98"),
    Shape("chunked_batched", 2, 256, 16, 1048, "last", "d0106e3fedad8f5f"),
    Shape("chunked_batched", 4, 256, 32, 1048, "last", "b0fffaf16ed55a91"),
    Shape("chunked_batched", 8, 256, 64, 1048, "last", "46bec1db6a186df4"),
    Shape("chunked_batched", 16, 256, 128, 1048, "last", "5f7a6ee7d2c6ae4a"),
    Shape("chunked_batched", 2, 512, 32, 1048, "last", "c339e7f706230823"),
    Shape("chunked_batched", 4, 512, 64, 1048, "last", "f1bffb8cd3539732"),
    Shape("chunked_batched", 8, 512, 128, 1048, "last", "9ae29c367b2f3d70"),
    Shape("chunked_batched", 2, 768, 48, 1048, "last", "728e508b421abab7"),
    Shape("chunked_batched", 4, 768, 96, 1048, "last", "33cd139f290cd632"),
    Shape("chunked_batched", 2, 1280, 80, 1048, "last", "18654618bd4e1dd1"),
    Shape("chunked_batched", 2, 2048, 128, 1048, "last", "85f40405e4edd061"),
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
    ("query_key_value", 3): multicast_1d(8, 8, 8, 1, 3, 3, 3, 3, 3),
    ("query_key_value", 6): multicast_1d(8, 8, 8, 1, 3, 6, 3, 6, 3),
    ("query_key_value", 8): multicast_2d(8, 8, 8, 1, 4, 1, 20, 1, 20),
    ("query_key_value", 12): multicast_2d(8, 6, 8, 1, 4, 2, 20, 2, 20),
    ("query_key_value", 16): multicast_2d(8, 8, 8, 1, 4, 2, 20, 2, 20),
    ("query_key_value", 24): multicast_2d(8, 8, 8, 1, 4, 3, 20, 3, 20),
    ("query_key_value", 32): multicast_2d(8, 8, 8, 1, 4, 4, 20, 4, 20),
    ("query_key_value", 40): multicast_2d(8, 8, 8, 1, 4, 5, 20, 5, 20),
    ("query_key_value", 48): multicast_2d(8, 8, 6, 1, 4, 6, 20, 6, 20),
    ("query_key_value", 56): multicast_2d(8, 8, 4, 1, 4, 7, 20, 7, 20),
    ("query_key_value", 64): multicast_2d(8, 8, 8, 1, 4, 4, 20, 8, 20),
    ("query_key_value", 80): multicast_2d(8, 8, 6, 1, 4, 5, 20, 10, 20),
    ("query_key_value", 96): multicast_2d(8, 8, 8, 1, 4, 3, 20, 12, 20),
    ("query_key_value", 128): multicast_2d(8, 8, 8, 1, 4, 2, 20, 16, 20),
    ("attention_output", 3): multicast_1d(8, 8, 8, 1, 2, 3, 2, 3, 2),
    ("attention_output", 6): multicast_1d(8, 8, 8, 2, 2, 6, 2, 6, 2),
    ("attention_output", 8): multicast_2d(8, 8, 8, 1, 3, 1, 12, 1, 12),
    ("attention_output", 12): multicast_2d(8, 6, 8, 1, 4, 2, 12, 2, 12),
    ("attention_output", 16): multicast_2d(8, 8, 8, 1, 4, 2, 12, 2, 12),
    ("attention_output", 24): multicast_2d(8, 8, 8, 1, 4, 3, 12, 3, 12),
    ("attention_output", 32): multicast_2d(8, 8, 8, 1, 4, 4, 12, 4, 12),
    ("attention_output", 40): multicast_2d(8, 8, 8, 1, 4, 5, 12, 5, 12),
    ("attention_output", 48): multicast_2d(8, 8, 8, 1, 4, 6, 12, 6, 12),
    ("attention_output", 56): multicast_2d(8, 8, 8, 1, 4, 7, 12, 7, 12),
    ("attention_output", 64): multicast_2d(8, 8, 6, 1, 4, 8, 12, 8, 12),
    ("attention_output", 80): multicast_2d(8, 8, 6, 1, 4, 10, 12, 10, 12),
    ("attention_output", 96): multicast_2d(8, 8, 8, 1, 4, 6, 12, 12, 12),
    ("attention_output", 128): multicast_2d(8, 8, 8, 1, 4, 8, 12, 16, 12),
    ("gate_up", 3): minimal(8, 8, 1, 6, 60, 1, 4),
    ("gate_up", 6): minimal(8, 8, 1, 6, 60, 1, 4),
    ("gate_up", 8): minimal(8, 8, 1, 6, 60, 1, 4),
    ("gate_up", 12): minimal(8, 8, 2, 8, 36, 1, 4),
    ("gate_up", 16): minimal(8, 8, 2, 8, 36, 1, 4),
    ("gate_up", 24): minimal(8, 8, 3, 6, 36, 1, 4),
    ("gate_up", 32): minimal(8, 8, 4, 6, 30, 2, 2),
    ("gate_up", 40): minimal(8, 8, 5, 8, 20, 1, 4),
    ("gate_up", 48): minimal(8, 8, 6, 8, 18, 2, 2),
    ("gate_up", 56): minimal(8, 8, 7, 8, 12, 1, 4),
    ("gate_up", 64): minimal(8, 8, 8, 8, 12, 1, 4),
    ("gate_up", 80): minimal(8, 8, 10, 8, 10, 2, 2),
    ("gate_up", 96): minimal(8, 8, 6, 6, 18, 2, 2),
    ("gate_up", 128): minimal(8, 8, 8, 8, 10, 2, 2),
    ("down", 3): multicast_1d(8, 8, 8, 1, 2, 3, 2, 3, 2),
    ("down", 6): multicast_1d(8, 8, 8, 2, 2, 6, 2, 6, 2),
    ("down", 8): multicast_2d(8, 8, 8, 1, 3, 1, 12, 1, 12),
    ("down", 12): multicast_2d(8, 6, 8, 1, 4, 2, 12, 2, 12),
    ("down", 16): multicast_2d(8, 8, 8, 1, 4, 2, 12, 2, 12),
    ("down", 24): multicast_2d(8, 8, 8, 1, 4, 3, 12, 3, 12),
    ("down", 32): multicast_2d(8, 8, 8, 1, 4, 4, 12, 4, 12),
    ("down", 40): multicast_2d(8, 8, 8, 1, 4, 5, 12, 5, 12),
    ("down", 48): multicast_2d(8, 8, 8, 1, 4, 6, 12, 6, 12),
    ("down", 56): multicast_2d(8, 8, 8, 1, 4, 7, 12, 7, 12),
    ("down", 64): multicast_2d(8, 8, 8, 1, 4, 8, 12, 8, 12),
    ("down", 80): multicast_2d(8, 8, 8, 1, 4, 10, 12, 10, 12),
    ("down", 96): multicast_2d(8, 8, 6, 1, 4, 12, 12, 12, 12),
    ("down", 128): multicast_2d(8, 8, 8, 1, 4, 8, 12, 16, 12),
    ("head", 1): multicast_1d(8, 8, 6, 1, 3, 1, 66, 1, 66),
}

# (variant, rows, tokens a row): how attention is cut
ATTENTION = {
    ("single", 1, 96): attention_chunks(32, 32),
    ("single", 1, 256): attention_chunks(64, 256),
    ("single", 1, 512): attention_chunks(128, 256),
    ("single", 1, 768): attention_chunks(256, 256),
    ("single", 1, 1280): attention_chunks(256, 256),
    ("single", 1, 2048): attention_chunks(128, 256),
    ("ragged", 8, 32): attention_chunks(64, 128),
    ("ragged", 16, 32): attention_chunks(128, 128),
    ("ragged", 24, 32): attention_chunks(64, 128),
    ("ragged", 20, 64): attention_chunks(128, 128),
    ("ragged", 28, 64): attention_chunks(128, 128),
    ("ragged", 20, 128): attention_chunks(128, 128),
    ("ragged", 32, 128): attention_chunks(128, 128),
    ("chunked", 1, 96): attention_chunks(32, 128),
    ("chunked", 1, 256): attention_chunks(64, 128),
    ("chunked", 1, 512): attention_chunks(128, 128),
    ("chunked", 1, 768): attention_chunks(64, 128),
    ("chunked", 1, 1280): attention_chunks(128, 128),
    ("chunked", 1, 2048): attention_chunks(128, 128),
    ("chunked_batched", 2, 96): attention_chunks(32, 128),
    ("chunked_batched", 4, 96): attention_chunks(32, 128),
    ("chunked_batched", 8, 96): attention_chunks(32, 128),
    ("chunked_batched", 16, 96): attention_chunks(32, 128),
    ("chunked_batched", 32, 96): attention_chunks(32, 128),
    ("chunked_batched", 2, 256): attention_chunks(128, 128),
    ("chunked_batched", 4, 256): attention_chunks(64, 128),
    ("chunked_batched", 8, 256): attention_chunks(128, 128),
    ("chunked_batched", 16, 256): attention_chunks(128, 128),
    ("chunked_batched", 2, 512): attention_chunks(64, 128),
    ("chunked_batched", 4, 512): attention_chunks(128, 128),
    ("chunked_batched", 8, 512): attention_chunks(128, 128),
    ("chunked_batched", 2, 768): attention_chunks(128, 128),
    ("chunked_batched", 4, 768): attention_chunks(128, 128),
    ("chunked_batched", 2, 1280): attention_chunks(128, 128),
    ("chunked_batched", 2, 2048): attention_chunks(128, 128),
}

# tiles of tokens in the pass: where a layer's intermediates lie, in the order normed, heads, attended, gated
PLACES = {
    3: Places(L1, L1, L1, L1),
    6: Places(L1, L1, L1, L1),
    8: Places(L1, L1, L1, L1),
    12: Places(L1, L1, L1, DRAM),
    16: Places(L1, L1, L1, DRAM),
    24: Places(L1, L1, L1, DRAM),
    32: Places(L1, L1, L1, DRAM),
    40: Places(L1, L1, L1, DRAM),
    48: Places(L1, L1, L1, DRAM),
    56: Places(L1, L1, L1, DRAM),
    64: Places(L1, L1, L1, DRAM),
    80: Places(L1, L1, L1, DRAM),
    96: Places(L1, L1, L1, DRAM),
    128: Places(L1, L1, L1, DRAM),
}

# --- weights and stores: every long-lived device tensor -------------------------------------------------------------

HIDDEN_NORM = (1, 1, HIDDEN // TILE, TILE)  # the row-major form that rms_norm takes: rows of one tile's width

WEIGHTS = (
    Weight(
        "embedding", ("model.embed_tokens.weight",), "rows", (VOCABULARY, HIDDEN), EMBEDDING_DTYPE, ROW_MAJOR, REPLICATE
    ),
    Weight("rotary_cos", (), "rotary_cos", (CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("rotary_sin", (), "rotary_sin", (CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("final_norm", ("model.norm.weight",), "norm", HIDDEN_NORM, NORM_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("head", ("lm_head.weight",), "projection", (HIDDEN, VOCABULARY), HEAD_DTYPE, TILED, REPLICATE),
)
LAYER_WEIGHTS = (
    Weight(
        "attention_norm",
        ("model.layers.{layer}.input_layernorm.weight",),
        "norm",
        HIDDEN_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "query_key_value",
        (
            "model.layers.{layer}.self_attn.q_proj.weight",
            "model.layers.{layer}.self_attn.k_proj.weight",
            "model.layers.{layer}.self_attn.v_proj.weight",
        ),
        "projection",
        (HIDDEN, QUERY_KEY_VALUE_WIDTH),
        WEIGHT_DTYPE,
        TILED,
        REPLICATE,
    ),
    Weight(
        "attention_output",
        ("model.layers.{layer}.self_attn.o_proj.weight",),
        "projection",
        (QUERY_WIDTH, HIDDEN),
        WEIGHT_DTYPE,
        TILED,
        REPLICATE,
    ),
    Weight(
        "mlp_norm",
        ("model.layers.{layer}.post_attention_layernorm.weight",),
        "norm",
        HIDDEN_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "gate_up",
        ("model.layers.{layer}.mlp.gate_proj.weight", "model.layers.{layer}.mlp.up_proj.weight"),
        "paired_projection",
        (HIDDEN, 2 * INTERMEDIATE),
        WEIGHT_DTYPE,
        TILED,
        REPLICATE,
    ),
    Weight(
        "down",
        ("model.layers.{layer}.mlp.down_proj.weight",),
        "projection",
        (INTERMEDIATE, HIDDEN),
        WEIGHT_DTYPE,
        TILED,
        REPLICATE,
    ),
)

BLOCKS = (KEY_VALUE_BLOCKS, KEY_VALUE_HEADS, BLOCK_SIZE, HEAD_DIM)
STORES = (
    Store("keys", LAYERS, BLOCKS, KEY_VALUE_DTYPE, TILED, REPLICATE),
    Store("values", LAYERS, BLOCKS, KEY_VALUE_DTYPE, TILED, REPLICATE),
)

# --- inputs: the host values of a pass and when a replay copies them again ------------------------------------------


def packed_inputs(shape):
    """Rows lie back to back in one sequence: tokens, positions, the blocks to fill, the rows that reach the head."""
    packed = shape.rows * shape.tokens
    return (
        Input("tokens", (1, packed), ttnn.uint32, "always"),
        Input("positions", (1, packed), ttnn.uint32, "always"),
        Input("fill_table", (1, shape.fill_pages), ttnn.int32, "always"),
        Input("last_rows", (1, ROW_SLOTS), ttnn.uint32, "changed"),
    )


def ragged_inputs(shape):
    """A wave also states where each row begins, whatever its length, and where the last one ends."""
    return (*packed_inputs(shape), Input("row_bounds", (shape.rows + 1,), ttnn.int32, "changed"))


def chunked_inputs(shape):
    """Chunks also read the blocks of their rows from the first one on, and state the one position that all start at."""
    return (
        *packed_inputs(shape),
        Input("read_table", (shape.rows, shape.read_pages), ttnn.int32, "always"),
        Input("start", (1,), ttnn.int32, "always"),
    )


INPUTS = {
    "single": packed_inputs,
    "ragged": ragged_inputs,
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


def attend_ragged(query, key, value, key_cache, value_cache, inputs, shape):
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
        program_config=ATTENTION["ragged", shape.rows, shape.tokens],
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
    "ragged": attend_ragged,
    "chunked": attend_chunked,
    "chunked_batched": attend_chunked_batched,
}


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
    ttnn.deallocate(normed)
    query, key, value = ttnn.experimental.nlp_create_qkv_heads(
        query_key_value,
        num_heads=QUERY_HEADS,
        num_kv_heads=KEY_VALUE_HEADS,
        transpose_k_heads=False,
        memory_config=place.heads,
    )
    ttnn.deallocate(query_key_value)
    query = rotate_halves(query, cos, sin, place)
    key = rotate_halves(key, cos, sin, place)
    ttnn.experimental.paged_fill_cache(key_cache, key, inputs.fill_table, batch_idx=0)
    ttnn.experimental.paged_fill_cache(value_cache, value, inputs.fill_table, batch_idx=0)
    attended = ATTEND[shape.variant](query, key, value, key_cache, value_cache, inputs, shape)
    ttnn.deallocate(query)
    ttnn.deallocate(key)
    ttnn.deallocate(value)
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


def layers(hidden, cos, sin, inputs, weights, stores, shape):
    """All layers over hidden [1, 1, tokens, HIDDEN], which is used up; each writes the pass's keys and values."""
    for layer, key_cache, value_cache in zip(weights.layers, stores.keys, stores.values):
        hidden = attention(hidden, cos, sin, layer, key_cache, value_cache, inputs, shape)
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
