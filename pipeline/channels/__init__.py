"""Channels, which choose tokens from logits and determine how the listener encodes them.

`open` begins B·width captions. It returns a function that is called once per time step with the logits (N, V+1) of the
unfinished captions; rows are image-major. The unroll handles EOS and computes gradients, so a channel needs neither.
"""
