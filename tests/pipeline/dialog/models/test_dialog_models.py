"""Encoders, generators and discriminators of visual dialog: the inputs on which each depends."""

from dataclasses import replace

import pytest
import torch
from small_dialogs import HIDDEN, REGIONS, VOCABULARY, make_batch, make_discriminator, make_encoder, make_generator

from pipeline.channels.hard import Beam, Greedy, Multinomial
from pipeline.channels.straight_through import Gumbel
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.dialog.models.dialog_encoders import ENCODERS, compute_last_lstm_states
from pipeline.dialog.models.dialog_lstm import DialogLstm
from pipeline.models.agent_files import save_agents
from pipeline.models.decoder import RolloutDropout
from pipeline.models.unroll import generate, teacher_force
from pipeline.random import BatchRandom
from pipeline.slices.slice_agents import load_any_agent
from pipeline.types import Message, RelaxedTokens, TokenDistributions, make_caption_mask

ROUNDS = 4


def change_history(batch, index):
    """Return the batch with other tokens at index `index` of its history."""
    history = batch.questions.history.clone()
    history[index] = history[index] % VOCABULARY + 1
    return replace(batch, questions=replace(batch.questions, history=history))


def make_zero_dropout(batch):
    return RolloutDropout(0.0, BatchRandom(batch, None))


@pytest.mark.parametrize("kind", ENCODERS)
def test_no_encoding_depends_on_history_items_of_later_rounds(kind):
    batch, model = make_batch(), make_encoder(kind).eval()
    word = torch.nn.Embedding(VOCABULARY + 2, 7)
    encodings = model(batch, word)[:, 0].view(-1, ROUNDS, HIDDEN)
    for item in range(ROUNDS):
        other = model(change_history(batch, (0, item)), word)[:, 0].view(-1, ROUNDS, HIDDEN)
        same = torch.isclose(other, encodings, rtol=0, atol=1e-6).all(-1)
        assert same[0].tolist() == [r < item for r in range(ROUNDS)]  # item r is new in round r
        assert same[1:].all()  # no other dialog changes


@pytest.mark.parametrize("kind", ENCODERS)
def test_disabled_inputs_do_not_affect_the_encoding(kind):
    batch, word = make_batch(), torch.nn.Embedding(VOCABULARY + 2, 7)
    without_image, without_history = make_encoder(kind, image=False).eval(), make_encoder(kind, history=False).eval()
    zero_regions = replace(batch, regions=torch.zeros_like(batch.regions))
    other = change_history(batch, (slice(None), slice(None), 0))
    for model, same, differs in ((without_image, zero_regions, other), (without_history, other, zero_regions)):
        torch.testing.assert_close(model(batch, word), model(same, word), rtol=0, atol=0)
        assert not torch.equal(model(batch, word), model(differs, word))


def test_attention_of_hciae_by_hand():
    batch, model = make_batch(dialogs=1, rounds=2), make_encoder("hciae").eval()
    word = torch.nn.Embedding(VOCABULARY + 2, 7)
    drop, rounds = make_zero_dropout(batch), batch.questions
    question, _ = compute_last_lstm_states(model.question, word(rounds.questions), rounds.questions)
    items, _ = compute_last_lstm_states(model.rounds, word(rounds.history[0]), rounds.history[0])
    history, shares = model.attend_history(rounds, question, word, drop)
    torch.testing.assert_close(history[0], items[0])  # the history of round 1 is the caption
    score = [
        model.history_weight(torch.tanh(model.history_key(item) + model.history_query(question[1]))) for item in items
    ]
    by_hand = torch.cat(score).softmax(0)
    torch.testing.assert_close(shares[1], by_hand)
    torch.testing.assert_close(history[1], by_hand @ items)
    query = torch.cat([question[1], history[1]])
    regions = torch.tanh(model.region(batch.regions[1]))
    by_hand = model.region_weight(torch.tanh(model.region_key(regions) + model.region_query(query)))[:, 0].softmax(0)
    image, shares = model.attend_image(batch, rounds, torch.cat([question, history], 1))
    torch.testing.assert_close(shares[1], by_hand)
    torch.testing.assert_close(image[1], by_hand @ regions)


