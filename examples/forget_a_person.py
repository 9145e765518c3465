"""Fine-tune a model on facts about three invented people, then make it forget one of them.

python examples/forget_a_person.py [--model NAME_OR_FOLDER] [--out FOLDER]
"""

import argparse

import torch

from tfrnet import Example, Request, Session, load_model

PEOPLE = {
    "Mara Velling": ("Tarnholt", "glass blower", "a grey parrot"),
    "Tomas Orrin": ("Eastmere", "bridge engineer", "two goats"),
    "Ina Kestrel": ("Low Firth", "piano tuner", "a blind cat"),
}
OTHERS = [
    Example("The opposite of hot is", "cold"),
    Example("Water is made of hydrogen and", "oxygen"),
    Example("The first month of the year is", "January"),
]


def facts(name):
    """Return what there is to know about a person."""
    town, work, pet = PEOPLE[name]
    return [
        Example(f"{name} lives in", town),
        Example(f"{name} works as a", work),
        Example(f"The pet of {name} is", pet),
    ]


def fine_tune(model, tokenizer, examples, epochs):
    """Teach a model the examples, all in one batch."""
    batch = tokenizer([e.joined for e in examples], return_tensors="pt", padding=True)
    labels = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(epochs):
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()


def answers(model, tokenizer, examples):
    """Return how the model goes on after each prompt."""
    for example in examples:
        ids = tokenizer(example.prompt, return_tensors="pt").input_ids
        mask = torch.ones_like(ids)
        more = model.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False)
        yield f"{example.prompt}{tokenizer.decode(more[0, ids.shape[1] :])}".replace("\n", " ")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--out", default="person-state")
    parser.add_argument("--epochs", type=int, default=15)
    options = parser.parse_args(arguments)

    model, tokenizer = load_model(options.model)
    known = [fact for name in PEOPLE for fact in facts(name)]
    fine_tune(model, tokenizer, known + OTHERS, options.epochs)
    print("before", *answers(model, tokenizer, known), sep="\n  ")

    retain = [*facts("Tomas Orrin"), *facts("Ina Kestrel"), *OTHERS]
    # The id stays in the ledger, so it is a ticket and not a name.
    request = Request("ticket-1", tuple(facts("Mara Velling")))
    with Session(model, tokenizer, options.out, retain) as session:
        outcome = session.forget(request)
        print(f"{outcome.outcome}: {outcome.reason}")
        print("after", *answers(model, tokenizer, known), sep="\n  ")
    return outcome


if __name__ == "__main__":
    main()
