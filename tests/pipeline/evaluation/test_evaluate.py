from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline.errors import UserError
from pipeline.evaluation.evaluate import Evaluation


def test_a_split_of_one_image_is_told_before_anything_is_said():
    prepared = SimpleNamespace(folder=Path("prepared"), rows=lambda split: np.array([7]))
    evaluation = Evaluation(prepared, None, {}, None, 2, torch.device("cpu"))
    with pytest.raises(UserError, match="prepared: 1 image in the split val, among which none can be found"):
        evaluation.split(None, "val")
