"""Plain torch models, written from the published maths: what emitted modules are compared with.

Nothing here is shared with the code under test: rotary tables, norms, attention and weight names are stated a second
time, so that a mistake on one side cannot agree with itself on the other.
"""
