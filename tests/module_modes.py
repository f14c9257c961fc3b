"""Modes in which networks run: for training or not, with a graph or without."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.modules.module import register_module_forward_pre_hook


@contextmanager
def watched() -> Iterator[list[tuple[bool, bool]]]:
    """Record whether modules run in training mode, and whether with a graph."""
    modes: list[tuple[bool, bool]] = []
    hook = register_module_forward_pre_hook(lambda module, _: modes.append((module.training, torch.is_grad_enabled())))
    try:
        yield modes
    finally:
        hook.remove()
