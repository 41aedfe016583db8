"""What every test runs under."""

import os

from hypothesis import settings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported, by a test module

settings.register_profile("elastic", max_examples=50, deadline=None, database=None)
settings.load_profile("elastic")
