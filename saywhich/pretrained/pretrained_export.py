"""Export of a whole pretrained captioner: weights with the vision tower, processor, card and digests."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from pipeline.errors import UserError, escape_line, summarise_error
from pipeline.features.hub_tower import PREFIX
from pipeline.runtime.checksums import CHECKSUMS, write_checksums
from pipeline.runtime.files import write_atomically
from pipeline.runtime.folders import atomic_folder, check_replaceable
from pipeline.runtime.hub_loading import load_pretrained
from pipeline.runtime.memory import is_memory_error
from pipeline.runtime.records import read_json
from saywhich.pretrained.pretrained_speaker import DTYPES, PretrainedSpeaker

CARD = """---
library_name: transformers
pipeline_tag: image-text-to-text{base}
---

# {name}

This is the captioner `{source}` with its processor, exported by saywhich {version} in {dtype}. The weights are
safetensors, and `{checksums}` has the SHA-256 of every other file. The licence is that of `{source}`.

```sh
saywhich caption PHOTOS --speaker FOLDER
```
"""


def is_pretrained(name: str) -> bool:
    """Return whether `name` names a pretrained model: hub/OWNER/NAME, or a folder with config.json."""
    return name.startswith(PREFIX) or (Path(name) / "config.json").is_file()


def _list_exported_names(folder: Path) -> set[str]:
    """Return the names of an earlier export's files in `folder`, by its digests; an empty set if there is no export."""
    try:
        digests = read_json(folder / CHECKSUMS, "export the model again")
    except UserError:
        return set()
    return (
        {CHECKSUMS, *digests} if isinstance(digests, dict) and {"config.json", "README.md"} <= digests.keys() else set()
    )


def export_pretrained(name: str, out: Path) -> PretrainedSpeaker:
    """Write the captioner `name` into the folder `out` in the precision that its config states, and load it from there.

    The precision is float32 where the config states none, or another than float32, bfloat16 and float16. The new
    folder is written beside `out` and renamed when it is complete. Raises UserError where `out` holds other files
    than an earlier export's, where transformers cannot save the captioner, and as `PretrainedSpeaker` does.
    """
    check_replaceable(out, _list_exported_names(out))
    source = name.removeprefix(PREFIX)
    config_dtype = str(load_pretrained("AutoConfig", source).dtype).removeprefix("torch.")
    dtype = config_dtype if config_dtype in DTYPES else DTYPES[0]
    speaker = PretrainedSpeaker(name, dtype=dtype, device="cpu")
    display_name = Path(source).resolve().name if Path(source).is_dir() else source
    base = "" if Path(source).is_dir() else f"\nbase_model: {escape_line(source)}"
    with atomic_folder(out) as new_folder:
        try:
            speaker.model.save_pretrained(new_folder)
            speaker.save_processor(new_folder)
        except Exception as error:  # safetensors and transformers raise errors of many types
            if is_memory_error(error):
                raise
            problem = f"transformers cannot save it ({summarise_error(error)})"
            raise UserError(f"{name}: {problem}; remove the cause, and export again") from None
        fields = {"name": escape_line(out.resolve().name), "source": escape_line(display_name), "base": base}
        card = CARD.format(**fields, version=version("saywhich"), dtype=dtype, checksums=CHECKSUMS)
        write_atomically(new_folder / "README.md", card)
        write_checksums(new_folder)
    return PretrainedSpeaker(str(out), dtype=dtype, device="cpu")
