from pipeline.analysis.judges import described, human_by, in_order, recall_by


def test_judges_stand_in_the_order_of_the_evaluation_that_has_the_most():
    found = in_order([["own", "judge"], ["own", "clip", "judge"], ["own", "other"]])
    assert list(found) == ["own", "clip", "judge", "other"]
    assert found["judge"].title == "Independent judge"


def test_a_judge_that_nobody_described_has_its_name():
    assert (described("clip").title, described("clip").words) == ("clip", "clip")


def test_where_numbers_stand():
    assert recall_by("own") == ("judges", "own", "text_to_image", "R@10")
    assert recall_by("own", "R@1", "image_to_text") == ("judges", "own", "image_to_text", "R@1")
    assert recall_by("clip", "R@5", "galleries", "1000") == ("judges", "clip", "galleries", "1000", "R@5")
    assert human_by("clip") == ("judges", "clip", "human", "text_to_image", "R@10")
    assert recall_by("own", "R@1 near") == ("judges", "own", "galleries", "neighbourhood", "R@1")
    assert human_by("own", "R@1 near") == ("judges", "own", "human", "galleries", "neighbourhood", "R@1")
