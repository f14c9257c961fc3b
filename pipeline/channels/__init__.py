"""Channels, which choose tokens from logits and determine how the listener encodes them.

`open` begins B·width captions, image-major. It returns a function of the time step, and of the logits (N, V+1) and
rows (N,) of the captions still in the batch. The unroll stops captions at EOS.
"""
