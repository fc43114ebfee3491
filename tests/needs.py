"""What some tests need of the machine."""

import pytest

from decoders.engine.kernels.loading import kernels

needs_kernels = pytest.mark.skipif(kernels() is None, reason="numba makes no kernels here")
