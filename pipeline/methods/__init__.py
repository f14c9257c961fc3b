"""Methods: one module per paper, one function per method; `from` in params.yaml names a method's module."""
