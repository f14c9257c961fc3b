import pytest
import torch

from pipeline.errors import UserError
from pipeline.features.projection import Projection, Standardisation


def test_components_equal_those_of_all_vectors_in_float64():
    torch.manual_seed(0)
    vectors = torch.randn(500, 6) @ torch.randn(6, 6) + 3
    projection = Projection.fit(vectors.split(64), 2)
    centred = vectors.double() - vectors.double().mean(0)
    values, directions = torch.linalg.svd(centred, full_matrices=False)[1:]
    cosines = (projection.components.double() @ directions[:2].T).abs()
    torch.testing.assert_close(cosines, torch.eye(2, dtype=torch.float64), atol=1e-4, rtol=0)
    assert projection.explained == pytest.approx(float(values[:2].square().sum() / values.square().sum()), abs=1e-6)
    got = projection(vectors)
    torch.testing.assert_close(got.mean(0), torch.zeros(2), atol=1e-3, rtol=0)
    torch.testing.assert_close(got.double().var(0), values[:2].square() / 499, atol=0, rtol=1e-3)


def test_vectors_on_a_line_are_kept_and_the_sign_is_fixed():
    vectors = torch.tensor([[0.0, 0.0], [-3.0, -4.0], [3.0, 4.0]])
    projection = Projection.fit([vectors], 1)
    torch.testing.assert_close(projection.components, torch.tensor([[0.6, 0.8]]))
    torch.testing.assert_close(projection(vectors), torch.tensor([[0.0], [-5.0], [5.0]]))
    assert projection.explained == pytest.approx(1)
    for seed in range(20):
        vectors = torch.randn(50, 6, generator=torch.Generator().manual_seed(seed))
        components = Projection.fit([vectors], 6).components
        assert (components.gather(1, components.abs().argmax(1, keepdim=True)) > 0).all()


@pytest.mark.parametrize("size", [1, 3])
def test_the_explained_share_of_equal_vectors_is_from_0_to_1(size):
    """The variance is 0 except for rounding, so the share of the variance is 0 / 0 or any number."""
    vectors = torch.tensor([0.3, -7.1, 0.0]).expand(12_545, 3)  # their mean is rounded
    for parts in ([vectors], [vectors[:1]], vectors.split(7)):
        assert 0 <= Projection.fit(parts, size).explained <= 1


@pytest.mark.parametrize("size", [1, 2])
def test_the_explained_share_of_vectors_on_a_line_is_at_most_1(size):
    """Rounding makes variances across the line negative, so that the variance along the line exceeds their sum."""
    rng = torch.Generator().manual_seed(0)
    for _ in range(40):
        vectors = torch.randn(50, 1, generator=rng) * torch.randn(1, 3, generator=rng)
        assert 1 - 1e-6 < Projection.fit([vectors], size).explained <= 1


def test_too_many_dimensions_are_reported():
    with pytest.raises(UserError, match=r"features.pca_dim: expected at most 2, .* got 9; lower it"):
        Projection.fit([torch.randn(5, 2)], 9)


def test_a_scale_subtracts_the_mean_and_divides_by_nonzero_deviations():
    vectors = torch.tensor([[1.0, 7.0, 100.0], [3.0, 7.0, 100.5], [5.0, 7.0, 101.0]])
    scale = Standardisation.fit(vectors.split(2))
    torch.testing.assert_close(scale.mean, torch.tensor([3.0, 7.0, 100.5]))
    torch.testing.assert_close(scale.deviation, torch.tensor([(8 / 3) ** 0.5, 1.0, (1 / 6) ** 0.5]))
    torch.testing.assert_close(scale(vectors[2]), torch.tensor([1.5**0.5, 0.0, 1.5**0.5]))
