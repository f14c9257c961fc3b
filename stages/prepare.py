"""Read images' captions and splits, whatever their form, into one.

python -m stages.prepare → data/prepared: images, captions, vocabulary and CIDEr's document frequencies,
and the images' facts where they are known.
"""

import sys
from pathlib import Path

from pipeline.stage import Stage, main


def run(stage: Stage) -> None:
    """Read the corpus, check every image, and write the prepared form."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pipeline.data.prepared import Prepared, write_prepared
    from pipeline.data.readers import Known, read_corpus
    from pipeline.data.scenes.write import FACTS
    from pipeline.files import atomic_path, write_atomically
    from pipeline.metrics.cider import document_frequencies
    from pipeline.training import tracking

    p = stage.params.prepare
    root = Path(p.root)
    with tracking.run(stage.title, stage.params.plain(), inputs=stage.digests([root])) as record:
        plain = p.plain()
        counts = {key: count for key, count in (plain["expect"] or {}).items() if count is not None}
        words = counts.pop("words", None)
        known = Known(counts, plain["corrupt"])
        annotations, shares = plain["annotations"], plain["shares"]
        corpus = read_corpus(p.dataset, p.format, root, annotations, root / p.images, p.splits, shares, known)
        write_prepared(corpus, stage.out, p.min_count, p.max_words, p.count_words, words)
        if (root / FACTS).exists():
            write_atomically(stage.out / FACTS, (root / FACTS).read_bytes())
        prepared = Prepared.load(stage.out)
        seen = [prepared.captions(image) for image in prepared.rows("train")]
        keys, counts = document_frequencies(seen, max_words=p.max_words)
        with atomic_path(stage.out / "document_frequencies.parquet") as path:
            pq.write_table(pa.table({"key": keys, "count": counts}), path, compression="zstd")
        record.outputs([stage.out])


if __name__ == "__main__":
    sys.exit(main("prepare", run))
