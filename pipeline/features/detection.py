"""Detected regions, selected in the style of bottom-up attention (Anderson et al., CVPR 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pipeline.features.extractor import ImageFeatures, NetworkSettings
from pipeline.features.network_weights import check_fit, load_torchvision
from pipeline.features.networks import build_torchvision_model
from pipeline.runtime.torchvision_cpu import declare_operators, nms_by_class

if TYPE_CHECKING:
    from PIL import Image

DETECTOR = "fasterrcnn_resnet50_fpn_v2"
NMS_IOU = 0.3  # TEST.NMS of the bottom-up attention code; torchvision has 0.5 for detections
MAX_SIDE_RATIO = 1333 / 800  # the longer side's limit as a multiple of image_size, as in torchvision and Faster R-CNN


class FasterRCNN:
    """Faster R-CNN of torchvision as an `Extractor`: regions by score and NMS in each class, with their boxes.

    A region is a proposal of the region proposal network. Its vector is the output of the box head: 1,024 numbers
    from which classes are scored and boxes refined. Its box is the proposal, from which the vector was pooled, not the
    refined box. The pooled vector is the mean over the regions, as is usual with bottom-up features. The weights of
    torchvision are trained on COCO's 80 classes. Bottom-up attention has weights trained on 1,600 classes of Visual
    Genome.
    """

    has_boxes = True

    def __init__(self, settings: NetworkSettings, device: torch.device | str = "cpu"):
        """Build the detector. Images are resized to a shorter side of `image_size` pixels.

        An image whose longer side would exceed 1333/800 of `image_size` is resized to that limit instead. `options` go
        to torchvision. `boxes` is {fixed: n}, or {min_boxes, max_boxes, threshold}. The latter selects the regions that
        score at least `threshold`, but at least `min_boxes` and at most `max_boxes`. Without `boxes`, 36 regions are
        selected. Raises UserError as TimmNetwork does.
        """
        declare_operators()
        from torchvision.models import get_model_weights

        limits = {key: value for key, value in (settings.boxes or {"fixed": 36}).items() if value is not None}
        fixed = limits.get("fixed")
        self.min_regions, self.max_regions = fixed or limits["min_boxes"], fixed or limits["max_boxes"]
        self.threshold = limits.get("threshold", 0.0)
        name, size = settings.network, settings.image_size
        sizes = {"min_size": size, "max_size": round(size * MAX_SIDE_RATIO)}
        normalisation = {f"image_{key}": value for key, value in settings.normalisation.items()}
        options = {**sizes, **normalisation, **settings.options}
        check_fit(lambda: build_torchvision_model(name, dict(options)), settings.weights, name)
        model: Any = build_torchvision_model(name, options)
        source = load_torchvision(model, settings.weights, get_model_weights(name).DEFAULT, name)
        self.model = model.eval().to(device)
        self.device = torch.device(device)
        self.pooled_size: int = self.model.roi_heads.box_predictor.cls_score.in_features
        self.regions_shape = (self.max_regions, self.pooled_size)
        transform = self.model.transform
        preprocessing = {
            "shortest": transform.min_size[-1],
            "longest": transform.max_size,
            "interpolation": "bilinear",
            "mean": tuple(transform.image_mean),
            "std": tuple(transform.image_std),
        }
        self.description = settings.describe(source, preprocessing, boxes=limits)

    @torch.inference_mode()
    def prepare(self, image: Image.Image) -> Tensor:
        """Apply torchvision's preprocessing: normalise, then resize; returns (3, H, W), each image in its own size."""
        from torchvision.transforms.functional import to_tensor

        return self.model.transform.resize(self.model.transform.normalize(to_tensor(image)))[0]

    @torch.inference_mode()
    def __call__(self, images: Sequence[Tensor]) -> ImageFeatures:
        shape = (len(images), *self.regions_shape)
        regions, boxes = torch.zeros(shape), torch.zeros(*shape[:2], 4)
        pooled, count = torch.zeros(len(images), self.pooled_size), torch.zeros(len(images), dtype=torch.int64)
        for i, pixels in enumerate(images):  # one by one: padding to the largest image of a batch would change the maps
            vectors, vector_boxes = self._select_regions(pixels.to(self.device))
            count[i] = len(vectors)
            regions[i, : len(vectors)], boxes[i, : len(vectors)] = vectors.cpu(), vector_boxes.cpu()
            pooled[i] = vectors.mean(0).cpu()
        return ImageFeatures(pooled, regions, count, boxes)

    def _select_regions(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the selected regions of an image (3, H, W): vectors (n, D), boxes (n, 4) as shares of its sides."""
        from torchvision.models.detection.image_list import ImageList

        model, size = self.model, (pixels.shape[1], pixels.shape[2])
        batch = ImageList(model.transform.batch_images([pixels]), [size])
        maps = model.backbone(batch.tensors)
        proposals = model.rpn(batch, maps)[0]
        sides = pixels.new_tensor([size[1], size[0], size[1], size[0]])
        if not len(proposals[0]):
            proposals = [sides[None] * pixels.new_tensor([[0, 0, 1, 1]])]  # the entire image
        with torch.compiler.set_stance("force_eager"):  # roi_align in Python would need a C++ compiler
            pooled = model.roi_heads.box_roi_pool(maps, proposals, [size])
        vectors = model.roi_heads.box_head(pooled)
        scores = model.roi_heads.box_predictor(vectors)[0].softmax(-1)[:, 1:]  # without the background
        selected = choose_regions(proposals[0], scores, self.min_regions, self.max_regions, self.threshold)
        return vectors[selected], proposals[0][selected] / sides


def choose_regions(boxes: Tensor, scores: Tensor, min_regions: int, max_regions: int, threshold: float) -> Tensor:
    """Return the indices (m,) of boxes (n, 4) selected by class scores (n, C), highest score first.

    A box's score is its highest among the classes in which NMS keeps it. Boxes with a score of at least `threshold` are
    selected. At least `min_regions` (all n, if n is less) and at most `max_regions` boxes are returned.
    """
    best = (scores * nms_by_class(boxes, scores, NMS_IOU)).amax(1)
    count_above = int((best >= threshold).sum())
    return best.argsort(descending=True, stable=True)[: min(max(count_above, min_regions), max_regions)]