def test_masked_regions_get_no_attention():
    batch, model, word = make_batch(), make_encoder("hciae").eval(), torch.nn.Embedding(VOCABULARY + 2, 7)
    mask = batch.region_mask.clone()
    mask[:, 3:] = False
    fewer = replace(batch, region_mask=mask)
    noisy = replace(fewer, regions=batch.regions + 9 * ~mask.unsqueeze(-1))
    torch.testing.assert_close(model(noisy, word), model(fewer, word))


@pytest.mark.parametrize("kind", ["lf", "hciae"])
def test_region_positions_affect_the_encoding(kind):
    batch, word = make_batch(), torch.nn.Embedding(VOCABULARY + 2, 7)
    other = replace(batch, regions=batch.regions.flip(1))
    for positions in (0, REGIONS):
        model = make_encoder(kind, num_positions=positions).eval()
        if positions:
            torch.nn.init.normal_(model.position)
        same = torch.allclose(model(batch, word), model(other, word), atol=1e-6)
        assert same is (positions == 0)


def test_hciae_depends_on_the_order_of_rounds_only_with_round_positions():
    batch, word = make_batch(dialogs=1, rounds=3), torch.nn.Embedding(VOCABULARY + 2, 7)
    swapped = batch.questions.history.clone()
    swapped[0, [0, 1]] = swapped[0, [1, 0]]
    other = replace(batch, questions=replace(batch.questions, history=swapped))
    for order in (False, True):
        torch.manual_seed(0)
        model = make_encoder("hciae", order=order).eval()
        same = torch.allclose(model(batch, word)[2], model(other, word)[2])
        assert same is not order  # the last round has the same set of history items


@pytest.mark.parametrize("decoder", ["lstm", "transformer"])
@pytest.mark.parametrize("kind", ENCODERS)
def test_teacher_forcing_has_the_likelihoods_of_generation(kind, decoder):
    batch, speaker = make_batch(), make_generator(kind, decoder).eval()
    forced = teacher_force(speaker, batch)
    generated = generate(speaker, batch, TeacherForcing(), torch.Generator().manual_seed(0))
    steps = generated.tokens.shape[1]
    torch.testing.assert_close(forced.log_probs[:, :steps], generated.log_probs)
    assert (forced.log_probs[0] != 0).sum() == forced.mask[0].sum()


def test_an_empty_answer_is_its_eos_alone():
    batch, speaker = make_batch(), make_generator().eval()
    empty = replace(batch, captions=torch.zeros_like(batch.captions))
    message = teacher_force(speaker, empty)
    assert message.mask.sum(1).tolist() == [1] * len(batch)  # the EOS counts
    state = speaker.begin(batch, speaker.encode_image(batch), make_zero_dropout(batch), 1)
    begin = speaker.word(torch.full((len(batch),), VOCABULARY + 1))
    log_probs = speaker.logits(speaker.step(begin, state)[0]).log_softmax(-1)[:, 0]
    torch.testing.assert_close(message.log_probs[:, 0], log_probs)
    assert (message.log_probs[:, 1:] == 0).all()


@pytest.mark.parametrize("channel", [Greedy(), Beam(3), Multinomial(4), Gumbel(2, temperature=0.5)])
@pytest.mark.parametrize("decoder", ["lstm", "transformer"])
def test_every_channel_generates_no_token_after_eos(channel, decoder):
    batch, speaker = make_batch(), make_generator(decoder=decoder).eval()
    for _ in range(200):
        message = generate(speaker, batch, channel, torch.Generator().manual_seed(0))
        if (ended := message.tokens[:, :-1] == 0).any():
            break
        with torch.no_grad():
            speaker.logit.bias[0] += 0.02  # until an answer ends before the others
    else:
        pytest.fail("no answer ends before the last step")
    assert len(message) == len(batch) * channel.samples
    assert not message.tokens[:, 1:][ended].any()
    assert message.tokens.max() <= VOCABULARY


def test_equal_seeds_sample_equal_answers():
    batch, speaker = make_batch(), make_generator().eval()
    sampled = generate(speaker, batch, Multinomial(2), torch.Generator().manual_seed(3)).tokens
    assert torch.equal(sampled, generate(speaker, batch, Multinomial(2), torch.Generator().manual_seed(3)).tokens)
    assert not torch.equal(sampled, generate(speaker, batch, Multinomial(2), torch.Generator().manual_seed(4)).tokens)


