"""The model that is explained: loading, inputs, outputs, targets and the embedded models."""
