"""The parameters of speakers and listeners: shapes, initial values and default sizes."""

import pytest
import torch

from pipeline.models.att2in import Att2in
from pipeline.models.listener import Listener
from pipeline.models.transformer import Transformer
from pipeline.models.unroll import teacher_force

V, R, E, H, A, T = 400, 7, 6, 8, 5, 6


def get_shapes(model) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def describe_linear(name: str, outputs: int, inputs: int) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of a linear layer's parameters."""
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def test_an_image_without_regions_gives_finite_gradients(toy, decoder):
    """In the LSTM the null image replaces a mean over no region; with a NaN mean, gradients would be NaN (0 · NaN)."""
    speaker, batch = toy.agents(decoder=decoder).speaker, toy.batch()
    speaker.add_null_image()
    batch.region_mask[2] = False
    teacher_force(speaker, batch).log_probs.sum().backward()
    assert speaker.null.grad.abs().max() > 0
    assert all(torch.isfinite(p.grad).all() for p in speaker.parameters() if p.grad is not None)


def test_att2in_has_five_gates_of_which_two_use_regions_and_an_attention_without_a_bias():
    speaker = Att2in(V, R, words=E, hidden=H, attention=A, dropout=0.5, max_words=T)
    assert get_shapes(speaker) == {
        "word.weight": (V + 2, E),
        **describe_linear("region", H, R),
        **describe_linear("key", A, H),
        **describe_linear("query", A, H),
        "weight.weight": (1, A),
        **describe_linear("from_word", 5 * H, E),
        **describe_linear("from_state", 5 * H, H),
        **describe_linear("from_regions", 2 * H, H),
        **describe_linear("logit", V + 1, H),
    }


@pytest.mark.parametrize(("encoder", "parts"), [("gru", 1), ("bag", 1), ("pair", 2)])
def test_a_listener_has_word_vectors_and_image_vectors_for_each_of_its_encoders(encoder, parts):
    expected = {**describe_linear("image", parts * H, 4), "word.weight": (V + 2, parts * E)}
    if encoder != "bag":
        expected |= {"gru.weight_ih_l0": (3 * H, E), "gru.weight_hh_l0": (3 * H, H)}
        expected |= {"gru.bias_ih_l0": (3 * H,), "gru.bias_hh_l0": (3 * H,)}
    if encoder != "gru":
        expected |= describe_linear("bag", H, E)
    assert get_shapes(Listener(V, 4, words=E, hidden=H, encoder=encoder)) == expected


def test_a_listener_is_initialised_as_vse():
    torch.manual_seed(0)
    listener = Listener(V, 40, words=E, hidden=H)
    word, image = listener.word.weight, listener.image.weight
    assert -0.1 <= word.min() < -0.099
    assert 0.099 < word.max() <= 0.1
    bound = (6 / (40 + H)) ** 0.5
    assert 0.95 * bound < image.abs().max() <= bound
    assert not listener.image.bias.any()


def test_a_transformer_is_initialised_with_vectors_of_length_1():
    torch.manual_seed(0)
    speaker = Transformer(V, R, hidden=16, heads=2, max_words=300)
    for table in (speaker.word, speaker.position):
        assert float(table.weight.detach().square().sum(1).mean()) == pytest.approx(1, abs=0.1)


def test_defaults_are_the_published_sizes():
    """The sources are self-critical.pytorch and DiscCaptioning for Att2in2, and VSE++ for the listener.

    The listener's word vectors are larger than those of VSE++, which have 300 numbers.
    The transformer has the width, heads and dropout of "Attention is all you need", but fewer layers.
    """
    speaker, listener, transformer = Att2in(9, 3).arguments, Listener(9, 3).arguments, Transformer(9, 3).arguments
    for name in ("words", "hidden", "attention"):
        assert speaker[name] == 512
    assert (speaker["dropout"], speaker["max_words"]) == (0.5, 16)
    assert (listener["words"], listener["hidden"], listener["encoder"]) == (512, 1024, "gru")
    assert (transformer["hidden"], transformer["heads"], transformer["dropout"]) == (512, 8, 0.1)
    assert (transformer["encoder_layers"], transformer["layers"], transformer["max_words"]) == (1, 2, 16)
