import pytest
import torch
from torch.nn import functional as F

from pipeline.models.listener import Listener
from pipeline.types import Message, RelaxedTokens, TokenDistributions, make_caption_mask


def make_message(rows: list[list[int]], distributions: torch.Tensor | None = None) -> Message:
    tokens = torch.tensor(rows)
    relaxed = (
        None
        if distributions is None
        else RelaxedTokens(full=TokenDistributions(torch.arange(tokens.numel()), distributions.flatten(0, 1)))
    )
    return Message(tokens, make_caption_mask(tokens), torch.arange(len(rows)), 1, relaxed=relaxed)


@pytest.mark.parametrize("encoder", ["gru", "bag", "pair"])
def test_tokens_and_one_hot_distributions_are_encoded_equally(encoder):
    torch.manual_seed(0)
    listener = Listener(5, 4, words=3, hidden=6, encoder=encoder)
    rows = [[1, 2, 0, 0], [5, 0, 0, 0], [3, 3, 4, 1]]
    message = make_message(rows)
    one_hot = make_message(rows, F.one_hot(message.tokens, 6).float())
    torch.testing.assert_close(listener.encode_text(message), listener.encode_text(one_hot))


@pytest.mark.parametrize("encoder", ["gru", "bag", "pair"])
def test_padding_is_not_encoded_and_eos_is(encoder):
    torch.manual_seed(0)
    listener = Listener(5, 4, words=3, hidden=6, encoder=encoder)
    short, padded = (listener.encode_text(make_message([row])) for row in ([1, 2, 0], [1, 2, 0, 0, 0, 0]))
    torch.testing.assert_close(short, padded)
    assert not torch.allclose(short, listener.encode_text(make_message([[1, 2]])), atol=1e-3)


def test_the_grus_first_input_is_bos():
    """The text embedding is the last state of a torch GRU cell over BOS, the words and EOS."""
    torch.manual_seed(0)
    listener = Listener(5, 4, words=3, hidden=6)
    cell = torch.nn.GRUCell(3, 6)
    weights = {n.removesuffix("_l0"): p for n, p in listener.gru.named_parameters()}
    cell.load_state_dict(weights)
    state = torch.zeros(1, 6)
    for word in (6, 4, 2, 0):
        state = cell(listener.word.weight[word : word + 1], state)
    torch.testing.assert_close(listener.encode_text(make_message([[4, 2, 0, 0]])), F.normalize(state, dim=-1))


def test_the_cosine_of_a_pair_is_the_mean_of_its_parts():
    torch.manual_seed(0)
    pair, captions, images = (
        Listener(5, 4, words=3, hidden=6, encoder="pair"),
        make_message([[4, 2, 0], [1, 0, 0]]),
        torch.randn(7, 4),
    )
    state, cosines = pair.state_dict(), []
    for index, encoder in enumerate(("gru", "bag")):
        part, half = Listener(5, 4, words=3, hidden=6, encoder=encoder), slice(6 * index, 6 * index + 6)
        weights = {name: value for name, value in state.items() if name in part.state_dict()}
        weights |= {name: state[name][half] for name in ("image.weight", "image.bias")}
        part.load_state_dict(weights | {"word.weight": state["word.weight"][:, 3 * index : 3 * index + 3]})
        cosines.append(part.encode_text(captions) @ part.encode_image(images).T)
    torch.testing.assert_close(pair.encode_text(captions) @ pair.encode_image(images).T, (cosines[0] + cosines[1]) / 2)
    assert not torch.allclose(*cosines)


def test_embeddings_have_length_1():
    listener = Listener(5, 4, words=3, hidden=6)
    torch.testing.assert_close(listener.encode_image(torch.randn(7, 4)).norm(dim=-1), torch.ones(7))
    torch.testing.assert_close(listener.encode_text(make_message([[4, 2, 0, 0]])).norm(dim=-1), torch.ones(1))
    assert listener.encode_image(torch.randn(7, 4)).shape == (7, 6)
