"""Faults that `make mutants` puts into source; its runs detect faults, and do not reject a harmless change."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import mutants
import pytest
from faults import PACKAGES, find_faults, find_modules, sample
from reached_lines import ReachingTests

ROOT = Path(__file__).parents[1]
KNOWN = ROOT / "tests" / "known_faults.toml"


def apply_faults(source: str) -> dict[str, set[str]]:
    """Return the texts of `source` with one fault each, by operator."""
    found: dict[str, set[str]] = {}
    for fault in find_faults("pipeline/models/some.py", source.encode()):
        found.setdefault(fault.operator, set()).add(fault.apply(source.encode()).decode())
    return found


@pytest.mark.parametrize(
    ("source", "operator", "expected"),
    [
        ("x = a + b", "sign", {"x = (a - b)"}),
        ("x = -a", "sign", {"x = (a)"}),
        ("x += a", "sign", {"x -= a"}),
        ("x += a", "statement removed", {"pass"}),
        ("x = a < b", "comparison", {"x = (a <= b)"}),
        ("x = a == b", "comparison", {"x = (a != b)"}),
        ("x = a and not b", "boolean", {"x = (a or not b)", "x = a and (b)"}),
        ("x = ~mask", "boolean", {"x = (mask)"}),
        ("f(shuffle=False)", "boolean", {"f(shuffle=True)"}),
        ("x = range(3)", "off by one", {"x = range(4)"}),
        ("x = a[1:]", "slice", {"x = a[None:]", "x = a[0:]"}),
        ("x = a[:-1]", "slice", {"x = a[:None]"}),
        ("x = loss.detach()", "detach removed", {"x = loss"}),
        ("x = a.sum(1)", "reduction", {"x = a.mean(1)"}),
        ("x = torch.amax(a)", "reduction", {"x = torch.amin(a)"}),
        ("x = a.softmax(-1)", "dimension", {"x = a.softmax(0)"}),
        ("x = 1 - rho", "complement", {"x = (rho)"}),
        ("x = lam * a", "complement", {"x = (1 - lam) * a"}),
        ('x = rows("val")', "split", {"x = rows('test')"}),
        ("net.eval()", "eval removed", {"net"}),
        ("net.train(on)", "train removed", {"net"}),
        ("with torch.no_grad():\n    f()", "no_grad removed", {"with torch.enable_grad():\n    f()"}),
        ("@torch.no_grad()\ndef f(): ...", "no_grad removed", {"@torch.enable_grad()\ndef f(): ..."}),
        ("f = lambda speaker, listener: speaker", "name swapped", {"f = lambda speaker, listener: listener"}),
        ("x = draw(seed, self.step)", "stream", {"x = draw(0, self.step)", "x = draw(seed, 0)"}),
        ("x = decoder.step(h)", "stream", set()),
        ("x = 0.5", "constant", {"x = 1.0"}),
        ("if a:\n    f()", "condition forced", {"if True:\n    f()", "if False:\n    f()"}),
        ("x = f(a, width=b)", "keyword left out", {"x = f(a)"}),
        ("x = f(a, b)", "order", {"x = f(b, a)"}),
        ("x = a / b", "order", {"x = (b / a)"}),
    ],
)  # fmt: skip
def test_the_faults_of_each_operator(source, operator, expected):
    assert apply_faults(source).get(operator, set()) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""1 + 1"""',
        "def f(x: Literal[1, 2] = y) -> tuple[int, 3]: ...",
        'raise ValueError(f"{a + 1}")',
        'raise UserError("a" + str(1 - b))',
        "assert a < b",
        "if TYPE_CHECKING:\n    import a",
        "class A:\n    def __repr__(self):\n        return 1 + a",
        "Number = int | None",
        'print("a", 1)',
        'x = root / "val.json"',
        "x = zip(a, b, strict=True)",
        "class A(Protocol):\n    a: int = 1",
    ],
)
def test_texts_types_and_asserts_have_no_faults(source):
    assert not apply_faults(source)


def test_ids_of_faults_are_unique_and_do_not_change_when_lines_move():
    source = b"def f(a):\n    a += 1\n    a += 1\n"
    names = [fault.id for fault in find_faults("pipeline/models/some.py", source)]
    assert len(set(names)) == len(names)
    assert [fault.id for fault in find_faults("pipeline/models/some.py", b"# more\n\n" + source)] == names


def test_a_sample_has_every_package_and_operator_compiles_and_is_the_same_each_time():
    faults = [fault for module in find_modules(ROOT) for fault in find_faults(module, (ROOT / module).read_bytes())]
    sampled = sample(faults, 480, seed=3)
    assert sampled == sample(faults, 480, seed=3) != sample(faults, 480, seed=4)
    assert len(sampled) == len(set(sampled)) == 480
    packages = Counter(fault.package for fault in sampled)
    assert set(packages) == set(PACKAGES)
    assert min(packages.values()) >= 20
    assert {fault.operator for fault in sampled} == {fault.operator for fault in faults}
    for fault in sampled[::10]:
        compile(fault.apply((ROOT / fault.module).read_bytes()), fault.module, "exec")


