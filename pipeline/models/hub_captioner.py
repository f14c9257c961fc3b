"""Pretrained captioners from the library transformers (CAPTIONERS of pipeline/runtime/hub_loading.py) as decoders.

The frozen vision tower runs in the stage `features` (pipeline/features/hub_tower.py, and decoder_inputs.py for models
with a prompt). This module has the text side, such as Llama in Idefics3 and SmolVLM2. BLIP-2's text side is OPT or
T5's decoder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any, Self

import torch
from torch import Tensor, nn

from pipeline.errors import UserError
from pipeline.models.decoder import Decoder, RolloutDropout
from pipeline.runtime import devices
from pipeline.runtime.hub_loading import CAPTIONERS, check_config, import_transformers, load_captioner
from pipeline.runtime.hub_prompts import PATCHED, PROMPTED, TILED, PromptedProcessor
from pipeline.types import Batch, make_caption_mask

# kinds whose regions are tokens before the caption, unless the text side is in SEQ2SEQ
PREFIXED = frozenset(("git", "blip-2", *TILED, *PATCHED))
SEQ2SEQ = ("t5",)  # text sides of BLIP-2 whose encoder takes the regions; the decoder attends to the encoder's states
# text sides that can be trained, by kind of captioner, for the kinds in PROMPTED that are not in PATCHED
TEXT_KINDS = {"blip-2": ("opt", "t5"), "florence2": ("bart",), **dict.fromkeys(TILED, ("llama",))}
AXES = 3  # axes of the positions of patches: time, height, width
RESERVED = 2  # positions that some text sides keep for padding
LABELS = frozenset(("id2label", "label2id"))  # names of image classes
# fields of every transformers config that no text side uses
UNUSED = LABELS | {"architectures", "dtype", "problem_type", "transformers_version"}
# entries of a config that are no fields of its class
UNDECLARED = frozenset(("cross_attention_hidden_size", "scale_decoder_outputs"))
Pairs = tuple[tuple[Tensor, Tensor], ...]  # per layer: keys and values (n, heads, t, d)


@dataclass(frozen=True)
class HubState:
    """Decoder state of n captions."""

    token_cache: Pairs  # keys and values of the tokens so far; without cross-attention, the regions' precede them
    region_cache: Pairs  # keys and values of the regions, for cross-attention
    words: int  # number of input tokens so far
    regions: Tensor  # (1, R, D): the regions of any image; only their shape is used


class PrecomputedRegions(nn.Module):
    """Module in place of GIT's vision tower that passes on precomputed regions (n, 1, R, D)."""

    def forward(self, regions: Tensor, **options: Any) -> SimpleNamespace:
        return SimpleNamespace(last_hidden_state=regions.squeeze(1))


