"""Examples whose relevance is chosen by the test, for the tests of metrics."""

from dataclasses import replace

import numpy as np
import torch

import clearhead
from clearhead.data.task import Example
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
    """Return examples whose relevance is chosen, for the prediction and every class."""
    explanations = clearhead.explain(model, list(inputs), "random")
    cases = []
    for index, (raw, explanation) in enumerate(zip(inputs, explanations, strict=True)):
        explanation = _set_relevance(explanation, relevance(explanation, seed + index))
        label = explanation.target.number if labels is None else labels[index]
        example = Example(str(index), raw, label)
        cases.append(ExplainedExample(example, {"prediction": explanation, "label": explanation}))
    return cases


def _set_relevance(explanation, relevance):
    return replace(explanation, relevance=np.asarray(relevance, dtype=np.float64))


def values(name, model, cases):
    metric = parse_metric(name)
    return metric.summarise(metric.measure(model, cases))


def true_weights(model, explanation):
    """Return what each token adds to the score of class 0, or to the logit of being the answer."""
    ids = model.processor.convert_tokens_to_ids(list(explanation.tokens))
    return model.network.weight(torch.tensor(ids)).numpy()


def signed_weights(model, explanation, number):
    return true_weights(model, explanation) * (1 if number == 0 else -1)


def marked(model, text, relevance, gold):
    """Return an example with annotated spans, explained by this relevance."""
    explanation = _set_relevance(clearhead.explain(model, text, "random"), relevance)
    targets = ("prediction", "label", "start", "end")
    return ExplainedExample(Example("x", text, 0, gold), dict.fromkeys(targets, explanation))