def test_tests_that_reach_a_line_are_ordered_by_file_name_folder_and_cost(monkeypatch):
    monkeypatch.setattr("reached_lines.ROOT", ROOT)
    module = "pipeline/channels/scheduled_sampling.py"
    source = (ROOT / module).read_bytes()
    line = 1 + source[: source.index(b"return 0.0 if epoch")].count(b"\n")
    files = ("channels/test_scheduled_sampling", "channels/test_words", "models/test_unroll", "models/test_hub")
    own, sibling, far, other = (f"tests/pipeline/{name}.py::test" for name in files)
    tests = [[own, 2.0], [sibling, 1.5], [far, 0.1], [other, 0.1]]
    reached = ReachingTests([{"tests": tests, "lines": {module: {str(line): [0, 1, 2], "1": [3]}}}])
    found = {fault.after: fault for fault in find_faults(module, source)}
    inside = next(fault for fault in found.values() if fault.line == line)
    default = next(fault for fault in found.values() if "max_share: Share = 0.5" in fault.after)
    assert reached.tests(inside, 10) == [(own, 2.0), (far, 0.1), (sibling, 1.5)]
    assert reached.tests(inside, 2.1) == [(own, 2.0), (far, 0.1)]
    variants = [[f"{own}[{n}]", 0.1] for n in range(3)]
    parametrized = ReachingTests([{"tests": [*variants, [far, 0.3]], "lines": {module: {str(line): [0, 1, 2, 3]}}}])
    assert parametrized.tests(inside, 0.5) == [(f"{own}[0]", 0.1), (f"{own}[1]", 0.1), (far, 0.3)]
    # a field's default is reached by the tests of the methods
    assert reached.tests(default, 10) == reached.tests(inside, 10)


def test_a_survivor_is_reported_with_its_reason_and_counts_at_first_where_a_later_test_kills_it(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(mutants, "OUT", tmp_path)
    fields = {"id": "1", "package": "models", "operator": "sign", "module": "pipeline/models/a.py", "line": 3}
    fields |= {"function": "f", "before": "x = a + b", "how": "", "tests": 4, "seconds": 1.0, "commit": "abc"}
    outcomes = [
        mutants.Outcome(**fields, after="x = (a - b)", killed=False),
        mutants.Outcome(**fields | {"id": "2"}, after="x = b", killed=False),
        mutants.Outcome(**fields | {"id": "3"}, after="x = a", killed=True),
    ]
    first_outcome = mutants.Outcome(**fields | {"id": "3"}, after="x = a", killed=False)
    lines = [json.dumps(asdict(outcome)) for outcome in (first_outcome, *outcomes)]
    (tmp_path / "results.jsonl").write_text("\n".join(lines) + "\n")
    assert [each["3"].killed for each in (mutants.read_outcomes(first=True), mutants.read_outcomes())] == [False, True]
    entry = {"equivalent": True, "reason": "a is 0"}
    monkeypatch.setattr(mutants, "read_accepted", lambda: {("pipeline/models/a.py", "f", "x = b"): entry})
    mutants.write_report(outcomes, "make mutants")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert ["models", "3", "1", "2", "1", "0", "0.0", "33.3", "50.0"] in cells
    assert ["models/a.py:3", "`x = a + b` → `x = b`", "equivalent: a is 0"] in cells
    assert ["models/a.py:3", "`x = a + b` → `x = (a - b)`", "not reviewed"] in cells


def test_accepted_faults_are_in_the_source_and_have_a_reason():
    present = {
        (fault.module, fault.function, fault.after)
        for module in find_modules(ROOT)
        for fault in find_faults(module, (ROOT / module).read_bytes())
    }
    for key, entry in mutants.read_accepted(ROOT / mutants.ACCEPTED).items():
        assert key in present, f"expected a fault of the present source: {key}"
        assert entry["reason"]


def test_known_faults_are_in_the_source():
    for entry in tomllib.loads(KNOWN.read_text(encoding="utf-8"))["fault"]:
        assert (ROOT / entry["module"]).read_text(encoding="utf-8").count(entry["before"]) == 1, entry
        assert all((ROOT / test).exists() for test in entry["tests"]), entry


@pytest.mark.slow
def test_known_faults_are_detected_and_a_harmless_change_is_not():
    expected = {
        (e["module"], e["after"]): e["detected"] for e in tomllib.loads(KNOWN.read_text(encoding="utf-8"))["fault"]
    }
    assert Counter(expected.values()) == {True: 20, False: 1}
    command = [sys.executable, "benchmarks/mutants.py", "--known", str(KNOWN)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = {(e["module"], e["after"]): e["killed"] for e in json.loads(done.stdout)}
    assert {fault: bool(how) for fault, how in found.items()} == expected
