"""Prefill of gemma-3-1b on n150. Written by codegen, do not edit.

Rebuild:   codegen build gemma-3-1b --target n150
Manifest:  models/gemma-3-1b.toml
Geometry:  de12c487a71be582

    26 layers of 1152 hidden and 6912 intermediate, 4 query and 1 key-value heads of 256, 262144 vocabulary
    32768 tokens of context, 2048 key-value blocks of 32 tokens
    bfloat16 weights, bfloat16 keys and values, bfloat16 activations

    variant          rows            tokens a row
    single           1               32 96 256 512 1024 1504 2048
    batched          2 4 8           32 96 256 512 1024
    batched          2 4             1504 2048
    chunked          1               32 96 256 512 1024 1504 2048
    chunked_batched  2 4 8           32 96 256 512 1024
    chunked_batched  2 4             1504 2048
"""

from runtime.backend import ttnn
from runtime.tables import REPLICATE, Board, Geometry, Input, Places, Rope, Shape, Store, Weight

# --- constants: geometry, precision, memory and compute -------------------------------------------------------------

MODEL = "gemma-3-1b"
TARGET = "n150"

VOCABULARY = 262144  # model.vocabulary
HIDDEN = 1152  # model.hidden
INTERMEDIATE = 6912  # model.intermediate
LAYERS = 26  # model.layers
QUERY_HEADS = 4  # model.query_heads
KEY_VALUE_HEADS = 1  # model.key_value_heads
HEAD_DIM = 256  # model.head_dim
QUERY_WIDTH = 1024  # 4 query heads x 256
QUERY_KEY_VALUE_WIDTH = 1536  # (4 query + 2 x 1 key-value heads) x 256
ATTENTION_SCALE = 0.0625  # 256 ** -0.5, exact in float32
NORM_EPSILON = 1e-06  # model.norm_epsilon
ROTARY_STYLE = "half_split"  # model.head_dim
SLIDING_WINDOW = 512  # model.sliding_window: tokens that a token of a sliding layer sees, itself included
LAYER_KINDS = (  # model.full_attention_layers
    "sliding", "sliding", "sliding", "sliding", "sliding", "full",
    "sliding", "sliding", "sliding", "sliding", "sliding", "full",
    "sliding", "sliding", "sliding", "sliding", "sliding", "full",
    "sliding", "sliding", "sliding", "sliding", "sliding", "full",
    "sliding", "sliding",
)  # fmt: skip

TILE = 32
ROW_SLOTS = TILE  # last rows that one pass can pick: one tile of rows
TOP_K = 32  # candidates that sampling draws from: one tile of columns
CONTEXT = 32768  # target.n150.context
BLOCK_SIZE = 32  # target.n150.block_size
KEY_VALUE_BLOCKS = 2048  # target.n150.key_value_blocks
PREFILL_CHUNK = 2048  # target.n150.prefill_chunk
ALIGNMENT = 128  # lcm(32 block, 128 attention chunk)
WINDOW_REACH = 512  # 511 tokens before a token, in multiples of the alignment
# by the tokens of a chunk: blocks of the chunk and of the reach before it, rounded up to what attention reads at a time
WINDOW_PAGES = {32: 24, 96: 24, 256: 24, 512: 32, 1024: 48, 1504: 64, 2048: 80}

GEOMETRY = Geometry(
    vocabulary=262144,
    hidden=HIDDEN,
    intermediate=6912,
    layers=LAYERS,
    query_heads=4,
    key_value_heads=1,
    head_dim=HEAD_DIM,
    norm_epsilon=NORM_EPSILON,
    query_key_value_bias=False,
    query_key_norm=True,
    tied_embeddings=True,
    rope=Rope(
        kind="default",
        theta=1000000.0,
        dimensions=256,
    ),
    fused_projections=False,
    local_rope=Rope(
        kind="default",
        theta=10000.0,
        dimensions=256,
    ),
    activation="gelu_tanh",
    sliding_window=SLIDING_WINDOW,
    full_attention_layers=(5, 11, 17, 23),
    query_scale=256,
    sandwich_norms=True,
    unit_offset_norms=True,
    scaled_embedding=True,
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
WEIGHT_DTYPE = ttnn.bfloat16  # target.n150.dtypes.weights
EMBEDDING_DTYPE = ttnn.bfloat16  # target.n150.dtypes.embedding
HEAD_DTYPE = ttnn.bfloat8_b  # target.n150.dtypes.head
KEY_VALUE_DTYPE = ttnn.bfloat16  # target.n150.dtypes.key_value
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
MATMUL_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat16 weights
    math_fidelity=ttnn.MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
HEAD_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat8_b head
    math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)
