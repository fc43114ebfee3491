"""Every drawn case is drawn the same on each run, and no test is timed out on a busy machine."""

import torch
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("repeatable")
torch.set_num_threads(1)
