"""Modes in which networks run: for training or evaluation, with autograd or without."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.modules.module import register_module_forward_pre_hook


@contextmanager
def record_modes() -> Iterator[list[tuple[bool, bool]]]:
    """Record for each call of a module whether it is in training mode, and whether autograd is on."""
    modes: list[tuple[bool, bool]] = []
    hook = register_module_forward_pre_hook(lambda module, _: modes.append((module.training, torch.is_grad_enabled())))
    try:
        yield modes
    finally:
        hook.remove()