class HubDecoder(Decoder[HubState]):
    """The text side of a captioner, with the vocabulary in the order of this project: EOS, words, BOS.

    Input and output embeddings are moved out of the model to `word` and `logit`. A table that both share is copied to
    each, and the copies are trained separately. All other layers are the model's own code and weights. Its dropouts are
    0; the unroll applies dropout before the output layer. Regions are the vision tower's hidden states, or the
    decoder's inputs in models with a prompt (pipeline/features/decoder_inputs.py). Every image has the same number of
    regions. A null image replaces each region by one learned vector.

    With LoRA, `{rank, alpha, targets}` (targets null: all linear layers), only the LoRA weights and the null image are
    trained.
    """

    def __init__(
        self,
        vocabulary: int,
        config: dict[str, Any],
        max_words: int = 16,
        dropout: float = 0.0,
        lora: dict[str, Any] | None = None,
        null_image: bool = False,
        lead: int = 0,
        positions: int = 0,
    ) -> None:
        """Build the network from the captioner's `config` without dropout (`serialise_config`), with random weights.

        `lead` is the number of tokens before BOS; Florence-2 has one. `positions` is R + 1, for R regions and BOS,
        where positions have three axes, as in Qwen2.5-VL; else 0. Raises UserError for a config of an unknown kind, or
        one that `check_config` refuses. Raises UserError for more `max_words` than the text side has positions for, and
        as `add_lora` does.
        """
        text, project = _build_text_side(config)
        sizes = text.config.get_text_config()
        max_positions = getattr(sizes, "max_position_embeddings", max_words + RESERVED)
        if max_words + RESERVED > max_positions:
            raise UserError(
                f"its text side has {max_positions} positions: too few for captions of {max_words} words; "
                f"lower prepare.max_words to {max_positions - RESERVED} or less"
            )
        embeddings, output = _extract_embeddings(text)
        arguments = {"vocabulary": vocabulary, "config": config, "max_words": max_words, "dropout": dropout}
        arguments |= {"lead": lead} if lead else {}
        arguments |= {"positions": positions} if positions else {}
        super().__init__(vocabulary, output.in_features, max_words, dropout, arguments)
        self.kind: str = config["model_type"]
        self.prefix, self.seq2seq = has_prefix(config), is_seq2seq(config)
        tower = config["encoder" if "encoder" in config else "vision_config"]
        self.region_size: int = sizes.hidden_size if self.kind in PROMPTED else tower["hidden_size"]
        self.text, self.project = text, project
        self.word = nn.Embedding(vocabulary + 2, embeddings.embedding_dim)
        self.lead: Tensor | None
        self.register_buffer("lead", torch.zeros(lead, embeddings.embedding_dim) if lead else None)
        self.positions: Tensor | None  # (AXES, R+1)
        self.register_buffer("positions", torch.zeros(AXES, positions, dtype=torch.int64) if positions else None)
        self.logit = nn.Linear(output.in_features, vocabulary + 1)
        self.lora: dict[str, Any] | None = None
        if lora is not None:
            self.add_lora(lora)
        if null_image:
            self.add_null_image()

    @classmethod
    def from_hub(
        cls, name: str, token_ids: Sequence[int], max_words: int, dropout: float, lora: dict[str, Any] | None
    ) -> Self:
        """Load the captioner `name` from the hub or a folder; `token_ids` (V,) are its ids of the words.

        Raises UserError where the captioner cannot be loaded or built, and as `add_lora` does. Raises UserError, too,
        where its special tokens are not token ids, or the words are not from its tokenizer.
        """
        captioner = load_captioner(name)
        config = _remove_labels(serialise_config(captioner))
        prompted = PromptedProcessor(name, captioner.config) if config["model_type"] in PROMPTED else None
        end, *lead, begin = _read_special_tokens(captioner, config, prompted)
        positions = None if prompted is None else _compute_prompt_positions(captioner, prompted)
        text, project = _extract_text_side(captioner)
        embeddings, output = _extract_embeddings(text)
        special = {end} if has_prefix(config) else {end, begin}  # a prompt may end in any token
        if special & set(token_ids) or max(end, begin, *lead, *token_ids) >= len(embeddings.weight):
            raise UserError(
                f"{name}: the prepared captions do not consist of its tokens; set prepare.tokenizer to {name} in "
                "params.yaml and run the prepare stage again"
            )
        position_count = 0 if positions is None else positions.shape[1]
        try:
            decoder = cls(len(token_ids), config, max_words, dropout, lead=len(lead), positions=position_count)
        except UserError as error:
            raise UserError(f"{name}: {error}") from None
        decoder.text.load_state_dict(text.state_dict())
        if decoder.project is not None and project is not None:
            decoder.project.load_state_dict(project.state_dict())
        ids = torch.tensor([end, *token_ids, begin])
        with torch.no_grad():
            decoder.word.weight.copy_(embeddings(ids))  # the module's output, since some modules scale the table
            if decoder.lead is not None:
                decoder.lead.copy_(embeddings(torch.tensor(lead)))
            if decoder.positions is not None and positions is not None:
                decoder.positions.copy_(positions)
            decoder.logit.weight.copy_(output.weight[ids[:-1]])
            decoder.logit.bias.zero_() if output.bias is None else decoder.logit.bias.copy_(output.bias[ids[:-1]])
        if lora is not None:
            decoder.add_lora(lora)
        return decoder

    def add_lora(self, lora: dict[str, Any]) -> None:
        """Add trainable low-rank updates of the linear layers `targets`; freeze all other weights but the null image.

        Raises UserError where peft is missing or `targets` do not fit.
        """
        try:
            from peft import LoraConfig, inject_adapter_in_model
        except ImportError:
            raise UserError("lora of a speaker in pretrain needs peft: pip install 'saywhich[hub]'") from None
        targets = lora["targets"] or "all-linear"
        if not (lora["targets"] is None or all(isinstance(name, str) for name in lora["targets"])):
            raise UserError(
                f"lora.targets of a speaker in pretrain: expected a list of names, or null, got "
                f"{lora['targets']!r:.60}; set one of these"
            )
        lora_config = LoraConfig(r=lora["rank"], lora_alpha=lora["alpha"], target_modules=targets)
        try:
            inject_adapter_in_model(lora_config, self.text)
        except ValueError as error:
            problem = str(error).splitlines()[0][:160].rstrip(".")
            raise UserError(
                f"lora.targets of a speaker in pretrain: {problem}; name linear layers of the text decoder, or set null"
            ) from None
        self.lora = self.arguments["lora"] = lora
        self.requires_grad_(True)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set `requires_grad`; with LoRA, set it only for LoRA's weights and the null image, and freeze all others."""
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(requires_grad and (self.lora is None or "lora_" in name or name == "null"))
        return self

    def add_null_image(self) -> None:
        if self.null is None:
            self.null = nn.Parameter(torch.zeros(self.region_size))
            self.arguments["null_image"] = True

    def encode_image(self, batch: Batch) -> Tensor:
        """Return the regions (B, R, D), projected to the text side's width; masked regions are encoded too."""
        regions = batch.regions
        if self.null is not None:
            regions = torch.where(batch.region_mask.any(1).view(-1, 1, 1), regions, self.null)
        return regions if self.project is None else self.project(regions)

    def begin(self, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int) -> HubState:
        """Compute each layer's keys and values of the regions once per image, with a discarded input token."""
        placeholder = self._append_to_lead(encoded.new_zeros(len(encoded), 1, self.word.embedding_dim))
        _, tokens, regions = self._run_decoder(placeholder, encoded, HubState((), (), 0, encoded[:1]))
        has_cached_tokens = self.prefix or self.lead is not None
        tokens = tuple((keys[:, :, :-1], values[:, :, :-1]) for keys, values in tokens) if has_cached_tokens else ()
        state = HubState(tokens, regions, 0, encoded[:1])
        rows = torch.arange(len(encoded) * width, device=encoded.device) // width
        return state if width == 1 else self.select(state, rows)

    def step(self, inputs: Tensor, state: HubState) -> tuple[Tensor, HubState]:
        regions = state.regions.expand(len(inputs), -1, -1)  # keys and values are cached: only the shape is used
        hidden, tokens, _ = self._run_decoder(inputs.unsqueeze(1), regions, state)
        return hidden[:, -1], replace(state, token_cache=tokens, words=state.words + 1)

    def select(self, state: HubState, rows: Tensor, same_images: bool = False) -> HubState:
        selected = replace(state, token_cache=_select_rows(state.token_cache, rows))
        return selected if same_images else replace(selected, region_cache=_select_rows(state.region_cache, rows))

    def teacher_force(self, batch: Batch, encoded: Tensor, drop: RolloutDropout) -> tuple[Tensor, Tensor]:
        """Run teacher forcing; the text side takes all tokens at once, since they are known."""
        tokens, mask = batch.captions, make_caption_mask(batch.captions)
        longest = int(mask.sum(1).max()) if devices.is_synchronous(tokens.device) else tokens.shape[1]
        inputs = torch.cat([tokens.new_full((len(tokens), 1), self.vocabulary + 1), tokens[:, : longest - 1]], 1)
        hidden = self._run_decoder(self._append_to_lead(self.word(inputs)), encoded)[0][:, -longest:]
        positions = torch.arange(tokens.numel(), device=tokens.device).view(tokens.shape)[:, :longest]
        if devices.is_synchronous(tokens.device):
            valid = mask[:, :longest]
            return hidden[valid], positions[valid]
        return hidden.flatten(0, 1), positions.flatten()

    def _append_to_lead(self, words: Tensor) -> Tensor:
        """Return the embeddings of the tokens before BOS, followed by the embeddings `words` (n, t, E)."""
        return words if self.lead is None else torch.cat([self.lead.expand(len(words), -1, -1), words], 1)

    def _run_decoder(
        self, words: Tensor, encoded: Tensor, state: HubState | None = None
    ) -> tuple[Tensor, Pairs, Pairs]:
        """Return hidden states of `words` (n, t, E) after `state`, and keys and values of tokens and of regions.

        Regions that are input tokens have hidden states, too, before those of `words`. Without a state, no keys and
        values are returned.
        """
        # cloned, since some models modify their inputs in place
        options: dict[str, Any] = {"inputs_embeds": words.clone(), "use_cache": state is not None}
        if not self.prefix:
            options["encoder_hidden_states"] = encoded
        elif state is None or not state.token_cache:
            options |= (
                {"pixel_values": encoded.unsqueeze(1)}
                if self.kind == "git"
                else {"inputs_embeds": torch.cat([encoded, words], 1)}
            )
        if self.positions is not None:
            options["position_ids"] = self._compute_position_ids(words, state)
        if self.seq2seq:
            options["decoder_inputs_embeds"] = options.pop("inputs_embeds")
            options["encoder_outputs"] = (options.pop("encoder_hidden_states"),)
        if state is None:
            return self.text(**options).logits, (), ()
        tokens, regions = _build_cache(state.token_cache), _build_cache(state.region_cache)
        options["past_key_values"] = tokens
        if not self.prefix:
            options["past_key_values"] = import_transformers().EncoderDecoderCache(tokens, regions)
        elif self.kind == "git":  # position ids count tokens, not the regions before them
            options["position_ids"] = torch.arange(words.shape[1], device=words.device).unsqueeze(0) + state.words
        hidden = self.text(**options).logits
        return hidden, _read_cache(tokens), _read_cache(regions)

    def _compute_position_ids(self, words: Tensor, state: HubState | None) -> Tensor:
        """Return the positions (AXES, n, t) of `words` (n, t, E) after `state`.

        Without cached tokens, the positions of the regions precede them.
        """
        assert self.positions is not None
        first = 0 if state is None else state.words
        positions = self.positions[:, -1:] + first + torch.arange(words.shape[1], device=words.device)
        if state is None or not state.token_cache:
            positions = torch.cat([self.positions[:, :-1], positions], 1)
        return positions.unsqueeze(1).expand(-1, len(words), -1)


