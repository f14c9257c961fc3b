"""Methods: one module per paper, one function per method; a module is imported when params.yaml names its method."""
