"""What a matmul program configuration must satisfy on a board."""

from __future__ import annotations


def check_program(device, a, b, bias, output, program_config, compute) -> None:
    return None
