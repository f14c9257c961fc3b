"""Training of a tiny language model with random weights by TRL's GRPO: the mean reward rises."""

import math

import pytest
from colour_judge import ColourJudge, paint_colours

import saywhich
from pipeline.runtime.hub_loading import import_transformers

pytestmark = pytest.mark.slow
WORDS = ("[PAD]", "[END]", "say", "red", "green", "blue", "thing")


def test_grpo_raises_the_reward(tmp_path, monkeypatch):
    trl = pytest.importorskip("trl", reason="TRL is no dependency: pip install trl")
    datasets = pytest.importorskip("datasets", reason="datasets is no dependency: pip install datasets")
    from tokenizers import Tokenizer, models, pre_tokenizers

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paint_colours(tmp_path / "photos")
    hub = import_transformers()
    plain = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[PAD]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = hub.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]", eos_token="[END]")
    hub.set_seed(0)
    special_tokens = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
    model = hub.GPT2LMHeadModel(
        hub.GPT2Config(vocab_size=len(WORDS), n_positions=16, n_embd=16, n_layer=1, n_head=2, **special_tokens)
    )
    # each photo has its own prompt, since the model has no image input
    rows = [("say thing", "a"), ("say say", "b")]
    train = datasets.Dataset.from_list(
        [{"prompt": prompt, "photo": str(tmp_path / f"photos/{name}.png")} for prompt, name in rows] * 8
    )
    rewards = [
        saywhich.reward(ColourJudge(), score=score, photos=tmp_path / "photos", column="photo")
        for score in ("hard", "contrastive")
    ]
    settings = trl.GRPOConfig(
        output_dir=str(tmp_path / "out"),
        num_generations=8,
        per_device_train_batch_size=16,
        max_completion_length=3,
        learning_rate=0.02,
        reward_weights=[1.0, 0.0],  # the second reward depends on the batch's photos, and is only logged
        max_steps=40,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        seed=0,
    )
    trainer = trl.GRPOTrainer(
        model, reward_funcs=rewards, args=settings, train_dataset=train, processing_class=tokenizer
    )
    trainer.train()
    hard, contrastive = (
        [entry[key] for entry in trainer.state.log_history if key in entry]
        for key in ("rewards/saywhich_hard/mean", "rewards/saywhich_contrastive/mean")
    )
    assert len(hard) == len(contrastive) == 40
    assert all(map(math.isfinite, contrastive))
    assert sum(hard[-20:]) / 20 > sum(hard[:5]) / 5 + 0.05
