"""Where the numbers that each operation of the emulator is compared with come from.

"golden" is the library's own golden function (ttnn.get_golden_function). Where it is missing or leaves something out, the note
says what was followed instead; paths are in the library's installed `ttnn/cpp/ttnn/operations`.
"""

from __future__ import annotations

GOLDEN = "golden"
MOVES = "no golden; the values are moved as {} does: compared with a loop over the elements"

GOLDEN_NOTES = {
    "unsqueeze_to_4D": GOLDEN,
    "reshape": GOLDEN,
    "transpose": GOLDEN,
    "slice": GOLDEN,
    "to_layout": GOLDEN,
    "embedding": GOLDEN,
    "rms_norm": GOLDEN,
    "linear": "golden ignores the dimensions of a weight or bias that has more of them than the input; the library returns "
    "them, and only the shape differs",
    "experimental.minimal_matmul": "no golden; formula of experimental/minimal_matmul/device/kernels/compute_metal2.cpp, with "
    "silu(gate) * up of alternating column tiles from swiglu_sfpu.hpp, whose approximations of the sigmoid are not followed",
    "experimental.dit_minimal_matmul_addcmul_fused": "no golden; formula of experimental/minimal_matmul/device/kernels/"
    "compute_metal2.cpp (add_bias_and_addcmul_block): base + (product * factors) * scalar",
    "experimental.nlp_create_qkv_heads": MOVES.format(
        "experimental/transformer/nlp_create_qkv_heads/device/kernels/dataflow/reader_tm_tile_layout_nlp_create_qkv_heads.cpp"
    ),
    "experimental.nlp_concat_heads": MOVES.format(
        "experimental/transformer/nlp_concat_heads/device/kernels/dataflow/reader_tm_tile_layout_nlp_concat_heads.cpp"
    ),
    "experimental.rotary_embedding_hf": "no golden; formula of experimental/transformer/rotary_embedding_hf/device/kernels/"
    "compute/rotary_embedding_hf.cpp, x * cos + rotate_half(x) * sin as in transformers' apply_rotary_pos_emb",
    "experimental.rotary_embedding_llama": "no golden; formula of experimental/transformer/rotary_embedding_llama/device/"
    "kernels/compute/rotary_embedding_llama.cpp, compared with the product of complex numbers that it stands for",
    "experimental.paged_fill_cache": MOVES.format(
        "experimental/paged_cache/device/kernels/dataflow/writer_fill_cache_interleaved.cpp, which skips entries of -1,"
    ),
    "transformer.scaled_dot_product_attention": "golden ignores output_concat_heads, and is_causal where cu_window_seqlens "
    "are given; the kernel (transformer/sdpa/device/kernels/dataflow/windowed_mask_gen.hpp) intersects the windows with the "
    "causal mask; followed the kernel: golden of each window by itself, heads joined by a permutation",
    "transformer.chunked_scaled_dot_product_attention": GOLDEN,
    "add": GOLDEN,
    "mul": "golden multiplies by a number as it is; the kernel fills a tile with it (eltwise/binary_ng/device/kernels/dataflow/"
    "writer_interleaved_scalar.cpp), of bfloat16 but beside float32 values: compared with numbers that bfloat16 holds",
    "subtract": GOLDEN,
    "ceil": GOLDEN,
    "exp": GOLDEN,
    "log": GOLDEN,
    "tanh": GOLDEN,
    "gelu": GOLDEN,
    "softcap": GOLDEN,
    "typecast": GOLDEN,
    "max": GOLDEN,
    "sum": GOLDEN,
    "argmax": GOLDEN,
    "topk": "golden promises no order among equal values and gives int64 indices; compared where all values differ",
    "gather": GOLDEN,
    "scatter": GOLDEN,
    "softmax": GOLDEN,
    "experimental.deepseek_prefill.moe_fused_swiglu": "no golden; formula of experimental/deepseek_prefill/moe_fused_swiglu/"
    "device/kernels/moe_fused_swiglu_compute.cpp, whose sums in bfloat16 within a core are not followed",
    "experimental.deepseek_prefill.post_combine_reduce": "no golden; formula of experimental/deepseek_prefill/"
    "post_combine_reduce/device/kernels/deepseek_moe_post_combine_reduce_compute.cpp",
    "transformer.chunk_gated_delta_rule": "golden takes heads of their own that are normalised already; q and k of three dimensions "
    "were normalised before as the kernel does (transformer/chunk_gated_delta_rule/device/kernels/compute/chunk_gdn_math.hpp)",
    "experimental.kda.qkv_causal_conv1d_silu": "no golden; formula of experimental/kda/qkv_causal_conv1d_silu/device/kernels/"
    "compute/qkv_causal_conv1d_silu.cpp, compared with torch's convolution of each channel by itself",
    "experimental.kda.sigmoid_gated_rms_norm": "no golden; formula of experimental/kda/sigmoid_gated_rms_norm/device/kernels/"
    "compute/sigmoid_gated_rms_norm.cpp, compared with torch's norm",
    "copy": GOLDEN,
    "concat": GOLDEN,
    "repeat_interleave": GOLDEN,
    "softplus": GOLDEN,
    "matmul": GOLDEN,
    "cumsum": GOLDEN,
    "permute": GOLDEN,
    "sampling": "golden is a placeholder of zeros; formula of reduction/sampling/device/kernels/dataflow/"
    "writer_interleaved.cpp over a softmax in float64 (the kernel's is bfloat16), with the emulator's own random numbers",
    "manual_seed": "no golden and no result: equal seeds draw equal tokens",
}
