"""Record the call signatures of the installed ttnn: `python -m generator.record_signatures` writes signatures.json.

Needs no device. The library's binding layer keeps for every function the text of each form that it accepts; nothing is
read from documentation.
"""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import metadata
from types import ModuleType
from typing import Any

from generator.signatures import EITHER, KEYWORD, POSITIONAL, RECORDED, Parameter, Signature, Table, written

# Operations and constructors that emitted modules may call.
CALLS = """
    add argmax begin_trace_capture ceil chunk clamped_silu_glu concat copy cumsum deallocate embedding end_trace_capture
    empty execute_trace exp full gather gelu layer_norm linear log matmul max mul multiply neg permute repeat_interleave
    reshape rms_norm sampling scatter sigmoid silu slice softmax softplus sparse_matmul split subtract sum tanh to_layout
    to_memory_config topk transpose typecast unsqueeze_to_4D zeros zeros_like

    experimental.dit_minimal_matmul_addcmul_fused experimental.minimal_matmul experimental.minimal_matmul_split
    experimental.nlp_concat_heads experimental.nlp_create_qkv_heads experimental.paged_fill_cache
    experimental.rotary_embedding_hf experimental.rotary_embedding_llama
    experimental.deepseek_prefill.moe_fused_swiglu experimental.deepseek_prefill.post_combine_reduce
    experimental.kda.qkv_causal_conv1d_silu experimental.kda.sigmoid_gated_rms_norm

    transformer.chunk_gated_delta_rule transformer.chunked_scaled_dot_product_attention
    transformer.joint_scaled_dot_product_attention transformer.paged_scaled_dot_product_attention_decode
    transformer.ring_distributed_scaled_dot_product_attention transformer.ring_joint_scaled_dot_product_attention
    transformer.scaled_dot_product_attention transformer.scaled_dot_product_attention_decode

    ChunkGdnFusedProgramConfig ChunkGdnPhasedProgramConfig CoreCoord CoreGrid CoreRange CoreRangeSet LayerNormDefaultProgramConfig
    MatmulMultiCoreReuseMultiCast1DProgramConfig MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig
    MatmulMultiCoreReuseMultiCastProgramConfig MatmulMultiCoreReuseProgramConfig MemoryConfig MinimalMatmulConfig
    PagedCacheGeometryOverride QkvCausalConv1dSiluProgramConfig SDPAProgramConfig ShardSpec UnaryWithParam
    WormholeComputeKernelConfig
""".split()
# Types of which every value is recorded: members of an enumeration, and constants of the library's top level.
ENUMERATIONS = (
    "BufferType",
    "MathFidelity",
    "RoutedExpertActivation",
    "ShardOrientation",
    "TensorMemoryLayout",
    "UnaryOpType",
)
CONSTANTS = ("DataType", "Layout", "MemoryConfig")
# Parameters of type float that take only what single precision holds: signatures do not tell, calls do.
SINGLE_PRECISION = {("transformer.chunked_scaled_dot_product_attention", "scale")}
# Types that the library does not make from the one argument of their constructors when it meets a parameter.
EXPLICIT = {"ttnn.CoreRangeSet", "ttnn.MemoryConfig", "ttnn.SubDeviceId", "ttnn.Tensor", "ttnn.Tile"}

_PATH = re.compile(r"\bttnn\._ttnn\.(?:\w+\.)*(\w+)|\bcollections\.abc\.(\w+)|\btyping\.(\w+)")


class Unrecordable(Exception):
    """The library has no such name, or shows no signature for it; the message says which."""


def record(library: ModuleType, version: str) -> Table:
    """The table of an imported library. Raises Unrecordable."""
    calls: dict[str, tuple[Signature, ...]] = {}
    names: dict[str, str] = {}
    shown: set[str] = set()
    for name in CALLS:
        full = f"{library.__name__}.{name}"
        texts, returns = _texts(_look_up(library, name), full)
        shown.update(path for text in texts for path in _paths(text))
        calls[full] = tuple(dict.fromkeys(_with_precision(name, parse(text, returns)) for text in texts))
    for kind in ENUMERATIONS:
        members = _look_up(library, kind).__members__
        names |= {f"{library.__name__}.{kind}.{member}": _short(_path(_look_up(library, kind))) for member in members}
    for kind in CONSTANTS:
        wanted = _look_up(library, kind)
        constants = (name for name in dir(library) if not name.startswith("_"))
        found = [name for name in constants if isinstance(getattr(library, name), wanted)]
        names |= {f"{library.__name__}.{name}": _short(_path(wanted)) for name in found}
    return Table(version, calls, names, dict(_types(library, shown)))


def _look_up(library: Any, name: str) -> Any:
    for part in name.split("."):
        if not hasattr(library, part):
            raise Unrecordable(f"ttnn has no {name}: correct the lists of names in {__file__}")
        library = getattr(library, part)
    return library


