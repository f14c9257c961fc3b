"""Hard galleries by equal keys and by a retriever's vectors."""

import numpy as np
import torch

from pipeline.evaluation.hard_gallery import build_vector_gallery, find_galleries_by_key


def test_images_of_one_key_form_a_gallery():
    assert find_galleries_by_key([7, "a", 7, 7, "b", "a"]).tolist() == [
        [2, 3],
        [5, -1],
        [0, 3],
        [0, 2],
        [-1, -1],
        [1, -1],
    ]
    assert find_galleries_by_key(["a", "b"]).shape == (2, 0)


def test_a_retrievers_galleries_hold_the_nearest_images():
    vectors = torch.tensor([[9.0, 9.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]])
    rows = np.array([1, 2, 3, 4])
    assert build_vector_gallery(lambda images: vectors[images], 2)(rows).tolist() == [[2], [3], [0], [1]]
    assert build_vector_gallery(lambda images: vectors[images], 10)(rows).shape == (4, 3)  # all other images