ATTENTION_COMPUTE = ttnn.WormholeComputeKernelConfig(  # bfloat16 keys and values
    math_fidelity=ttnn.MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)

# --- tables: the closed set of passes and their programs ------------------------------------------------------------

WAVES = (1, 2, 4, 8)  # target.n150.waves
LENGTHS = (32, 96, 256, 512, 1024, 1504, 2048)  # target.n150.lengths

# variant, rows, tokens a row, fill pages, read pages (to the padded end of any chunk), rows for the head, body digest
TRACES = (
    Shape("single", 1, 32, 1, 0, "last", "47cea6778de15d18"),
    Shape("single", 1, 96, 3, 0, "last", "01665084cc193d51"),
    Shape("single", 1, 256, 8, 0, "last", "b37e268d15ed366f"),
    Shape("single", 1, 512, 16, 0, "last", "193e3186b4fcd7ee"),
    Shape("single", 1, 1024, 32, 0, "last", "70d18b7cfbcc9127"),
    Shape("single", 1, 1504, 47, 0, "last", "f0fb008959f7ba4a"),
    Shape("single", 1, 2048, 64, 0, "last", "b05e2f2b58810ef9"),
    Shape("batched", 2, 32, 2, 0, "last", "80738148b4c8430c"),
    Shape("batched", 4, 32, 4, 0, "last", "b0d382ec9814bc23"),
    Shape("batched", 8, 32, 8, 0, "last", "8754afdef903c1fa"),
    Shape("batched", 2, 96, 6, 0, "last", "671ccd110857d23d"),
    Shape("batched", 4, 96, 12, 0, "last", "1c87946d2fec2950"),
    Shape("batched", 8, 96, 24, 0, "last", "072aab66da821fe7"),
    Shape("batched", 2, 256, 16, 0, "last", "c02c79b8e456c0a7"),
    Shape("batched", 4, 256, 32, 0, "last", "cc3d497db6b08255"),
    Shape("batched", 8, 256, 64, 0, "last", "a723e984c7386535"),
    Shape("batched", 2, 512, 32, 0, "last", "4507979de0ad5fb0"),
    Shape("batched", 4, 512, 64, 0, "last", "8e7a9791f8efa7b5"),
    Shape("batched", 8, 512, 128, 0, "last", "a4506cac6386c91f"),
    Shape("batched", 2, 1024, 64, 0, "last", "7d85b659ea01d4c8"),
    Shape("batched", 4, 1024, 128, 0, "last", "e1824e5ade9cb752"),
    Shape("batched", 8, 1024, 256, 0, "last", "3e31083e8e1bfccd"),
    Shape("batched", 2, 1504, 94, 0, "last", "9b79bcd1015a9d20"),
    Shape("batched", 4, 1504, 188, 0, "last", "37122581560a4da7"),
    Shape("batched", 2, 2048, 128, 0, "last", "92ad60abeceafaa1"),
    Shape("batched", 4, 2048, 256, 0, "last", "78a6d448d5dbeef5"),
    Shape("chunked", 1, 32, 1, 1040, "last", "3a813f6308c1fe89"),
    Shape("chunked", 1, 96, 3, 1040, "last", "2e7407aa79015c86"),
    Shape("chunked", 1, 256, 8, 1040, "last", "66679970e155df7b"),
    Shape("chunked", 1, 512, 16, 1040, "last", "9af7378d6d4703c1"),
    Shape("chunked", 1, 1024, 32, 1040, "last", "cd816c1cca210f1b"),
    Shape("chunked", 1, 1504, 47, 1040, "last", "1489914674a40d19"),
    Shape("chunked", 1, 2048, 64, 1040, "last", "ff35a1ebd7850d69"),
    Shape("chunked_batched", 2, 32, 2, 1040, "last", "a36dd7ae5879f255"),
    Shape("chunked_batched", 4, 32, 4, 1040, "last", "e546ddd3bf0a76d2"),
    Shape("chunked_batched", 8, 32, 8, 1040, "last", "0995ca40accff0cf"),
    Shape("chunked_batched", 2, 96, 6, 1040, "last", "07c7443e39190556"),
    Shape("chunked_batched", 4, 96, 12, 1040, "last", "28f7a3b3bd55f20c"),
    Shape("chunked_batched", 8, 96, 24, 1040, "last", "d14c506f74b713c8"),
    Shape("chunked_batched", 2, 256, 16, 1040, "last", "d736cc8d724fab83"),
    Shape("chunked_batched", 4, 256, 32, 1040, "last", "df3473f44d7cdd72"),
    Shape("chunked_batched", 8, 256, 64, 1040, "last", "e790879d1ff92553"),
    Shape("chunked_batched", 2, 512, 32, 1040, "last", "ee4cb068016f2403"),
    Shape("chunked_batched", 4, 512, 64, 1040, "last", "6ce95e08a5dc012e"),
    Shape("chunked_batched", 8, 512, 128, 1040, "last", "39f7b5ec22d2d725"),
    Shape("chunked_batched", 2, 1024, 64, 1040, "last", "f22436ce276b06b4"),
    Shape("chunked_batched", 4, 1024, 128, 1040, "last", "01ec62ae5205aa06"),
    Shape("chunked_batched", 8, 1024, 256, 1040, "last", "19880492ee81fa06"),
    Shape("chunked_batched", 2, 1504, 94, 1040, "last", "67beec014c20ebfe"),
    Shape("chunked_batched", 4, 1504, 188, 1040, "last", "f11023e48f48b8a5"),
    Shape("chunked_batched", 2, 2048, 128, 1040, "last", "0fd67f857dffeb50"),
    Shape("chunked_batched", 4, 2048, 256, 1040, "last", "e0250dc8feb517ec"),
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
    ("query_key_value", 1): multicast_1d(8, 8, 6, 1, 1, 1, 1, 1, 1),
    ("query_key_value", 2): multicast_1d(8, 8, 6, 2, 1, 2, 1, 2, 1),
    ("query_key_value", 3): multicast_1d(8, 8, 6, 3, 1, 3, 1, 3, 1),
    ("query_key_value", 4): multicast_1d(8, 8, 6, 4, 1, 4, 1, 4, 1),
    ("query_key_value", 6): multicast_2d(8, 6, 6, 1, 3, 1, 6, 1, 6),
    ("query_key_value", 8): multicast_2d(8, 8, 6, 1, 3, 1, 6, 1, 6),
    ("query_key_value", 12): multicast_2d(8, 6, 6, 1, 3, 2, 6, 2, 6),
    ("query_key_value", 16): multicast_2d(8, 8, 6, 1, 3, 2, 6, 2, 6),
    ("query_key_value", 24): multicast_2d(8, 8, 6, 1, 3, 3, 6, 3, 6),
    ("query_key_value", 32): multicast_2d(8, 8, 6, 1, 3, 4, 6, 4, 6),
    ("query_key_value", 47): multicast_2d(8, 8, 6, 1, 3, 6, 6, 6, 6),
    ("query_key_value", 64): multicast_2d(8, 8, 6, 2, 2, 8, 2, 8, 6),
    ("query_key_value", 94): multicast_2d(8, 8, 6, 2, 2, 12, 2, 12, 6),
    ("query_key_value", 128): multicast_2d(8, 8, 6, 2, 2, 16, 2, 16, 6),
    ("query_key_value", 188): multicast_2d(8, 8, 4, 2, 2, 24, 2, 24, 6),
    ("query_key_value", 256): multicast_2d(8, 8, 4, 2, 2, 32, 2, 32, 6),
    ("attention_output", 1): multicast_1d(8, 8, 8, 1, 1, 1, 1, 1, 1),
    ("attention_output", 2): multicast_1d(8, 8, 8, 2, 1, 2, 1, 2, 1),
    ("attention_output", 3): multicast_1d(8, 8, 8, 3, 1, 3, 1, 3, 1),
    ("attention_output", 4): multicast_1d(8, 8, 8, 4, 1, 4, 1, 4, 1),
    ("attention_output", 6): multicast_2d(8, 6, 8, 1, 3, 1, 6, 1, 6),
    ("attention_output", 8): multicast_2d(8, 8, 8, 1, 3, 1, 6, 1, 6),
    ("attention_output", 12): multicast_2d(8, 6, 8, 1, 3, 2, 6, 2, 6),
    ("attention_output", 16): multicast_2d(8, 8, 8, 1, 3, 2, 6, 2, 6),
    ("attention_output", 24): multicast_2d(8, 8, 8, 1, 3, 3, 6, 3, 6),
    ("attention_output", 32): multicast_2d(8, 8, 8, 1, 3, 4, 6, 4, 6),
    ("attention_output", 47): multicast_2d(8, 8, 8, 2, 2, 6, 2, 6, 6),
    ("attention_output", 64): multicast_2d(8, 8, 8, 2, 2, 8, 2, 8, 6),
    ("attention_output", 94): multicast_2d(8, 8, 8, 4, 1, 12, 1, 12, 5),
    ("attention_output", 128): multicast_2d(8, 8, 8, 4, 1, 16, 1, 16, 5),
    ("attention_output", 188): multicast_2d(8, 8, 4, 4, 1, 24, 1, 24, 5),
    ("attention_output", 256): multicast_2d(8, 8, 8, 4, 1, 32, 1, 32, 5),
    ("gate_up", 1): multicast_1d(8, 8, 6, 1, 4, 1, 4, 1, 4),
    ("gate_up", 2): multicast_1d(8, 8, 6, 1, 4, 2, 4, 2, 4),
    ("gate_up", 3): multicast_1d(8, 8, 6, 1, 4, 3, 4, 3, 4),
    ("gate_up", 4): multicast_1d(8, 8, 6, 1, 4, 4, 4, 4, 4),
    ("gate_up", 6): multicast_1d(8, 8, 6, 1, 4, 6, 4, 6, 4),
    ("gate_up", 8): multicast_2d(8, 8, 6, 1, 4, 1, 28, 1, 28),
    ("gate_up", 12): multicast_2d(8, 6, 6, 1, 4, 2, 28, 2, 28),
    ("gate_up", 16): multicast_2d(8, 8, 6, 1, 4, 2, 28, 2, 28),
    ("gate_up", 24): multicast_2d(8, 8, 4, 1, 4, 3, 28, 3, 28),
    ("gate_up", 32): multicast_2d(8, 8, 4, 1, 4, 2, 28, 4, 28),
    ("gate_up", 47): multicast_2d(8, 8, 6, 1, 4, 6, 4, 6, 28),
    ("gate_up", 64): multicast_2d(8, 8, 4, 1, 4, 4, 28, 8, 28),
    ("gate_up", 94): multicast_2d(8, 8, 6, 1, 4, 3, 28, 12, 28),
    ("gate_up", 128): multicast_2d(8, 8, 4, 1, 4, 4, 28, 16, 28),
    ("gate_up", 188): multicast_2d(8, 8, 4, 1, 4, 24, 4, 24, 28),
    ("gate_up", 256): multicast_2d(8, 8, 6, 1, 4, 16, 4, 32, 28),
    ("down", 1): multicast_1d(8, 8, 8, 1, 1, 1, 1, 1, 1),
    ("down", 2): multicast_1d(8, 8, 8, 2, 1, 2, 1, 2, 1),
    ("down", 3): multicast_1d(8, 8, 8, 3, 1, 3, 1, 3, 1),
    ("down", 4): multicast_1d(8, 8, 8, 4, 1, 4, 1, 4, 1),
    ("down", 6): multicast_2d(8, 6, 8, 1, 3, 1, 6, 1, 6),
    ("down", 8): multicast_2d(8, 8, 8, 1, 3, 1, 6, 1, 6),
    ("down", 12): multicast_2d(8, 6, 8, 1, 3, 2, 6, 2, 6),
    ("down", 16): multicast_2d(8, 8, 8, 1, 3, 2, 6, 2, 6),
    ("down", 24): multicast_2d(8, 8, 8, 1, 3, 3, 6, 3, 6),
    ("down", 32): multicast_2d(8, 8, 8, 1, 3, 4, 6, 4, 6),
    ("down", 47): multicast_2d(8, 8, 8, 2, 2, 6, 2, 6, 6),
    ("down", 64): multicast_2d(8, 8, 8, 2, 2, 8, 2, 8, 6),
    ("down", 94): multicast_2d(8, 8, 8, 4, 1, 12, 1, 12, 5),
    ("down", 128): multicast_2d(8, 8, 8, 4, 1, 16, 1, 16, 5),
    ("down", 188): multicast_2d(8, 8, 8, 4, 1, 24, 1, 24, 5),
    ("down", 256): multicast_2d(8, 8, 8, 4, 1, 32, 1, 32, 5),
    ("head", 1): multicast_1d(8, 8, 6, 1, 4, 1, 64, 1, 128),
}