def _texts(entry: Any, name: str) -> tuple[list[str], str | None]:
    """The text of each form in which something is called, and what it returns where that does not stand in it."""
    if isinstance(entry, type):
        return [text for text, *_ in entry.__init__.__nb_signature__], _short(_path(entry))
    function = getattr(entry, "function", entry)  # operations wrap what does the work
    for holder in (function, getattr(type(function), "__call__", None)):
        if found := getattr(holder, "__nb_signature__", None):
            return [text for text, *_ in found], None
    raise Unrecordable(f"{name} shows no signature: it is a {type(function).__name__}")


def _with_precision(name: str, form: Signature) -> Signature:
    exact = {parameter for operation, parameter in SINGLE_PRECISION if operation == name}
    if not exact:
        return form
    parameters = (
        replace(one, type=one.type.replace("float", "float32")) if one.name in exact else one for one in form.parameters
    )
    return replace(form, parameters=tuple(parameters))


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _paths(text: str) -> Iterator[str]:
    return (found.group() for found in re.finditer(r'"[^"]*"|\bttnn(?:\.\w+)+', text))


def _short(text: str) -> str:
    """A type as the library's users write it: no inner modules, `X | None` for Optional, no quotes around C++ names."""
    text = _PATH.sub(lambda found: f"ttnn.{found[1]}" if found[1] else found[2] or found[3], text)
    text = re.sub(r"\bOptional\[([\w. |]+)\]", r"\1 | None", text)
    return text.replace('"', "")


def _types(library: ModuleType, paths: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """For each type the other types that the library makes one from: what one argument of its constructor can be."""
    classes: dict[str, type] = {}
    for path in sorted(set(paths)):
        if path.startswith('"'):
            yield _short(path), ()  # the name of a C++ type that Python has no values of
            continue
        found: Any = library
        for part in path.split(".")[1:]:
            found = getattr(found, part, None)
        if isinstance(found, type):
            name = _short(_path(found)) if path.startswith("ttnn._ttnn.") else path
            if classes.setdefault(name, found) is not found:
                raise Unrecordable(f"two types are called {name}: {_path(found)} and {_path(classes[name])}")
    for name, found in classes.items():
        if issubclass(found, enum.Enum) or name in EXPLICIT:
            yield name, ()  # the library takes numbers for enumerations; emitted modules name what they mean
            continue
        forms = [parse(text, name) for text, *_ in getattr(found.__init__, "__nb_signature__", ())]
        single = [form.parameters[0].type for form in forms if _takes_one(form)]
        derived = [other for other, kind in classes.items() if kind is not found and issubclass(kind, found)]
        yield name, tuple(dict.fromkeys(kind for kind in [*single, *derived] if kind != name))


def _takes_one(form: Signature) -> bool:
    first, *others = form.parameters or (None,)
    return first is not None and first.kind != KEYWORD and not any(parameter.required for parameter in others)


def parse(text: str, returns: str | None = None) -> Signature:
    """A signature from its text: `def name(a: int, /, b: float, *, c: X | None = \\0) -> Y`, or with a `self` in front.

    Unlike in Python, what has no default may follow what has one.
    """
    opened = text.index("(")
    *listed, rest = _cut(text[opened + 1 :])
    parameters: list[Parameter] = []
    kind = EITHER
    for part in listed:
        if part == "/":
            parameters = [Parameter(one.name, POSITIONAL, one.required, one.type) for one in parameters]
        elif part in ("*", "\\*"):
            kind = KEYWORD
        elif part.startswith(("*", "\\*")):
            raise Unrecordable(f"takes anything: {text}")
        elif part not in ("self", ""):
            name, _, declared = part.partition(":")
            declared, default, _ = declared.partition(" = ")
            parameters.append(Parameter(name.strip(), kind, not default, _short(declared.strip())))
    return Signature(tuple(parameters), returns or _short(rest.partition("->")[2].strip()))


def _cut(text: str) -> Iterator[str]:
    """The parts of a list between commas, up to the bracket that ends it, and then what follows that bracket."""
    depth, start, quoted = 0, 0, False
    for index, character in enumerate(text):
        quoted ^= character == '"'
        if quoted:
            continue
        if depth == 0 and character in ",)":
            yield text[start:index].strip()
            start = index + 1
            if character == ")":
                yield text[start:]
                return
        depth += (character in "([{") - (character in ")]}")


def main() -> None:
    import ttnn

    version = metadata.version("ttnn")
    table = record(ttnn, version)
    RECORDED.write_text(written(table), encoding="utf-8")
    forms = sum(len(signatures) for signatures in table.calls.values())
    sys.stdout.write(
        f"{RECORDED}: ttnn {version}, {len(table.calls)} calls in {forms} forms, {len(table.names)} names\n"
    )


if __name__ == "__main__":
    main()
