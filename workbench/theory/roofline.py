"""The roofline model: what a pass costs by a device's bandwidth and its operations per second.

A pass takes the longer of two times: that of reading its weights and caches, and that of computing.
Nothing else costs time, neither launches nor drawing, and attention computes nothing.

Source:
    Williams et al. 2009, Roofline: an insightful visual performance model for multicore
    architectures (Communications of the ACM 52 (4)).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Roof:
    """What a device can do at most.

    Attributes:
        bandwidth: bytes that it reads per second
        operations: floating-point operations per second
    """

    bandwidth: float
    operations: float


@dataclass(frozen=True, slots=True)
class Size:
    """What a pass of a model has to do.

    Attributes:
        weights: parameters that every token is multiplied by
        bytes: of the weights that a pass reads
        cache: bytes of keys and values of a request, which a pass reads too
    """

    weights: float
    bytes: float
    cache: float = 0.0

    def seconds(self, roof: Roof, requests: float, tokens: float) -> float:
        """Seconds of a pass.

        Args:
            roof: the device
            requests: requests that share the pass
            tokens: tokens of each of them
        """
        read = (self.bytes + requests * self.cache) / roof.bandwidth
        return max(read, 2 * self.weights * requests * tokens / roof.operations)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a pair; the caches of the draft are not counted."""

    target: Size
    draft: Size

    def ratio(self, roof: Roof, requests: float, length: int) -> float:
        """Seconds of a round of speculative decoding over those of a step of plain decoding.

        A round drafts token by token, then verifies all of them and one token more at once.

        Args:
            roof: the device
            requests: requests at once
            length: draft tokens of each
        """
        drafting = length * self.draft.seconds(roof, requests, 1)
        verifying = self.target.seconds(roof, requests, length + 1)
        return (drafting + verifying) / self.target.seconds(roof, requests, 1)
