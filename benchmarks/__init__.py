"""The project's figures: each file measures one subject, `run.py` runs them all."""
