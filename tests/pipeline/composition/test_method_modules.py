"""Methods are found in pipeline/methods and in the packages of slices."""

from pipeline.composition.method_modules import PIPELINE, find_method_modules


def test_methods_of_the_core_and_of_slices_are_found():
    modules = find_method_modules()
    assert modules["luo"] == "pipeline.methods.luo"
    assert modules["visual_dialog"] == "pipeline.dialog.methods.visual_dialog"
    assert modules.keys() == {path.stem for path in PIPELINE.glob("**/methods/*.py")} - {"__init__"}
