import numpy as np
import pytest
import torch
from feature_checksums import verify
from PIL import Image
from safetensors.torch import save_file

from pipeline.data.feature_store import FeatureStore
from pipeline.errors import UserError
from pipeline.features.detection import DETECTOR, FasterRCNN, choose_regions
from pipeline.features.extract import extract
from pipeline.features.extractor import NetworkSettings
from pipeline.runtime.torchvision_cpu import declare_operators, nms_by_class, plain_nms

FEW = {"rpn_pre_nms_top_n_test": 60, "rpn_post_nms_top_n_test": 40}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Write random weights, in half precision except for counts, and return the file's path."""
    declare_operators()
    from torchvision.models import get_model

    torch.manual_seed(0)
    state = get_model(DETECTOR, weights=None, weights_backbone=None).state_dict()
    path = tmp_path_factory.mktemp("weights") / "detector.safetensors"
    save_file({key: value.half() if value.is_floating_point() else value for key, value in state.items()}, path)
    return str(path)


def test_nms_of_all_classes_equals_nms_per_class():
    declare_operators()
    torch.manual_seed(0)
    corners = torch.rand(80, 2, 2) * 20
    boxes, scores = torch.cat([corners.amin(1), corners.amax(1)], 1), torch.rand(80, 5)
    scores[:, 4] = 0.5  # equal scores: the order of the boxes decides
    kept = nms_by_class(boxes, scores, 0.3)
    for c in range(5):
        assert kept[:, c].nonzero()[:, 0].tolist() == sorted(plain_nms(boxes, scores[:, c], 0.3).tolist())


def test_regions_are_chosen_by_their_best_class_after_nms():
    declare_operators()
    boxes = torch.tensor([[0, 0, 10, 10], [1, 0, 11, 10], [20, 0, 30, 10], [40, 0, 50, 10.0]])
    #                       the first box suppresses class 0 of the second, which overlaps the first: only .15 counts
    scores = torch.tensor([[0.9, 0.1], [0.8, 0.15], [0.1, 0.3], [0.05, 0.12]])
    assert choose_regions(boxes, scores, 1, 4, 0.2).tolist() == [0, 2]
    assert choose_regions(boxes, scores, 1, 4, 0.13).tolist() == [0, 2, 1]
    assert choose_regions(boxes, scores, 3, 4, 0.5).tolist() == [0, 2, 1]
    assert choose_regions(boxes, scores, 1, 1, 0.0).tolist() == [0]
    assert choose_regions(boxes, scores, 9, 9, 0.0).tolist() == [0, 2, 1, 3]


@pytest.mark.slow
def test_a_region_is_the_box_heads_output_for_a_kept_proposal(weights):
    network = FasterRCNN(NetworkSettings(DETECTOR, 48, weights, FEW, boxes={"fixed": 6}))
    assert (network.pooled_size, network.regions_shape, network.has_boxes) == (1024, (6, 1024), True)
    images = [Image.effect_noise(size, 80).convert("RGB") for size in ((64, 48), (48, 100))]
    prepared = [network.prepare(image) for image in images]
    assert [tuple(tensor.shape) for tensor in prepared] == [(3, 48, 64), (3, 80, 38)]  # at most 1333/800 · 48 long
    features = network(prepared)
    assert features.region_count.tolist() == [6, 6]
    torch.testing.assert_close(features.pooled, features.regions.mean(1))
    assert features.boxes.min() >= 0
    assert features.boxes.max() <= 1
    assert (features.boxes[..., 2:] > features.boxes[..., :2]).all()
    assert (features.regions[0, 0] - features.regions[0, 5]).abs().max() > 1e-4
    single = network(prepared[1:])  # a wider image in the batch changes no feature
    torch.testing.assert_close(single.regions[0], features.regions[1], atol=1e-5, rtol=1e-5)
    # the box head at the kept boxes, from torchvision's modules
    pixels = network.model.transform.batch_images([prepared[0]])
    with torch.inference_mode(), torch.compiler.set_stance("force_eager"):
        boxes = features.boxes[0] * torch.tensor([64, 48, 64, 48])
        heads = network.model.roi_heads
        expected = heads.box_head(heads.box_roi_pool(network.model.backbone(pixels), [boxes], [(48, 64)]))
    torch.testing.assert_close(features.regions[0], expected, atol=1e-4, rtol=1e-3)


def test_adaptive_regions_are_kept_with_their_boxes(weights, tmp_path):
    class NoiseImages:
        def __len__(self):
            return 3

        def file(self, image):
            return f"{image}.png"

        def rows(self, split):
            return np.arange(0)  # no texture is measured

    for i in range(3):
        Image.effect_noise((60, 50), 40 * i + 1).convert("RGB").save(tmp_path / f"{i}.png")
    adaptive = {"fixed": None, "min_boxes": 2, "max_boxes": 5, "threshold": 0.99}
    settings = NetworkSettings(DETECTOR, 48, weights, FEW, boxes=adaptive)  # no score of random weights reaches .99
    extract(NoiseImages(), tmp_path, tmp_path / "out", tmp_path / "work", settings, batch=2)
    store = FeatureStore(tmp_path / "out")
    verify(store)
    pooled, regions, mask = store.read(np.arange(3))
    mean = regions[:, :2].astype(float).mean(1)  # without the padding
    np.testing.assert_allclose(pooled.astype(float), mean, rtol=1e-2, atol=1e-5)
    assert mask.tolist() == [[True, True, False, False, False]] * 3
    boxes = store.boxes(np.arange(3))
    assert boxes.shape == (3, 5, 4)
    assert (boxes[:, :2, 2:] > boxes[:, :2, :2]).all()
    assert not boxes[:, 2:].any()
    assert not regions[:, 2:].any()
    assert store.manifest["boxes"] == {"min_boxes": 2, "max_boxes": 5, "threshold": 0.99}


def test_weights_of_another_network_are_reported(weights):
    with pytest.raises(UserError, match=r"cls_score.weight: has the shape .* the network expects"):
        FasterRCNN(NetworkSettings(DETECTOR, 48, weights, {"num_classes": 7}))