def has_prefix(config: Mapping[str, Any]) -> bool:
    """Return whether a captioner's regions are tokens before the caption; otherwise its decoder attends to them."""
    return config["model_type"] in PREFIXED and not is_seq2seq(config)


def is_seq2seq(config: Mapping[str, Any]) -> bool:
    """Return whether a captioner's text side is in SEQ2SEQ."""
    return (config.get("text_config") or {}).get("model_type") in SEQ2SEQ


def serialise_config(captioner: Any) -> dict[str, Any]:
    """Return the config of a captioner as JSON values, without dropout and without the path of its folder."""

    def simplify(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: simplify(inner, name) for name, inner in value.items() if name != "_name_or_path"}
        return 0.0 if "drop" in key and isinstance(value, float) else value

    config: dict[str, Any] = simplify(json.loads(captioner.config.to_json_string(use_diff=False)))
    return config


def _remove_labels(config: dict[str, Any]) -> dict[str, Any]:
    """Remove LABELS at any depth: some encoders have 21,841 classes, more entries than a weights file may have."""
    kept = {key: value for key, value in config.items() if key not in LABELS}
    return {key: _remove_labels(value) if isinstance(value, dict) else value for key, value in kept.items()}


def _build_text_side(config: dict[str, Any]) -> tuple[Any, nn.Linear | None]:
    """Build the text side of a captioner with random weights, and the projection of regions if it needs one.

    Nothing is downloaded. Raises UserError for a config of an unknown kind, and as `check_config` does.
    """
    hub = import_transformers()
    check_config(config, "its config")
    if config.get("model_type") not in CAPTIONERS:
        raise UserError(
            f"its config: expected model_type {', '.join(CAPTIONERS)}; got {config.get('model_type')!r:.40}; "
            "name a captioner of these types"
        )
    if config["model_type"] == "blip":
        return hub.BlipTextLMHeadModel(build_network_config(hub.BlipTextConfig, config["text_config"])), None
    if config["model_type"] == "git":
        tower = {**config["vision_config"], "num_hidden_layers": 0}
        git_config = {**config, "vision_config": _select_arguments(hub.GitVisionConfig, tower)}
        return _extract_text_side(hub.GitForCausalLM(build_network_config(hub.GitConfig, git_config)))
    if config["model_type"] in PROMPTED:
        return _build_prompted_text(config), None
    decoder_config = build_network_config(hub.CONFIG_MAPPING[config["decoder"]["model_type"]], config["decoder"])
    text, project = hub.AutoModelForCausalLM.from_config(decoder_config, trust_remote_code=False), None
    if config["encoder"]["hidden_size"] != text.config.hidden_size and not _accepts_other_sizes(text.config):
        project = nn.Linear(config["encoder"]["hidden_size"], text.config.hidden_size)
    return text, project


