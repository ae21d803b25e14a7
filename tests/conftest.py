"""Settings and fixtures of all tests.

One thread per worker, since the suite runs two workers side by side. Interpreted kernels run on the CPU.
"""

import os

import pytest
import torch
import transformers
from helpers.tiny_models import image_model, text_model

from clearhead.engine.lrp.kernels import dispatch

torch.set_num_threads(1)
# Models that tests save would draw bars between the messages that they read.
transformers.utils.logging.disable_progress_bar()
if os.environ.get("TRITON_INTERPRET") == "1":
    dispatch.DEVICES.add("cpu")


@pytest.fixture(autouse=True, scope="session")
def _no_settings_of_the_user(tmp_path_factory):
    """Keeps the user's own choices of methods out of the tests, and the tests out of the user's settings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLEARHEAD_CONFIG", str(tmp_path_factory.getbasetemp() / "settings"))
        yield


@pytest.fixture(scope="module")
def text():
    return text_model()


@pytest.fixture(scope="module")
def image():
    return image_model()