# (variant, rows, tokens a row): how attention is cut
ATTENTION = {
    ("single", 1, 32): attention_chunks(32, 32),
    ("single", 1, 96): attention_chunks(32, 32),
    ("single", 1, 256): attention_chunks(32, 256),
    ("single", 1, 512): attention_chunks(32, 256),
    ("single", 1, 1024): attention_chunks(64, 256),
    ("single", 1, 1504): attention_chunks(32, 32),
    ("single", 1, 2048): attention_chunks(128, 256),
    ("batched", 2, 32): attention_chunks(32, 32),
    ("batched", 4, 32): attention_chunks(32, 32),
    ("batched", 8, 32): attention_chunks(32, 32),
    ("batched", 2, 96): attention_chunks(32, 32),
    ("batched", 4, 96): attention_chunks(32, 32),
    ("batched", 8, 96): attention_chunks(32, 32),
    ("batched", 2, 256): attention_chunks(32, 256),
    ("batched", 4, 256): attention_chunks(64, 256),
    ("batched", 8, 256): attention_chunks(128, 256),
    ("batched", 2, 512): attention_chunks(64, 256),
    ("batched", 4, 512): attention_chunks(128, 256),
    ("batched", 8, 512): attention_chunks(256, 128),
    ("batched", 2, 1024): attention_chunks(128, 256),
    ("batched", 4, 1024): attention_chunks(256, 128),
    ("batched", 8, 1024): attention_chunks(256, 128),
    ("batched", 2, 1504): attention_chunks(32, 32),
    ("batched", 4, 1504): attention_chunks(32, 32),
    ("batched", 2, 2048): attention_chunks(256, 128),
    ("batched", 4, 2048): attention_chunks(256, 128),
    ("chunked", 1, 32): attention_chunks(32, 128),
    ("chunked", 1, 96): attention_chunks(32, 128),
    ("chunked", 1, 256): attention_chunks(32, 128),
    ("chunked", 1, 512): attention_chunks(32, 128),
    ("chunked", 1, 1024): attention_chunks(64, 128),
    ("chunked", 1, 1504): attention_chunks(32, 128),
    ("chunked", 1, 2048): attention_chunks(128, 128),
    ("chunked_batched", 2, 32): attention_chunks(32, 128),
    ("chunked_batched", 4, 32): attention_chunks(32, 128),
    ("chunked_batched", 8, 32): attention_chunks(32, 128),
    ("chunked_batched", 2, 96): attention_chunks(32, 128),
    ("chunked_batched", 4, 96): attention_chunks(32, 128),
    ("chunked_batched", 8, 96): attention_chunks(32, 128),
    ("chunked_batched", 2, 256): attention_chunks(32, 128),
    ("chunked_batched", 4, 256): attention_chunks(64, 128),
    ("chunked_batched", 8, 256): attention_chunks(128, 128),
    ("chunked_batched", 2, 512): attention_chunks(64, 128),
    ("chunked_batched", 4, 512): attention_chunks(128, 128),
    ("chunked_batched", 8, 512): attention_chunks(128, 128),
    ("chunked_batched", 2, 1024): attention_chunks(128, 128),
    ("chunked_batched", 4, 1024): attention_chunks(128, 128),
    ("chunked_batched", 8, 1024): attention_chunks(128, 128),
    ("chunked_batched", 2, 1504): attention_chunks(32, 128),
    ("chunked_batched", 4, 1504): attention_chunks(32, 128),
    ("chunked_batched", 2, 2048): attention_chunks(128, 128),
    ("chunked_batched", 4, 2048): attention_chunks(128, 128),
}

