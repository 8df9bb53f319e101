"""Comparing an emitted module with the torch reference and with transformers."""
