"""Upload of an exported folder to the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from pipeline.errors import UserError, summarise_error


def push_folder(folder: Path, name: str) -> str:
    """Upload a folder to the repository `name`, which is created as private if it does not exist; return its address.

    The token comes from `hf auth login` or HF_TOKEN. Raises UserError where the upload fails.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    try:
        api = HfApi()
        address = api.create_repo(name, private=True, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="Upload an export of saywhich")
    except Exception as error:  # any error of the hub's client or its transport
        raise UserError(
            f"--push {name}: the upload failed ({summarise_error(error)}); run hf auth login, or set HF_TOKEN to a "
            f"token that may write; {folder} is complete"
        ) from None
    return str(address)