# tiles of tokens in the pass: where a layer's intermediates lie, in the order normed, heads, attended, gated
PLACES = {
    1: Places(L1, L1, L1, L1),
    2: Places(L1, L1, L1, L1),
    3: Places(L1, L1, L1, L1),
    4: Places(L1, L1, L1, L1),
    6: Places(L1, L1, L1, L1),
    8: Places(L1, L1, L1, L1),
    12: Places(L1, L1, L1, L1),
    16: Places(L1, L1, L1, L1),
    24: Places(L1, L1, L1, L1),
    32: Places(L1, L1, L1, L1),
    47: Places(L1, L1, L1, L1),
    64: Places(DRAM, L1, L1, DRAM),
    94: Places(L1, L1, L1, DRAM),
    128: Places(L1, DRAM, DRAM, DRAM),
    188: Places(L1, L1, L1, DRAM),
    256: Places(L1, DRAM, DRAM, DRAM),
}

# --- weights and stores: every long-lived device tensor -------------------------------------------------------------

HIDDEN_NORM = (1, 1, HIDDEN // TILE, TILE)  # the row-major form that rms_norm takes: rows of one tile's width
HEAD_NORM = (1, 1, HEAD_DIM // TILE, TILE)

WEIGHTS = (
    Weight(
        "embedding",
        ("model.embed_tokens.weight",),
        "scaled_rows",
        (VOCABULARY, HIDDEN),
        EMBEDDING_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight("rotary_cos", (), "rotary_cos", (CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("rotary_sin", (), "rotary_sin", (CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("rotary_local_cos", (), "rotary_local_cos", (CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("rotary_local_sin", (), "rotary_local_sin", (CONTEXT, HEAD_DIM), ROTARY_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("final_norm", ("model.norm.weight",), "offset_norm", HIDDEN_NORM, NORM_DTYPE, ROW_MAJOR, REPLICATE),
    Weight("head", ("model.embed_tokens.weight",), "projection", (HIDDEN, VOCABULARY), HEAD_DTYPE, TILED, REPLICATE),
)
LAYER_WEIGHTS = (
    Weight(
        "attention_norm",
        ("model.layers.{layer}.input_layernorm.weight",),
        "offset_norm",
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
        "query_norm",
        ("model.layers.{layer}.self_attn.q_norm.weight",),
        "offset_norm",
        HEAD_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "key_norm",
        ("model.layers.{layer}.self_attn.k_norm.weight",),
        "offset_norm",
        HEAD_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
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
        "attention_output_norm",
        ("model.layers.{layer}.post_attention_layernorm.weight",),
        "offset_norm",
        HIDDEN_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "mlp_norm",
        ("model.layers.{layer}.pre_feedforward_layernorm.weight",),
        "offset_norm",
        HIDDEN_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
        REPLICATE,
    ),
    Weight(
        "gate",
        ("model.layers.{layer}.mlp.gate_proj.weight",),
        "projection",
        (HIDDEN, INTERMEDIATE),
        WEIGHT_DTYPE,
        TILED,
        REPLICATE,
    ),
    Weight(
        "up",
        ("model.layers.{layer}.mlp.up_proj.weight",),
        "projection",
        (HIDDEN, INTERMEDIATE),
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
    Weight(
        "mlp_output_norm",
        ("model.layers.{layer}.post_feedforward_layernorm.weight",),
        "offset_norm",
        HIDDEN_NORM,
        NORM_DTYPE,
        ROW_MAJOR,
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


def batched_inputs(shape):
    """A wave also states where each padded row begins and where the last one ends."""
    return (*packed_inputs(shape), Input("row_bounds", (shape.rows + 1,), ttnn.int32, "never"))


def chunked_inputs(shape):
    """Chunks also read the blocks of their rows and state the one position that all start at: full layers from the
    first block on, sliding layers from WINDOW_REACH tokens before the chunk on, or the first, and count from there.
    """
    return (
        *packed_inputs(shape),
        Input("read_table", (shape.rows, shape.read_pages), ttnn.int32, "always"),
        Input("start", (1,), ttnn.int32, "always"),
        Input("window_table", (shape.rows, WINDOW_PAGES[shape.tokens]), ttnn.int32, "always"),
        Input("window_start", (1,), ttnn.int32, "always"),
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
    """Positions [1, tokens] -> cosines and sines of full, then of sliding layers, each [1, 1, tokens, HEAD_DIM]."""
    tables = (weights.rotary_cos, weights.rotary_sin, weights.rotary_local_cos, weights.rotary_local_sin)
    rows = [ttnn.embedding(positions, table, layout=TILED, dtype=ROTARY_DTYPE, memory_config=DRAM) for table in tables]
    return [ttnn.unsqueeze_to_4D(of_table) for of_table in rows]


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


def attend_rows(query, key, value, window, shape):
    """Each row over its own keys and values, which are all in the pass: [rows, 1, tokens, QUERY_WIDTH]."""
    return ttnn.transformer.scaled_dot_product_attention(
        query,
        key,
        value,
        is_causal=True,
        sliding_window_size=window,
        scale=ATTENTION_SCALE,
        output_concat_heads=True,
        memory_config=PLACES[shape.token_tiles].attended,
        program_config=ATTENTION[shape.variant, shape.rows, shape.tokens],
        compute_kernel_config=ATTENTION_COMPUTE,
    )


def attend_single_sliding(query, key, value, key_cache, value_cache, inputs, shape):
    """One row, through a window."""
    return attend_rows(query, key, value, SLIDING_WINDOW, shape)


def batch_of_rows(heads, count, shape):
    """Heads [1, count, rows x tokens, HEAD_DIM] of a packed wave -> [rows, count, tokens, HEAD_DIM]."""
    return ttnn.transpose(
        ttnn.reshape(heads, (count, shape.rows, shape.tokens, HEAD_DIM)),
        0,
        1,
        memory_config=PLACES[shape.token_tiles].heads,
    )


def back_to_back(attended, shape):
    """A batch of rows [rows, 1, tokens, QUERY_WIDTH] -> a packed wave [1, 1, rows x tokens, QUERY_WIDTH]."""
    return ttnn.reshape(attended, (1, 1, shape.rows * shape.tokens, QUERY_WIDTH))


def attend_batched_sliding(query, key, value, key_cache, value_cache, inputs, shape):
    """A wave of rows as a batch: the operation takes no window beside the bounds of packed rows."""
    queries = batch_of_rows(query, QUERY_HEADS, shape)
    keys = batch_of_rows(key, KEY_VALUE_HEADS, shape)
    values = batch_of_rows(value, KEY_VALUE_HEADS, shape)
    attended = attend_rows(queries, keys, values, SLIDING_WINDOW, shape)
    ttnn.deallocate(queries)
    ttnn.deallocate(keys)
    ttnn.deallocate(values)
    return back_to_back(attended, shape)


def attend_cache(query, key_cache, value_cache, table, start, window, shape):
    """Chunks of rows over what the blocks of a table hold up to each token: [rows, QUERY_HEADS, tokens, HEAD_DIM]."""
    return ttnn.transformer.chunked_scaled_dot_product_attention(
        query,
        key_cache,
        value_cache,
        table,
        chunk_start_idx_tensor=start,
        sliding_window_size=window,
        scale=ATTENTION_SCALE,
        memory_config=PLACES[shape.token_tiles].attended,
        program_config=ATTENTION[shape.variant, shape.rows, shape.tokens],
        compute_kernel_config=ATTENTION_COMPUTE,
    )


def attend_chunked_sliding(query, key, value, key_cache, value_cache, inputs, shape):
    """A chunk over what its row has in the cache from WINDOW_REACH tokens before it on, or from its first."""
    attended = attend_cache(
        query, key_cache, value_cache, inputs.window_table, inputs.window_start, SLIDING_WINDOW, shape
    )
    return ttnn.experimental.nlp_concat_heads(attended, memory_config=PLACES[shape.token_tiles].attended)


def attend_chunked_batched_sliding(query, key, value, key_cache, value_cache, inputs, shape):
    """Chunks of several rows that start at one position: queries become a batch, since each row has its own cache."""
    rows = batch_of_rows(query, QUERY_HEADS, shape)
    attended = attend_cache(
        rows, key_cache, value_cache, inputs.window_table, inputs.window_start, SLIDING_WINDOW, shape
    )
    ttnn.deallocate(rows)
    return back_to_back(
        ttnn.experimental.nlp_concat_heads(attended, memory_config=PLACES[shape.token_tiles].attended), shape
    )


def attend_single_full(query, key, value, key_cache, value_cache, inputs, shape):
    """One row."""
    return attend_rows(query, key, value, None, shape)


def attend_batched_full(query, key, value, key_cache, value_cache, inputs, shape):
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


def attend_chunked_full(query, key, value, key_cache, value_cache, inputs, shape):
    """A chunk over everything that its row has in the cache, the chunk itself included."""
    attended = attend_cache(query, key_cache, value_cache, inputs.read_table, inputs.start, None, shape)
    return ttnn.experimental.nlp_concat_heads(attended, memory_config=PLACES[shape.token_tiles].attended)


def attend_chunked_batched_full(query, key, value, key_cache, value_cache, inputs, shape):
    """Chunks of several rows that start at one position: queries become a batch, since each row has its own cache."""
    rows = batch_of_rows(query, QUERY_HEADS, shape)
    attended = attend_cache(rows, key_cache, value_cache, inputs.read_table, inputs.start, None, shape)
    ttnn.deallocate(rows)
    return back_to_back(
        ttnn.experimental.nlp_concat_heads(attended, memory_config=PLACES[shape.token_tiles].attended), shape
    )


ATTEND = {
    ("sliding", "single"): attend_single_sliding,
    ("sliding", "batched"): attend_batched_sliding,
    ("sliding", "chunked"): attend_chunked_sliding,
    ("sliding", "chunked_batched"): attend_chunked_batched_sliding,
    ("full", "single"): attend_single_full,
    ("full", "batched"): attend_batched_full,
    ("full", "chunked"): attend_chunked_full,
    ("full", "chunked_batched"): attend_chunked_batched_full,
}


def attention(hidden, cos, sin, layer, key_cache, value_cache, inputs, shape, kind):
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
    query = head_norm(query, layer.query_norm, place)
    key = head_norm(key, layer.key_norm, place)
    query = rotate_halves(query, cos, sin, place)
    key = rotate_halves(key, cos, sin, place)
    ttnn.experimental.paged_fill_cache(key_cache, key, inputs.fill_table, batch_idx=0)
    ttnn.experimental.paged_fill_cache(value_cache, value, inputs.fill_table, batch_idx=0)
    attended = ATTEND[kind, shape.variant](query, key, value, key_cache, value_cache, inputs, shape)
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
    projected = ttnn.rms_norm(
        projected,
        epsilon=NORM_EPSILON,
        weight=layer.attention_output_norm,
        memory_config=DRAM,
        compute_kernel_config=NORM_COMPUTE,
    )
    summed = ttnn.add(hidden, projected, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    ttnn.deallocate(hidden)
    return summed


def mlp(hidden, layer, shape):
    """Add the gated feed-forward of one layer, down(gelu(gate(x)) * up(x)), to hidden, which is used up."""
    place = PLACES[shape.token_tiles]
    normed = ttnn.rms_norm(
        hidden,
        epsilon=NORM_EPSILON,
        weight=layer.mlp_norm,
        memory_config=place.normed,
        compute_kernel_config=NORM_COMPUTE,
    )
    gate = ttnn.linear(
        normed,
        layer.gate,
        dtype=ACTIVATION_DTYPE,
        memory_config=place.gated,
        program_config=MATMULS["gate_up", shape.token_tiles],
        compute_kernel_config=MATMUL_COMPUTE,
    )
    up = ttnn.linear(
        normed,
        layer.up,
        dtype=ACTIVATION_DTYPE,
        memory_config=place.gated,
        program_config=MATMULS["gate_up", shape.token_tiles],
        compute_kernel_config=MATMUL_COMPUTE,
    )
    ttnn.deallocate(normed)
    gated = ttnn.mul(
        gate,
        up,
        input_tensor_a_activations=[ttnn.UnaryOpType.GELU_TANH],
        dtype=ACTIVATION_DTYPE,
        memory_config=place.gated,
    )
    ttnn.deallocate(gate)
    ttnn.deallocate(up)
    fed = ttnn.linear(
        gated,
        layer.down,
        dtype=ACTIVATION_DTYPE,
        memory_config=DRAM,
        program_config=MATMULS["down", shape.token_tiles],
        compute_kernel_config=MATMUL_COMPUTE,
    )
    ttnn.deallocate(gated)
    fed = ttnn.rms_norm(
        fed, epsilon=NORM_EPSILON, weight=layer.mlp_output_norm, memory_config=DRAM, compute_kernel_config=NORM_COMPUTE
    )
    summed = ttnn.add(hidden, fed, dtype=ACTIVATION_DTYPE, memory_config=DRAM)
    ttnn.deallocate(hidden)
    return summed


def layers(hidden, cos, sin, local_cos, local_sin, inputs, weights, stores, shape, kinds=LAYER_KINDS):
    """All layers over hidden [1, 1, tokens, HIDDEN], which is used up; each writes the pass's keys and values."""
    turning = {"full": (cos, sin), "sliding": (local_cos, local_sin)}
    for kind, layer, key_cache, value_cache in zip(kinds, weights.layers, stores.keys, stores.values):
        hidden = attention(hidden, *turning[kind], layer, key_cache, value_cache, inputs, shape, kind)
        hidden = mlp(hidden, layer, shape)
    return hidden


def body(inputs, weights, stores, shape):
    """One pass up to the last layer: what a trace of `shape` records."""
    hidden = embed(inputs.tokens, weights)
    cos, sin, local_cos, local_sin = rotary(inputs.positions, weights)
    return layers(hidden, cos, sin, local_cos, local_sin, inputs, weights, stores, shape)


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