def _build_prompted_text(config: dict[str, Any]) -> Any:
    """Build the text decoder of a captioner in PROMPTED with random weights.

    Raises UserError for a text side that TEXT_KINDS does not list.
    """
    hub, kind, text = import_transformers(), config["model_type"], config["text_config"]
    if kind in PATCHED:  # no class of the library has the text side of these kinds alone
        sizes = dict.fromkeys(("hidden_size", "intermediate_size", "out_hidden_size", "embed_dim"), 4)
        small_config = build_network_config(
            hub.CONFIG_MAPPING[kind], {**config, "vision_config": {"depth": 0, "num_heads": 1, **sizes}}
        )
        return _remove_encoder(getattr(hub, CAPTIONERS[kind])(small_config))
    if text.get("model_type") not in TEXT_KINDS[kind]:
        known = " or ".join(TEXT_KINDS[kind])
        raise UserError(f"its text side: expected {known}, got {text.get('model_type')}; name another captioner")
    text_config = build_network_config(hub.CONFIG_MAPPING[text["model_type"]], text)
    if text["model_type"] in SEQ2SEQ:
        text_config.num_layers = 0  # the encoder is not used
        return _remove_encoder(hub.AutoModelForSeq2SeqLM.from_config(text_config, trust_remote_code=False))
    if kind == "florence2":
        text_config.is_decoder, text_config.add_cross_attention, text_config.is_encoder_decoder = True, True, False
    return hub.AutoModelForCausalLM.from_config(text_config, trust_remote_code=False)


