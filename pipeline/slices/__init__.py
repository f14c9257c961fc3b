"""Registries of the core together with the entries of slices, one module per extension point.

Apart from slices, only these modules, the stages, `benchmarks/`, and the commands and the drawn benchmark of `saywhich`
name a slice. A stage depends only on the extension points that it imports.
"""
