from __future__ import annotations

import numpy as np
import pytest

from pipeline.runtime.compiled import compiled, exp, tanh


@compiled
def tanhs(x, found):
    for i in range(len(x)):
        found[i] = tanh(x[i])


@compiled
def exps(x, found):
    for i in range(len(x)):
        found[i] = exp(x[i])


def test_tanh_in_single_precision():
    x = np.concatenate([np.linspace(-12, 12, 200_001), np.geomspace(1e-30, 1, 1000)]).astype(np.float32)
    found = np.empty_like(x)
    tanhs(x, found)
    assert np.abs(found - np.tanh(x.astype(np.float64))).max() < 3e-7
    assert (np.abs(found) <= 1 + 1e-7).all()
    tanhs(np.array([np.nan, np.inf, -np.inf], np.float32), found[:3])
    assert np.isnan(found[0])
    assert found[1:3] == pytest.approx([1, -1])


def test_exp_in_single_precision():
    x = np.concatenate([np.linspace(-86.9, 88, 200_001), -np.geomspace(1e-30, 1, 1000)]).astype(np.float32)
    found = np.empty_like(x)
    exps(x, found)
    np.testing.assert_allclose(found, np.exp(x.astype(np.float64)), rtol=2.5e-7)
    exps(np.array([np.nan, -np.inf, -1000], np.float32), found[:3])
    assert np.isnan(found[0])
    assert (found[1:3] == 0).all()


def test_double_precision_is_numpys():
    x = np.linspace(-20, 20, 1001)
    found = np.empty_like(x)
    tanhs(x, found)
    np.testing.assert_allclose(found, np.tanh(x), rtol=1e-14)
    exps(x, found)
    np.testing.assert_allclose(found, np.exp(x), rtol=1e-14)
