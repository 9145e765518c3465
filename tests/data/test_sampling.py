from tfrnet.data.sampling import sample_indices


def test_a_small_population_is_taken_whole():
    assert sample_indices(3, 5, "x", 0) == [0, 1, 2]


def test_the_sample_is_the_same_everywhere():
    assert sample_indices(100, 6, "retain", 0, 0) == [1, 20, 32, 41, 58, 77]


def test_samples_are_distinct_sorted_and_depend_on_every_key():
    one = sample_indices(1000, 50, "retain", 0, 0)
    assert one == sorted(set(one))
    assert len(one) == 50
    others = [
        sample_indices(1000, 50, *key)
        for key in (("retain", 0, 1), ("retain", 1, 0), ("guard", 0, 0))
    ]
    assert all(other != one for other in others)


def test_every_index_is_about_equally_likely():
    counts = [0] * 20
    for seed in range(2000):
        for i in sample_indices(20, 5, "x", seed):
            counts[i] += 1
    assert all(400 < count < 600 for count in counts)
