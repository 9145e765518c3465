import pytest

from tfrnet.evaluation.arithmetic import match_number


@pytest.mark.parametrize(
    ("generated", "exact", "strict"),
    [
        (" 143", 1, 1),
        (" 143\n\nQuestion:", 1, 1),
        (" 143.", 1, 0),
        (" 143.5", 0, 0),
        (" 1,43", 1, 0),
        (" 1430", 0, 0),
        (" The answer is 143", 0, 0),
        ("", 0, 0),
        ("\n143", 0, 0),
        (" -143", 0, 0),
        (" 143 apples", 1, 0),
    ],
)
def test_the_matching_rule(generated, exact, strict):
    """The table of the rule, gold 143."""
    match = match_number(generated, " 143")
    assert (match.exact, match.strict) == (bool(exact), bool(strict))


@pytest.mark.parametrize(("generated", "gold"), [("1,43.5", "1"), ("14.3", "1"), ("12,5", "12")])
def test_a_part_of_a_number_is_no_match(generated, gold):
    assert not match_number(generated, gold).exact


def test_negative_numbers():
    assert match_number(" -55", "-55").strict
    assert not match_number(" - 55", "-55").exact
    assert not match_number(" 55", "-55").exact
