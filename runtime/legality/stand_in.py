"""A stand-in for the RISC-V compiler that the device library calls for every kernel.

A mock device executes nothing, so what is compiled is never run; the library still probes the compiler's version,
compiles, links and loads the result. The stand-in answers with empty objects and with one small executable, and
costs about a millisecond a call. It states that it is a stand-in, so the library never takes its output for that of
the real compiler.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

ANSWER = "stand-in 1"  # what it says when it is asked for its version
TEXT_ADDRESS = 0x5000
RETURN = struct.pack("<I", 0x00008067)  # jalr x0, 0(x1)

_HEADER = struct.Struct("<16sHHIIIIIHHHHHH")
_SEGMENT = struct.Struct("<8I")
_SECTION = struct.Struct("<10I")
_EXECUTABLE, _RISCV, _VERSION = 2, 243, 1
_LOAD, _READ_EXECUTE = 1, 5
_PROGRAM, _STRINGS, _RELOCATIONS = 1, 3, 4
_ALLOCATED_CODE = 6


class Section(NamedTuple):
    name: str
    kind: int
    flags: int
    address: int
    content: bytes
    applies_to: int  # index of the section that relocations belong to
    entry_size: int


def executable_image() -> bytes:
    """A 32-bit little-endian RISC-V executable of one instruction, with the (empty) relocation section that the loader
    asks for.

    Layout as the System V ABI defines ELF32: header, one program header, section contents, section headers.
    """
    names = b"\0.text\0.rela.text\0.shstrtab\0"
    sections = (
        Section(".text", _PROGRAM, _ALLOCATED_CODE, TEXT_ADDRESS, RETURN, 0, 0),
        Section(".rela.text", _RELOCATIONS, 0, 0, b"", 1, 12),
        Section(".shstrtab", _STRINGS, 0, 0, names, 0, 0),
    )
    first_content = _HEADER.size + _SEGMENT.size
    contents = b""
    headers = bytes(_SECTION.size)
    for section in sections:
        name = names.index(b"\0" + section.name.encode() + b"\0") + 1
        place, size = first_content + len(contents), len(section.content)
        placing = (section.flags, section.address, place, size)
        headers += _SECTION.pack(name, section.kind, *placing, 0, section.applies_to, 4, section.entry_size)
        contents += section.content + bytes(-size % 4)
    identity = b"\x7fELF" + bytes((1, 1, 1))  # 32 bits, little-endian, version 1
    count = len(sections) + 1
    header = _HEADER.pack(
        identity, _EXECUTABLE, _RISCV, _VERSION, TEXT_ADDRESS, _HEADER.size, first_content + len(contents), 0,
        _HEADER.size, _SEGMENT.size, 1, _SECTION.size, count, count - 1,
    )  # fmt: skip
    size = len(RETURN)
    segment = _SEGMENT.pack(_LOAD, first_content, TEXT_ADDRESS, TEXT_ADDRESS, size, size, _READ_EXECUTE, 16)
    return header + segment + contents + headers


def compiler_script() -> str:
    """The stand-in as a POSIX shell script that starts no other process: what it links is written by the shell's own
    printf."""
    image = "".join(f"\\{byte:03o}" for byte in executable_image())
    return f"""#!/bin/sh
output= dependencies=/dev/null before=
for argument do
  case $before in -o) output=$argument ;; -MF) dependencies=$argument ;; esac
  case $argument in --version) echo '{ANSWER}'; exit ;; esac
  before=$argument
done
case $output in
  *.elf) printf '{image}' >"$output" ;;
  *) : >"$output"; echo "$output:" >"$dependencies" ;;
esac
"""
