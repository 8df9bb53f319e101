"""The compiler: a manifest and a target become one Python module that does a model's prefill."""