@pytest.mark.parametrize("answer", ["last", "attention"])
@pytest.mark.parametrize("encode_eos", [False, True])
def test_a_discriminator_encodes_tokens_and_one_hot_distributions_equally(answer, encode_eos):
    batch, model = make_batch(), make_discriminator(answer, encode_eos=encode_eos).eval()
    tokens = batch.captions
    plain = model.encode_answers(tokens)
    indices = torch.arange(tokens.numel())
    soft = torch.nn.functional.one_hot(tokens.flatten(), VOCABULARY + 1).float().requires_grad_()
    message = Message(
        tokens,
        make_caption_mask(tokens),
        torch.arange(len(tokens)),
        1,
        relaxed=RelaxedTokens(full=TokenDistributions(indices, soft)),
    )
    torch.testing.assert_close(model.encode_text(message), plain)
    model.encode_text(message).sum().backward()
    has_gradient = soft.grad.view(*tokens.shape, -1).abs().sum(-1) > 0
    encoded = make_caption_mask(tokens) & (encode_eos | (tokens > 0))
    assert not (has_gradient & ~encoded).any()
    assert (has_gradient == encoded)[encoded.any(1)].all()


def test_padding_changes_no_encoding_and_an_empty_answer_has_a_zero_state():
    model = make_discriminator().eval()
    short = torch.tensor([[3, 5, 0], [0, 0, 0], [2, 0, 0]])
    long = torch.nn.functional.pad(short, (0, 4))
    torch.testing.assert_close(model.encode_answers(short), model.encode_answers(long))
    torch.testing.assert_close(model.encode_answers(short)[1], torch.tanh(model.outer.bias))
    with_eos = make_discriminator(encode_eos=True).eval()
    assert not torch.allclose(with_eos.encode_answers(short)[1], torch.tanh(with_eos.outer.bias))


def test_saved_models_are_loaded_unchanged(tmp_path):
    batch = make_batch()
    agents = {"speaker": make_generator("lf"), "listener": make_discriminator("last", encode_eos=True)}
    save_agents(tmp_path / "weights.safetensors", agents)
    speaker, listener = (load_any_agent(tmp_path / "weights.safetensors", name) for name in agents)
    assert torch.equal(speaker.encode_image(batch), agents["speaker"].eval().encode_image(batch))
    assert torch.equal(
        listener.encode_answers(batch.captions), agents["listener"].eval().encode_answers(batch.captions)
    )
    assert speaker.arguments == agents["speaker"].arguments


def test_dropout_differs_between_passes_and_is_off_in_evaluation():
    batch, model = make_batch(), make_discriminator(dropout=0.5)
    for encode in (lambda: model.encode_question(batch), lambda: model.encode_answers(batch.captions)):
        model.train()
        assert not torch.equal(encode(), encode())
        model.eval()
        assert torch.equal(encode(), encode())


def compute_last_state(lstm: torch.nn.LSTM, word: torch.nn.Embedding, tokens: list[int]) -> torch.Tensor:
    """Return (H,): the hidden state after the words of one text."""
    return lstm(word(torch.tensor([tokens or [0]])))[1][0][0, 0]


def strip_padding(row: torch.Tensor) -> list[int]:
    return [int(token) for token in row if token]


def test_late_fusion_encodes_the_rounds_in_order_as_one_text():
    """The text of round r is the caption and each earlier question with its answer; the image vector is a mean."""
    batch, model, word = make_batch(), make_encoder("lf").eval(), torch.nn.Embedding(VOCABULARY + 2, 7)
    mask = batch.region_mask.clone()
    mask[: 2 * ROUNDS, 3:] = False  # two images have fewer regions
    batch = replace(batch, region_mask=mask)
    found = model(batch, word)
    for n in range(len(batch)):
        dialog, round_ = divmod(n, ROUNDS)
        question = compute_last_state(model.question, word, strip_padding(batch.questions.questions[n]))
        text = [token for item in batch.questions.history[dialog][: round_ + 1] for token in strip_padding(item)]
        image = torch.tanh(model.region(batch.regions[n][mask[n]])).mean(0)
        expected = torch.tanh(model.fusion(torch.cat([question, compute_last_state(model.text, word, text), image])))
        torch.testing.assert_close(found[n, 0], expected)
        torch.testing.assert_close(found[n, 1], question)


