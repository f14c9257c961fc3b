from pipeline.evaluation.summary import select_summary_metrics
from pipeline.metrics.gallery_names import HARD_GALLERY


def test_a_summary_has_cider_r10_and_measured_hard_recalls():
    def make_judge_results(recall_at_10, **galleries):
        return {"text_to_image": {"R@1": 1.0, "R@10": recall_at_10}, "galleries": galleries}

    results = {
        "images": 8,
        "language": {"CIDEr": 0.8, "BLEU-4": 0.3},
        "judges": {
            "own": make_judge_results(50.0, **{HARD_GALLERY: {"R@1": 30.0, "R@10": None}}),
            "judge": make_judge_results(40.0),
        },
    }
    assert select_summary_metrics(results) == {
        "CIDEr": 0.8,
        "R@10 own": 50.0,
        "R@10 judge": 40.0,
        "R@1 (hard) own": 30.0,
    }