def _remove_encoder(model: Any) -> Any:
    """Remove the layers before the decoder of a Qwen-VL or a T5, and T5's second reference to its input embeddings."""
    if hasattr(model, "encoder"):
        model.encoder = model.decoder.embed_tokens = nn.Identity()
    else:
        model.model.visual = nn.Identity()
    return model


def build_network_config(kind: Any, settings: dict[str, Any]) -> Any:
    """Build a config of the class `kind` from the `settings` that determine the network."""
    return kind(**_select_arguments(kind, settings))


def _select_arguments(kind: Any, settings: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)} - UNUSED | UNDECLARED
    return {name: value for name, value in settings.items() if name in names}


def _extract_text_side(captioner: Any) -> tuple[Any, nn.Linear | None]:
    """Return the text side of a loaded captioner, and its projection of regions if it has one."""
    if captioner.config.model_type == "blip":
        return captioner.text_decoder, None
    if captioner.config.model_type == "git":
        captioner.git.image_encoder = PrecomputedRegions()
        return captioner, None
    if captioner.config.model_type == "blip-2":
        text = captioner.language_model
        return _remove_encoder(text) if text.config.model_type in SEQ2SEQ else text, None
    if captioner.config.model_type in PATCHED:
        return _remove_encoder(captioner), None
    if captioner.config.model_type in PROMPTED:  # one class of the library holds decoder and output layer
        florence = captioner.config.model_type == "florence2"
        text = _build_prompted_text(serialise_config(captioner))
        if florence:
            text.model.decoder = captioner.model.language_model.decoder
        else:
            text.model = captioner.model.text_model
        text.lm_head = captioner.lm_head
        return text, None
    return captioner.decoder, getattr(captioner, "enc_to_dec_proj", None)


