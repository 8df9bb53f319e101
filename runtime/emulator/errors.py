"""The one refusal of the emulated device."""

from __future__ import annotations


class EmulatorError(RuntimeError):
    """What the device refuses. The message starts with the operation and ends with the rule that was broken."""

    def __init__(self, operation: str, message: str):
        super().__init__(f"{operation}: {message}")
        self.operation = operation


def require(condition: bool, operation: str, message: str) -> None:
    if not condition:
        raise EmulatorError(operation, message)
