"""Build of the wheel, in which the package `pipeline` is installed as `saywhich._pipeline`.

No package of such a common name reaches other people's environments. The stages are not installed: they work on a
clone. An editable install leaves all packages where they are.
"""

import re
import shutil
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

# a `from` import, a module's path in quotes, or one after `python -m`
PATH = re.compile(r"""(?m)(^\s*from |["']|-m )pipeline(?=\.[a-z_]| import)""")


class NestedPackageBuild(build_py):
    """The build of all modules, with `pipeline.…` replaced by `saywhich._pipeline.…` at each match of PATH."""

    def run(self):
        """Build into an empty folder: modules of an earlier build would be installed, too."""
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()

    def build_module(self, module, module_file, package):
        """Copy one module, and replace the matches of PATH in it."""
        out, copied = super().build_module(module, module_file, package)
        text = Path(out).read_text(encoding="utf-8")
        Path(out).write_text(PATH.sub(r"\1saywhich._pipeline", text), encoding="utf-8")
        return out, copied


if "editable_wheel" in sys.argv:
    # With package_dir, setuptools writes the clone's path to a .pth file. Otherwise it registers a finder, which Python
    # calls last. In the clone's parent folder, Python would then import the clone as an empty namespace package.
    setup(packages=find_packages(include=["pipeline*", "saywhich*", "stages*"]), package_dir={"": "."})
else:
    inside = [f"saywhich._{name}" for name in find_packages(include=["pipeline*"])]
    setup(
        packages=[*find_packages(include=["saywhich*"]), *inside],
        package_dir={"saywhich._pipeline": "pipeline"},
        cmdclass={"build_py": NestedPackageBuild},
    )