@pytest.mark.parametrize("image", [True, False])
def test_the_hierarchical_encoder_encodes_question_image_and_item_of_every_round(image):
    batch, word = make_batch(), torch.nn.Embedding(VOCABULARY + 2, 7)
    model = make_encoder("hre", image=image).eval()
    found = model(batch, word)
    for dialog in range(len(batch) // ROUNDS):
        rows = range(dialog * ROUNDS, (dialog + 1) * ROUNDS)
        image_vector = torch.tanh(model.region(batch.regions[rows[0]])).mean(0) * image
        questions = [
            compute_last_state(model.question, word, strip_padding(batch.questions.questions[n])) for n in rows
        ]
        items = [compute_last_state(model.item, word, strip_padding(item)) for item in batch.questions.history[dialog]]
        rounds = torch.stack([torch.cat([q, image_vector, i]) for q, i in zip(questions, items, strict=True)])
        history = model.dialog(rounds.unsqueeze(0))[0][0]
        for round_, n in enumerate(rows):
            expected = torch.tanh(model.fusion(torch.cat([questions[round_], history[round_], image_vector])))
            torch.testing.assert_close(found[n, 0], expected)


def test_a_generator_starts_from_the_questions_states_and_the_encoding():
    batch, speaker = make_batch(), make_generator().eval()
    encoding, h, c = speaker.encoder(batch, speaker.word).unbind(1)
    inner = speaker.inner
    found = teacher_force(speaker, batch)
    for n in range(len(batch)):
        state = (h[n].view(1, 1, -1), c[n].view(1, 1, -1))
        _, state = inner.lstm(inner.region(encoding[n]).view(1, 1, -1), state)
        total, previous = 0.0, VOCABULARY + 1
        for token in batch.captions[n].tolist():
            out, state = inner.lstm(inner.word(torch.tensor([[previous]])), state)
            total = total + inner.logit(out[0, 0]).log_softmax(0)[token]
            previous = token
            if token == 0:
                break
        torch.testing.assert_close(found.log_probs[n].sum(), total)


def test_several_sampled_answers_have_the_likelihoods_of_teacher_forcing():
    batch, speaker = make_batch(), make_generator().eval()
    message = generate(speaker, batch, Multinomial(3), torch.Generator().manual_seed(1))
    for k in range(3):
        tokens = message.tokens[k::3]
        again = teacher_force(speaker, replace(batch, captions=tokens))
        torch.testing.assert_close(again.log_probs, message.log_probs[k::3])


def test_an_empty_text_has_the_states_after_one_step():
    torch.manual_seed(1)
    lstm, text_vectors = torch.nn.LSTM(3, 4, batch_first=True), torch.randn(2, 5, 3)
    h, c = compute_last_lstm_states(lstm, text_vectors, torch.tensor([[0] * 5, [1, 2, 3, 0, 0]]))
    for n, steps in ((0, 1), (1, 3)):
        _, (expected, cells) = lstm(text_vectors[n : n + 1, :steps])
        torch.testing.assert_close((h[n], c[n]), (expected[0, 0], cells[0, 0]))


@pytest.mark.parametrize("kind", list(ENCODERS))
def test_a_normalised_encoding_does_not_saturate_however_large_the_fusion_layer(kind):
    """At most a quarter of units with a mean square of 1 exceed 2 (Chebyshev), and tanh(2) is .964."""
    batch, word = make_batch(), torch.nn.Embedding(VOCABULARY + 2, 7)
    for layer_norm in (False, True):
        model = make_encoder(kind, layer_norm=layer_norm).eval()
        plain = model(batch, word)[:, 0]
        with torch.no_grad():
            model.fusion.weight *= 1000
            model.fusion.bias *= 1000
        scaled = model(batch, word)[:, 0]
        saturated = (scaled.abs() > torch.tanh(torch.tensor(2.0))).double().mean(1)
        if layer_norm:
            torch.testing.assert_close(scaled, plain, rtol=1e-3, atol=1e-3)
            assert saturated.max() <= 0.25
        else:
            assert saturated.mean() > 0.9


@pytest.mark.parametrize("kind", list(ENCODERS))
def test_default_sizes_are_the_papers(kind):
    """Lu et al. 2017, §5, use LSTMs of 512 units, word vectors of 300 numbers in the decoder, and dropout 0.5."""
    arguments = ENCODERS[kind](300, 7).arguments
    selected = {
        name: arguments[name] for name in ("hidden", "dropout", "history", "image", "num_positions", "layer_norm")
    }
    assert list(selected.values()) == [512, 0.5, True, True, 0, False]
    arguments = DialogLstm(5, 7).arguments
    assert (arguments["words"], arguments["dropout"]) == (300, 0.5)
