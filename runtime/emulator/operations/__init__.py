"""The operations that emitted modules call, by subject."""
