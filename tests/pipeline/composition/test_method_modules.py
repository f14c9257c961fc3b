"""Methods are found in pipeline/methods and in the packages of slices."""

from pipeline.composition.method_modules import method_modules


def test_a_slices_methods_are_found_beside_the_cores():
    modules = method_modules()
    assert modules["luo"] == "pipeline.methods.luo"
    assert modules["visual_dialog"] == "pipeline.dialog.methods.visual_dialog"
    assert all(name == module.rpartition(".")[2] for name, module in modules.items())
