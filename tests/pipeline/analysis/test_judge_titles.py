from pipeline.analysis.judge_titles import get_judge_title, make_human_recall_keys, make_recall_keys, order_judges


def test_judges_are_in_the_order_of_the_evaluation_with_the_most_judges():
    found = order_judges([["own", "judge"], ["own", "clip", "judge"], ["own", "other"]])
    assert list(found) == ["own", "clip", "judge", "other"]
    assert found["judge"].title == "Independent judge"


def test_a_judge_without_a_title_has_its_name():
    assert (get_judge_title("clip").title, get_judge_title("clip").description) == ("clip", "clip")


def test_paths_to_numbers_in_metrics_json():
    assert make_recall_keys("own") == ("judges", "own", "text_to_image", "R@10")
    assert make_recall_keys("own", "R@1", "image_to_text") == ("judges", "own", "image_to_text", "R@1")
    assert make_recall_keys("clip", "R@5", "galleries", "1000") == ("judges", "clip", "galleries", "1000", "R@5")
    assert make_human_recall_keys("clip") == ("judges", "clip", "human", "text_to_image", "R@10")
    assert make_recall_keys("own", "R@1 (hard)") == ("judges", "own", "galleries", "neighbourhood", "R@1")
    assert make_human_recall_keys("own", "R@1 (hard)") == (
        "judges",
        "own",
        "human",
        "galleries",
        "neighbourhood",
        "R@1",
    )
