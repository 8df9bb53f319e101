"""What changed between two recorded tables of signatures, in words: one line for each difference, by operation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from generator.signatures import Parameter, Signature, Table


def changes(before: Table, after: Table) -> list[str]:
    """Lines that say what `after` has otherwise than `before`; empty where they are equal."""
    return [
        *_version(before, after),
        *(line for name in sorted(before.calls.keys() | after.calls.keys()) for line in _call(name, before, after)),
        *_values("name", before.names, after.names),
        *_values("type", _joined(before.types), _joined(after.types)),
    ]


def report(before: Table, after: Table) -> str:
    """The differences under the two version numbers; empty where there are none."""
    lines = changes(before, after)
    if not lines:
        return ""
    head = f"ttnn {before.version} is recorded, ttnn {after.version} is installed"
    return "\n".join([f"{head}; {len(lines)} differences:", *(f"  {line}" for line in lines)])


def _version(before: Table, after: Table) -> Iterator[str]:
    if before.version != after.version:
        yield f"version {before.version} became {after.version}"


def _joined(types: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    return {name: " | ".join(sources) or "nothing else" for name, sources in types.items()}


def _values(subject: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield f"{subject} {name} is missing"
        elif name not in before:
            yield f"{subject} {name} is new"
        elif before[name] != after[name]:
            yield f"{subject} {name}: {before[name]} became {after[name]}"


def _call(name: str, before: Table, after: Table) -> Iterator[str]:
    if name not in after.calls:
        yield f"{name} is missing"
    elif name not in before.calls:
        yield f"{name} is new"
    else:
        old = [form for form in before.calls[name] if form not in after.calls[name]]
        new = [form for form in after.calls[name] if form not in before.calls[name]]
        if not old and not new and before.calls[name] != after.calls[name]:
            yield f"{name}: its forms are tried in another order"
        pairs = _pairs(old, new)
        for one, other in pairs:
            yield from (f"{name}: {line}" for line in _form(one, other))
        gone, come = {id(one) for one, _ in pairs}, {id(other) for _, other in pairs}
        yield from (f"{name}: form {_text(form)} is missing" for form in old if id(form) not in gone)
        yield from (f"{name}: form {_text(form)} is new" for form in new if id(form) not in come)


def _pairs(old: Sequence[Signature], new: Sequence[Signature]) -> list[tuple[Signature, Signature]]:
    """Forms that became each other: the ones that share most parameters first."""

    def shared(one: Signature, other: Signature) -> int:
        return len({parameter.name for parameter in one.parameters} & {other.name for other in other.parameters})

    candidates = sorted(((shared(one, other), one, other) for one in old for other in new), key=lambda each: -each[0])
    pairs: list[tuple[Signature, Signature]] = []
    for _, one, other in candidates:
        if all(one is not first and other is not second for first, second in pairs):
            pairs.append((one, other))
    return pairs


def _text(form: Signature) -> str:
    return f"({', '.join(parameter.name for parameter in form.parameters)}) -> {form.returns}"


def _form(one: Signature, other: Signature) -> Iterator[str]:
    old = {parameter.name: parameter for parameter in one.parameters}
    new = {parameter.name: parameter for parameter in other.parameters}
    removed = [parameter for parameter in one.parameters if parameter.name not in new]
    added = [parameter for parameter in other.parameters if parameter.name not in old]
    renamed = _renamed(one, other, removed, added)
    yield from (f"parameter {first.name} is renamed to {second.name}" for first, second in renamed)
    settled = {parameter.name for pair in renamed for parameter in pair}
    yield from (f"parameter {parameter.name} is removed" for parameter in removed if parameter.name not in settled)
    for parameter in added:
        if parameter.name not in settled:
            need = "required" if parameter.required else "optional"
            yield f"parameter {parameter.name} ({parameter.type}, {need}) is added"
    for first, second in [*renamed, *((old[name], new[name]) for name in old if name in new)]:
        yield from _parameter(first, second)
    kept, now = [name for name in old if name in new], [name for name in new if name in old]
    if kept != now:
        yield f"parameters ({', '.join(kept)}) stand as ({', '.join(now)})"
    if one.returns != other.returns:
        yield f"returns {other.returns} instead of {one.returns}"


def _renamed(
    one: Signature, other: Signature, removed: Sequence[Parameter], added: Sequence[Parameter]
) -> list[tuple[Parameter, Parameter]]:
    """Parameters that stand in the same place with the same type under another name."""
    return [
        (first, second)
        for first, second in zip(one.parameters, other.parameters)
        if first in removed and second in added and (first.type, first.kind) == (second.type, second.kind)
    ]


def _parameter(first: Parameter, second: Parameter) -> Iterator[str]:
    name = second.name
    if second.required and not first.required:
        yield f"parameter {name} is required now"
    elif first.required and not second.required:
        yield f"parameter {name} is optional now"
    if first.kind != second.kind:
        words = {
            "positional": "by position only",
            "positional_or_keyword": "by position or name",
            "keyword": "by name only",
        }
        yield f"parameter {name} is given {words[second.kind]} now, {words[first.kind]} before"
    if first.type != second.type:
        yield f"parameter {name} takes {second.type} instead of {first.type}"
