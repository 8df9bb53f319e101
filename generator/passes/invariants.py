"""Check what every emitted module promises; a failure is a fault of the templates, never of the user."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

import libcst as cst

from generator.passes.names import definition, imported, reads, uses, walk

# Operations whose numerics or placement depend on options that the library would otherwise default silently.
REQUIRED_OPTIONS = {
    "linear": ("dtype", "memory_config", "program_config", "compute_kernel_config"),
    "minimal_matmul": ("dtype", "memory_config", "config", "compute_kernel_config", "fuse_swiglu"),
    "dit_minimal_matmul_addcmul_fused": ("dtype", "memory_config", "config", "compute_kernel_config"),
    "rms_norm": ("epsilon", "weight", "memory_config", "compute_kernel_config"),
    "scaled_dot_product_attention": ("scale", "memory_config", "program_config", "compute_kernel_config"),
    "chunked_scaled_dot_product_attention": ("scale", "memory_config", "program_config", "compute_kernel_config"),
    "rotary_embedding_hf": ("is_decode_mode", "memory_config", "compute_kernel_config"),
    "rotary_embedding_llama": ("is_decode_mode", "memory_config", "compute_kernel_config"),
    "nlp_create_qkv_heads": ("num_heads", "num_kv_heads", "transpose_k_heads", "memory_config"),
    "embedding": ("layout", "dtype", "memory_config"),
    "add": ("dtype", "memory_config"),
    "mul": ("dtype", "memory_config"),
    "typecast": ("memory_config",),
    "transpose": ("memory_config",),
    "to_layout": ("memory_config",),
    "softmax": ("dim", "memory_config", "compute_kernel_config"),
    "scatter": ("memory_config",),
    "slice": ("memory_config",),
    "ceil": ("memory_config",),
    "empty": ("device", "memory_config"),
    "moe_fused_swiglu": ("dtype", "compute_kernel_config", "core_grid", "output", "read_x_at_offset", "activation"),
    "post_combine_reduce": ("expert_dim", "output_memory_config"),
    "topk": ("k", "dim", "largest", "sorted", "memory_config"),
    "sampling": ("k", "p", "temp"),
    "gather": ("memory_config",),
    "max": ("dim", "keepdim", "memory_config", "compute_kernel_config"),
    "sum": ("dim", "keepdim", "memory_config", "compute_kernel_config"),
    "subtract": ("dtype", "memory_config"),
    "exp": ("memory_config",),
    "log": ("memory_config",),
}


class InvariantError(Exception):
    """The templates produced a module that breaks a promise; the message names the construct."""


def _broken(node: cst.CSTNode) -> Iterator[str]:
    """What is wrong with one construct, whatever stands around it."""
    if isinstance(node, cst.If):
        yield "an `if` statement survives"
    elif isinstance(node, cst.IfExp):
        yield "a conditional expression survives"
    elif isinstance(node, cst.CompIf):
        yield "an `if` in a comprehension survives"
    elif isinstance(node, cst.SimpleString) and ("{{" in node.value or "{%" in node.value):
        yield f"template syntax survives in {node.value[:40]}"
    elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        operation = node.func.attr.value
        keywords = {argument.keyword.value for argument in node.args if argument.keyword is not None}
        for option in REQUIRED_OPTIONS.get(operation, ()):
            if option not in keywords:
                yield f"a call of {operation} leaves {option} to the library's default"


def _bound(statement: cst.BaseStatement, defined: str | None) -> set[str]:
    """Names bound inside one top-level statement, without the one that it defines: parameters, locals, loop variables."""
    names: set[str] = set()
    for node in walk(statement):
        if isinstance(node, cst.Param):
            names.add(node.name.value)
        elif isinstance(node, cst.AssignTarget):
            names |= uses(node.target) - {defined}
        elif isinstance(node, (cst.For, cst.CompFor)):
            names |= uses(node.target)
    return names


def _undefined(module: cst.Module) -> list[str]:
    known = set(dir(builtins))
    faults = []
    for statement in module.body:
        line = imported(statement)
        if line is not None:
            known |= {alias.name.value for alias in line.names}
    later = {name for name in map(definition, module.body) if name is not None}
    for statement in module.body:
        if imported(statement) is not None:
            continue
        name = definition(statement)
        # A function may use what is defined anywhere; a constant only what stands above it.
        visible = known | _bound(statement, name) | (later if isinstance(statement, cst.FunctionDef) else set())
        for missing in sorted(reads(statement) - visible):
            faults.append(f"{name or 'a statement'} uses {missing}, which nothing above it defines")
        if name is not None:
            known.add(name)
    return faults


def check_invariants(module: cst.Module) -> cst.Module:
    """Return the module unchanged, or raise InvariantError listing every broken promise."""
    faults = [fault for node in walk(module) for fault in _broken(node)] + _undefined(module)
    if faults:
        raise InvariantError("the emitted module breaks its promises: " + "; ".join(faults))
    return module
