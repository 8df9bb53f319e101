"""Prefill modules written by codegen: one folder for each model, one file for each target."""
