"""Channels: from the logits of words to words, and to what is heard of them.

`open` begins B·width captions and gives a function that is called once a time step with the logits (N, V+1) of the
captions that go on; rows are image-major. The unroll ends captions, so a channel need not know about EOS, and makes
the gradients, so a channel need not know about graphs.
"""
