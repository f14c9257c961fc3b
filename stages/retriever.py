"""Reward models of captions: image vectors of the retriever and of its judge, if any, negative images, two heads.

python -m stages.retriever → data/retriever: image vectors, settings, weights of the heads, history, metrics, and the
SHA-256 of these files. Where `retriever` in params.yaml is null, settings.json is null.
"""

from dataclasses import replace
from pathlib import Path

from pipeline.runtime.checksums import CHECKSUMS, write_checksums
from pipeline.runtime.command import end_process
from pipeline.runtime.files import write_atomically
from pipeline.tracking import recorder
from pipeline.workflow.stage import Stage, main


def list_inputs(stage: Stage) -> list[Path]:
    """Return the inputs: data, features, retriever, judge, and the speaker whose captions train the discriminator."""
    settings = stage.settings.retriever
    model_names = (settings.model, settings.speaker, settings.judge) if settings else ()
    models = (f"pretrained/{name}/weights.safetensors" for name in model_names if name)
    return [stage.root / name for name in ("prepared", "features", *models)]


def run(stage: Stage) -> None:
    """Write the vectors and negative images, then train and write the heads; without a retriever, write null."""
    settings = stage.settings.retriever
    if settings is None:
        write_atomically(stage.out / "settings.json", "null\n")
        return write_checksums(stage.out)
    import torch

    from pipeline.composition.reward_files import make_rewards, save_rewards
    from pipeline.data.feature_store import FeatureStore
    from pipeline.data.image_features import load_data
    from pipeline.evaluation.judges import make_judge
    from pipeline.models.dual_encoder import DualEncoder
    from pipeline.models.listener import Listener
    from pipeline.runtime import ranks
    from pipeline.training.fit import run_training
    from pipeline.workflow.training import build_training

    def embed_images(agent: Listener | DualEncoder, features: FeatureStore) -> torch.Tensor:
        return make_judge(agent, features, stage.device).encode_image(torch.arange(len(prepared)))

    prepared, store = load_data(stage.root)
    torch.manual_seed(stage.seed)
    optimisation = replace(settings.optimisation, validate_every=0)
    rate = optimisation.learning_rate
    method, rewards, reward_inputs = make_rewards(settings, rate, stage.root, prepared, embed_images, stage.device)
    training = build_training(method, None, optimisation, prepared, store, stage.seed, stage.device)
    checkpoints, roles = (
        stage.root / "checkpoints" / stage.compute_key(list_inputs(stage)),
        frozenset({"discriminator", "grammar"}),
    )
    with recorder.record_run(
        stage.title, stage.params.as_dict(), inputs=stage.compute_digests(list_inputs(stage))
    ) as record:
        if not ranks.get_rank():
            (stage.out / CHECKSUMS).unlink(missing_ok=True)
            save_rewards(stage.out, rewards, reward_inputs)
        run_training(training, stage.out, checkpoints, record, stage.checkpoint_seconds, roles)
        if not ranks.get_rank():
            write_checksums(stage.out)


if __name__ == "__main__":
    end_process(main("retriever", run))