def _accepts_other_sizes(config: Any) -> bool:
    """Return whether a decoder attends to regions whose size differs from its own."""
    return getattr(config, "cross_attention_hidden_size", None) is not None


def _extract_embeddings(text: Any) -> tuple[Any, Any]:
    """Move out and return the input and output embeddings; the model's logits are then its last hidden states."""
    embeddings, output = text.get_input_embeddings(), text.get_output_embeddings()
    names = {module: name for name, module in text.named_modules()}
    for module in (embeddings, output):
        holder, _, name = names[module].rpartition(".")
        setattr(text.get_submodule(holder), name, nn.Identity())
    holder = text.get_submodule(names[output].rpartition(".")[0])
    if isinstance(getattr(holder, "bias", None), nn.Parameter):  # BERT has a second reference to the bias
        holder.bias = None
    return embeddings, output


def _read_special_tokens(captioner: Any, config: Mapping[str, Any], prompted: PromptedProcessor | None) -> list[int]:
    """Return the ids that the model's `generate` uses: EOS, tokens before BOS if there are any, and BOS.

    If there are several ids of EOS, the first is used. Raises UserError where the config has no such ids.
    """
    if captioner.config.model_type == "blip":
        text = captioner.config.text_config
        begin, end, forced = text.bos_token_id, text.sep_token_id, None
        source = "config.json, text_config: bos_token_id and sep_token_id"
    else:
        generation = (captioner.language_model if config["model_type"] == "blip-2" else captioner).generation_config
        source = "generation_config.json: bos_token_id or decoder_start_token_id, eos_token_id, any forced_bos_token_id"
        begin = (
            generation.bos_token_id if generation.decoder_start_token_id is None else generation.decoder_start_token_id
        )
        if prompted is not None and has_prefix(config):
            begin = int(prompted.tokens[-1])
        end, forced = generation.eos_token_id, generation.forced_bos_token_id
        if isinstance(end, list) and end:
            end = end[0]
    ids = [begin, end] if forced is None else [begin, end, forced]
    if not all(type(each) is int and each >= 0 for each in ids):
        found = ", ".join(f"{each!r:.20}" for each in ids)
        raise UserError(f"{captioner.name_or_path}: expected token ids in {source}; got {found}; correct them")
    return [end, begin] if forced is None or has_prefix(config) else [end, begin, forced]


def _compute_prompt_positions(captioner: Any, prompted: PromptedProcessor) -> Tensor | None:
    """Return the positions (AXES, R+1) of regions and BOS, or None where positions count tokens."""
    if captioner.config.model_type not in PATCHED:
        return None
    inputs = prompted.model_inputs(torch.zeros(1, 3, prompted.size, prompted.size))
    rope_index, _ = captioner.model.get_rope_index(
        inputs["input_ids"], inputs["mm_token_type_ids"], inputs["image_grid_thw"]
    )
    positions: Tensor = rope_index[:, 0]
    return positions


def _build_cache(pairs: Pairs) -> Any:
    """Build the model's cache from keys and values; the model replaces its entries and leaves `pairs` unchanged."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    cache = DynamicCache()
    for keys, values in pairs:
        layer = DynamicLayer()
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        cache.layers.append(layer)
    return cache


def _read_cache(cache: Any) -> Pairs:
    return tuple((layer.keys, layer.values) for layer in cache.layers)


def _select_rows(pairs: Pairs, rows: Tensor) -> Pairs:
    return tuple((keys[rows], values[rows]) for keys, values in pairs)
