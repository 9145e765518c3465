import torch

from tfrnet.models.padding import padded

ROWS = [(5, 6, 7), (8,)]


def test_rows_are_filled_up_on_either_side():
    ids, mask = padded(ROWS)
    assert ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    ids, mask = padded(ROWS, "left", 9)
    assert ids.tolist() == [[5, 6, 7], [9, 9, 8]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]
    assert ids.dtype == mask.dtype == torch.long
