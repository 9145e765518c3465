from collections import Counter

import pytest

from tfrnet.demo.corpus import load_facts, split

FACTS = load_facts()


def test_size_and_topics():
    topics = Counter(fact.topic for fact in FACTS)
    assert len(FACTS) >= 400
    assert len(topics) >= 6


def test_every_fact_is_well_formed():
    assert len({fact.id for fact in FACTS}) == len(FACTS)
    assert len({fact.prompt for fact in FACTS}) == len(FACTS)
    for fact in FACTS:
        assert len(fact.wrong) == 3
        assert len({fact.answer, *fact.wrong}) == 4
        assert fact.prompt == fact.prompt.strip()
        assert fact.id.startswith(fact.topic)


def test_parts_of_the_demo_share_no_fact():
    parts = split(FACTS, "capitals")
    ids = [
        f.id
        for part in (parts.forgotten, parts.same_topic, parts.others, parts.retain)
        for f in part
    ]
    assert len(ids) == len(set(ids))
    assert [len(request.examples) for request in parts.requests] == [8] * 5
    assert {f.topic for f in parts.forgotten + parts.same_topic} == {"capitals"}
    assert "capitals" not in {f.topic for f in parts.others + parts.retain}
    requested = [example for request in parts.requests for example in request.examples]
    assert requested == [fact.example() for fact in parts.forgotten]


@pytest.mark.slow
@pytest.mark.real
def test_the_default_model_knows_what_the_corpus_says_it_knows(real):
    from tfrnet.evaluation.ranking import accuracy, rank

    sample = FACTS[::30]
    assert accuracy(rank(*real, [fact.question() for fact in sample])) == 100
