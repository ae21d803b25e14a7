"""Examples whose relevance is chosen by the test, for the tests of metrics."""

from dataclasses import replace

import numpy as np
import torch
from PIL import Image

import clearhead
from clearhead.data.task import Example, Picture
from clearhead.evaluation.metric import ExplainedExample, parse_metric

TEXTS = [
    "a fine film with no plot",
    "is it really good or bad",
    "it is a badly plot film with no film in it . really .",
    "good",
    "a a a good good film is it",
]


def noise(explanation, seed):
    return np.random.default_rng([seed, len(explanation.relevance)]).normal(size=len(explanation.relevance))


def cases_of(model, inputs, relevance=noise, labels=None, seed=0):
    """Cases whose relevance is chosen, for the prediction and every class."""
    found = clearhead.explain(model, list(inputs), "random")
    cases = []
    for place, (raw, own) in enumerate(zip(inputs, found, strict=True)):
        own = replace(own, relevance=np.asarray(relevance(own, seed + place), dtype=np.float64))
        label = own.target.number if labels is None else labels[place]
        cases.append(ExplainedExample(Example(str(place), raw, label), {"prediction": own, "label": own}))
    return cases


def values(name, model, cases):
    measure = parse_metric(name)
    return measure.summarise(measure.measure(model, cases))


def true_weights(model, explanation):
    """What each token adds to the score of class 0, or to the logit of being the answer."""
    ids = model.processor.convert_tokens_to_ids(list(explanation.tokens))
    return model.network.weight(torch.tensor(ids)).numpy()


def signed_weights(model, explanation, number):
    return true_weights(model, explanation) * (1 if number == 0 else -1)


def marked(model, text, relevance, gold):
    own = clearhead.explain(model, text, "random")
    own = replace(own, relevance=np.asarray(relevance, dtype=np.float64))
    keys = ("prediction", "label", "start", "end")
    return ExplainedExample(Example("x", text, 0, gold), dict.fromkeys(keys, own))


def png(values):
    import io

    buffer = io.BytesIO()
    Image.fromarray(np.asarray(values, dtype=np.uint8)).save(buffer, "PNG")
    return Picture(buffer.getvalue())
