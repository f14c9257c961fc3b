from pipeline.evaluation.summary import summary_metrics
from pipeline.metrics.gallery_names import HARD_GALLERY


def test_a_summary_is_one_line_of_a_table():
    def make_judge_results(ten, **galleries):
        return {"text_to_image": {"R@1": 1.0, "R@10": ten}, "galleries": galleries}

    found = {
        "images": 8,
        "language": {"CIDEr": 0.8, "BLEU-4": 0.3},
        "judges": {
            "own": make_judge_results(50.0, **{HARD_GALLERY: {"R@1": 30.0, "R@10": None}}),
            "judge": make_judge_results(40.0),
        },
    }
    assert summary_metrics(found) == {"CIDEr": 0.8, "R@10 own": 50.0, "R@10 judge": 40.0, "R@1 (hard) own": 30.0}
