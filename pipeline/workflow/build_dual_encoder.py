"""A judge that was trained elsewhere, with what it sees of the prepared images."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pipeline.data.prepared import Prepared
from pipeline.features.clip import ClipNetwork
from pipeline.features.extractor import NetworkSettings
from pipeline.features.images import open_image
from pipeline.models.dual_encoder import DualEncoder

if TYPE_CHECKING:
    from pipeline.config.views import Node


def dual_encoder(section: Node, prepared: Prepared, device: torch.device) -> DualEncoder:
    """The text tower that the section names, and the vectors of all prepared images by its image tower."""
    options = section.options.plain()
    network = ClipNetwork(NetworkSettings(section.network, section.image_size, section.weights, options), device)
    encoder = DualEncoder(network.architecture, network.options, len(prepared), network.pooled_size)
    text = {name: value for name, value in network.model.state_dict().items() if not name.startswith("visual.")}
    encoder.text.load_state_dict(text)

    def prepared_image(row: int) -> torch.Tensor:
        return network.prepare(open_image(Path(section.images) / prepared.file(row)))

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for rows in torch.arange(len(prepared)).split(section.batch):
            encoder.vectors[rows] = network(list(pool.map(prepared_image, rows.tolist()))).pooled.float().cpu()
    return encoder.eval()
