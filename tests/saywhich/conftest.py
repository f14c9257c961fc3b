"""A small untrained model in a repository and exported, a page server, and three photos outside the repository."""

import threading
import time
from pathlib import Path

import pytest
from saywhich_world import make_model, make_repository, paint


@pytest.fixture(scope="session")
def repository(tmp_path_factory) -> Path:
    """Make a repository with projected and scaled features of photos and mirrored photos.

    Tests only read it; the fixture `server` adds a second model.
    """
    return make_repository(
        tmp_path_factory.mktemp("repository"), pca_dim=5, vector="mean_and_max", horizontal_flip=True
    )


@pytest.fixture(scope="session")
def exported_model(repository, tmp_path_factory) -> Path:
    """Export the model of `repository`; tests only read it."""
    from saywhich.exporting import export_model

    folder = tmp_path_factory.mktemp("exported") / "model"
    export_model(repository / "models/psst_multinomial", folder)
    return folder


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    """Return the working folder, which has three photos a, b and c; the cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SAYWHICH_TRACKING", "off")
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed, name in enumerate("abc", start=100):
        paint(folder / f"{name}.jpg", seed)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def model(repository):
    import saywhich

    return saywhich.load(repository / "models/psst_multinomial")


@pytest.fixture
def model_option(repository) -> list[str]:
    return ["--model", str(repository / "models/psst_multinomial")]


@pytest.fixture(scope="session")
def server(repository, tmp_path_factory):
    """Serve the page of two models with twelve sample photos in a thread, and yield its address."""
    import uvicorn

    import saywhich
    from saywhich.server import make_app
    from saywhich.uploads import UploadLimits

    make_model(repository, "other", 1)
    models = {name: saywhich.load(repository / "models" / name) for name in ("psst_multinomial", "other")}
    for model in models.values():  # numba compiles at first use
        model.caption([repository / "images/0.png"])
    samples = sorted((repository / "images").iterdir())
    app = make_app(models, samples, UploadLimits(megabytes=1, megapixels=1, photos=12, seconds=600))
    uvicorn_server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=uvicorn_server.run, daemon=True)
    thread.start()
    while not uvicorn_server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{uvicorn_server.servers[0].sockets[0].getsockname()[1]}"
    uvicorn_server.should_exit = True
    thread.join()
