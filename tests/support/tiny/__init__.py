"""Tiny geometries, a file for each family, named as the family.

Each states KIND, the class of transformers (before Config and ForCausalLM), and tables of geometries by name, which begins with the
family's: GEOMETRIES run in every golden test; VARIATIONS, kinds of rotary embedding and widths, in those of the embedding and of
the reference; LONGROPE, WINDOWED and CAPPED also in those of their subject; RECURRENT and RECURRENT_VARIATIONS have layers
with a recurrent state.
"""
