"""Import of features from the files that visDial.pytorch writes."""

import json

import h5py
import numpy as np
import pytest

from pipeline.data.feature_store import FeatureStore
from pipeline.dialog.readers.visdial_features import VISDIAL_FEATURES
from pipeline.errors import UserError
from pipeline.features.imported import import_features


def test_rows_of_vdl_img_vgg_belong_to_the_images_of_the_params_file(tmp_path):
    grids = np.arange(3 * 2 * 2 * 4, dtype=np.float32).reshape(3, 2, 2, 4)
    with h5py.File(tmp_path / "vdl_img_vgg.h5", "w") as file:
        file["images_train"], file["images_val"] = grids[:2], grids[2:]
    params = tmp_path / "visdial_params.json"
    image_names = {"img_train": ["train2014/COCO_train2014_000000000011.jpg", 7], "unique_img_val": [9]}
    params.write_text(json.dumps(image_names))
    settings = {"feature_format": VISDIAL_FEATURES, "regions": [str(tmp_path / "vdl_img_vgg.h5"), str(params)]}

    def import_store(ids: list[str]) -> FeatureStore:
        import_features(ids, tmp_path / "out", **settings, max_regions=4)
        return FeatureStore(tmp_path / "out")

    pooled, regions, _ = import_store(["9", "11", "7"]).read(np.arange(3))
    np.testing.assert_array_equal(regions, grids[[2, 0, 1]].reshape(3, 4, 4))
    np.testing.assert_array_equal(pooled, grids[[2, 0, 1]].mean((1, 2)))
    with pytest.raises(UserError, match="image 12 has no features there"):
        import_store(["9", "12"])
    params.write_text(json.dumps(image_names | {"img_train": [7]}))
    with pytest.raises(UserError, match=r"images_train has 2 rows, but .* names 1 images"):
        import_store(["9"])
    params.write_text(json.dumps(image_names | {"unique_img_val": ["photo"]}))
    with pytest.raises(UserError, match="expected a number in each image name of the split val"):
        import_store(["9"])
    params.write_text("[]")
    with pytest.raises(UserError, match="expected an object with the list `img_train`"):
        import_store(["9"])
