"""Published photos and captions of COCO and Flickr8k are read; timm, torchvision and open_clip extract features."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from feature_checksums import verify
from safetensors.torch import save_file
from stage_runs import run_stage
from whole_profiles import load_profile

from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import PreparedData
from pipeline.runtime.files import compute_sha256
from pipeline.runtime.torchvision_cpu import declare_operators

ROOT = Path(__file__).parents[1]
COUNTS = {"train": 8, "val": 4, "test": 4}
FEW_PROPOSALS = {"rpn_pre_nms_top_n_test": 60, "rpn_post_nms_top_n_test": 40}
SMALL_CLIP = {
    "vision_cfg": {"image_size": 64, "layers": 2, "width": 64, "patch_size": 32},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}


def write_coco(real: Path, root: Path) -> dict:
    """Link COCO's captions_val2017.json and photos, write a file of splits, and return the settings of `prepare`."""
    mini = real / "coco_mini"
    content = json.loads((mini / "captions_val2017.json").read_text())["images"]
    names = iter(
        sorted({image["file_name"] for image in content} & {path.name for path in (mini / "images").iterdir()})
    )
    splits = {split: [next(names) for _ in range(count)] for split, count in COUNTS.items()}
    (root / "splits.json").write_text(json.dumps(splits))
    (root / "images").symlink_to(mini / "images")
    (root / "captions_val2017.json").symlink_to(mini / "captions_val2017.json")
    return {"format": "coco", "annotations": "captions_val2017.json", "splits": "splits.json"}


def write_flickr8k(real: Path, root: Path) -> dict:
    """Write Flickr8k's captions and its lists of images, link its photos, and return the settings of `prepare`."""
    images = json.loads((real / "flickr8k" / "dataset_flickr8k.json").read_text())["images"]
    captions = [f"{i['filename']}#{k}\t{s['raw']}\n" for i in images for k, s in enumerate(i["sentences"])]
    (root / "Flickr8k.token.txt").write_text("".join(captions))
    annotations = {"captions": "Flickr8k.token.txt"}
    for split, count in COUNTS.items():
        names = [image["filename"] for image in images if image["split"] == split][:count]
        annotations[split] = f"{split}.txt"
        (root / annotations[split]).write_text("\n".join(names))
    (root / "images").symlink_to(real / "flickr8k" / "images")
    return {"format": "flickr8k", "annotations": annotations}


CORPORA = {"coco": write_coco, "flickr8k": write_flickr8k}


@pytest.fixture(scope="module")
def random_weights(tmp_path_factory) -> dict[str, Path]:
    """Return the files of random weights, by network."""
    declare_operators()
    import open_clip
    from torchvision import models

    torch.manual_seed(0)
    networks = {
        "torchvision/resnet18": models.get_model("resnet18", weights=None),
        "fasterrcnn_resnet50_fpn_v2": models.get_model(
            "fasterrcnn_resnet50_fpn_v2", weights=None, weights_backbone=None
        ),
        "open_clip/ViT-S-32-alt": open_clip.create_model("ViT-S-32-alt", **SMALL_CLIP),
    }
    folder = tmp_path_factory.mktemp("weights")
    files = {name: folder / f"{name.replace('/', '-')}.safetensors" for name in networks}
    for name, model in networks.items():
        save_file(model.state_dict(), files[name])
    return files


def make_extractor_blocks(real: Path, random_weights: dict[str, Path]) -> list[dict]:
    """Return the tested blocks of `features`."""
    half = {"mean": [0.5] * 3, "std": [0.5] * 3}
    weights = str(real / "weights" / "mobilenetv2_100_imagenet.safetensors")
    blocks = [
        {"network": "mobilenetv2_100", "weights": weights, "options": {"pad_type": "same"}, "image_size": 224, **half},
        {"network": "torchvision/resnet18", "image_size": 64, "grid_size": 2, "pca_dim": 16},
        {"network": "fasterrcnn_resnet50_fpn_v2", "image_size": 64, "options": FEW_PROPOSALS, "boxes": {"fixed": 6}},
        {"network": "open_clip/ViT-S-32-alt", "image_size": 64, "options": SMALL_CLIP},
    ]
    return [
        {"weights": str(random_weights[block["network"]])} | block if block["network"] in random_weights else block
        for block in blocks
    ]


SHAPES = {
    "mobilenetv2_100": (1280, (49, 1280)),
    "torchvision/resnet18": (512, (4, 16)),
    "fasterrcnn_resnet50_fpn_v2": (1024, (6, 1024)),
    "open_clip/ViT-S-32-alt": (256, (4, 64)),
}


@pytest.mark.slow
@pytest.mark.parametrize("corpus", CORPORA)
def test_published_files_are_prepared_and_extracted_by_four_networks(
    corpus, real_data, random_weights, tmp_path, monkeypatch
):
    root = tmp_path / "data/external" / corpus
    root.mkdir(parents=True)
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    params = load_profile("flickr8k")
    expected = {"expected_counts": COUNTS, "min_count": 1}
    params["prepare"] |= {"dataset": corpus, "root": str(root), **CORPORA[corpus](real_data, root), **expected}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAYWHICH_TRACKING", "off")
    common = {
        "options": {},
        "mean": None,
        "std": None,
        "pca_dim": None,
        "grid_size": None,
        "detector": None,
        "batch": 5,
    }
    for block in make_extractor_blocks(real_data, random_weights):
        params["features"]["main"] = common | block
        Path("params.yaml").write_text(yaml.safe_dump(params))
        if not Path("data/prepared").exists():
            assert run_stage("prepare") == 0
        assert run_stage("features") == 0
        prepared, store = PreparedData.load(Path("data/prepared")), FeatureStore(Path("data/features/main"))
        verify(store)
        assert len(store) == len(prepared) == sum(COUNTS.values())
        assert (store.pooled_size, store.regions_shape) == SHAPES[block["network"]]
        assert store.manifest["weights"]["sha256"] == compute_sha256(Path(block["weights"]))
        pooled = store.read(np.arange(len(store)))[0]
        assert len(np.unique(pooled, axis=0)) == len(store)  # every photo has its own vector
        shutil.rmtree("data/features")
