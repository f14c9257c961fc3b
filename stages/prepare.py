"""Conversion of a corpus's captions and splits from any supported format into one prepared form.

python -m stages.prepare → data/prepared: images, captions, vocabulary and CIDEr's document frequencies. The dialogs,
the names of objects and the images' facts are written where the corpus has them.
"""

from dataclasses import replace
from pathlib import Path

from pipeline.errors import UserError
from pipeline.runtime.checksums import CHECKSUMS, check_checksums, write_checksums
from pipeline.runtime.command import end_process
from pipeline.runtime.files import atomic_path, write_atomically
from pipeline.tracking import recorder
from pipeline.workflow.stage import Stage, main

FREQUENCIES = "document_frequencies.parquet"


def run(stage: Stage) -> None:
    """Read the corpus, decode its images in the folder `prepare.images`, if any, and write the prepared form.

    Raises UserError as `read_corpus` does, and where the file `prepare.document_frequencies` is missing.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pipeline.config.data_schema import ExpectedCounts
    from pipeline.data.prepared import OBJECTS, PreparedData, write_objects, write_prepared
    from pipeline.data.tokenizer_vocabulary import TOKENIZER, TokenizerVocabulary
    from pipeline.dialog.data.dialog_corpus import Dialogs
    from pipeline.dialog.data.prepared_dialogs import ANSWERS, ROUNDS, DialogLengths, write_prepared_dialogs
    from pipeline.metrics.cider import MAX_ID, compute_document_frequencies
    from pipeline.metrics.frequency_file import read_document_frequencies
    from pipeline.readers import read_corpus
    from pipeline.readers.coco_instances import read_instances
    from pipeline.slices.corpus_formats import FORMATS
    from pipeline.worlds.films.film_facts import FILM_FACTS
    from pipeline.worlds.scenes.scene_facts import SCENE_FACTS

    settings = stage.settings.prepare
    root, expected = Path(settings.root), settings.expected_counts or ExpectedCounts()
    images = None if settings.images is None else root / settings.images
    if stage.root / "raw" in root.parents:
        check_checksums(root, "run the draw stage again")
    # errors are reported before all files are hashed for the record
    corpus = read_corpus(
        settings.dataset,
        settings.format,
        root,
        settings.annotations,
        images,
        settings.splits,
        settings.shares.model_dump() if settings.shares else None,
        expected.images,
        settings.known_corrupt,
        settings.slice_settings,
        settings.max_missing_share or 0.0,
        FORMATS,
    )
    with recorder.record_run(stage.title, stage.params.as_dict(), inputs=stage.compute_digests([root])) as record:
        # files of an earlier corpus would stay where this corpus has no such file, or where this run is interrupted
        for name in (CHECKSUMS, TOKENIZER, ROUNDS, ANSWERS, OBJECTS, SCENE_FACTS, FILM_FACTS, FREQUENCIES):
            (stage.out / name).unlink(missing_ok=True)
        if settings.tokenizer is not None:
            texts = (caption.text for image in corpus.images for caption in image.captions)
            corpus = replace(corpus, vocabulary=TokenizerVocabulary.fetch(settings.tokenizer, stage.out, texts, MAX_ID))
        counts_file = None if settings.document_frequencies is None else root / settings.document_frequencies
        if counts_file is not None:
            if not counts_file.is_file():
                raise UserError(
                    f"{counts_file}: the file of document frequencies is missing; give it, or set "
                    "prepare.document_frequencies to null"
                )
            corpus = replace(corpus, sources=(*corpus.sources, counts_file))
        write_prepared(
            corpus,
            stage.out,
            settings.min_count,
            settings.max_words,
            settings.count_words,
            expected.words,
            settings.tokenizer,
        )
        if isinstance(corpus.attached, Dialogs) and settings.dialogs is not None:
            vocabulary = PreparedData.load(stage.out).vocabulary
            lengths = DialogLengths(settings.dialogs.caption, settings.dialogs.question, settings.dialogs.answer)
            write_prepared_dialogs(corpus.attached, vocabulary, lengths, stage.out)
        if settings.instances is not None:
            objects = read_instances([root / file for file in settings.instances])
            write_objects(objects, (image.id for image in corpus.images), stage.out)
        for facts in (SCENE_FACTS, FILM_FACTS):
            if (root / facts).exists():
                write_atomically(stage.out / facts, (root / facts).read_bytes())
        prepared = PreparedData.load(stage.out)
        captions = [prepared.captions(image) for image in prepared.rows("train")]
        if settings.count_ngrams == "whole":
            whole_captions = [prepared.get_whole_captions(image) for image in prepared.rows("train")]
            longest = max(len(caption) for image in whole_captions for caption in image)
            keys, counts = compute_document_frequencies(whole_captions, max_words=longest + 1)  # each ends in EOS
        elif counts_file is None:
            keys, counts = compute_document_frequencies(captions, max_words=settings.max_words)
        else:
            keys, counts = read_document_frequencies(counts_file, prepared.vocabulary, captions)
        with atomic_path(stage.out / FREQUENCIES) as path:
            pq.write_table(pa.table({"key": keys, "count": counts}), path, compression="zstd")
        write_checksums(stage.out)
        record.log_outputs([stage.out])


if __name__ == "__main__":
    end_process(main("prepare", run))
