"""The proof kit, as a stranger's package uses it."""

import pytest

from decoders import catalog
from decoders.testing import assert_law


def test_a_mistake_fails_and_the_message_can_be_pasted():
    with pytest.raises(
        AssertionError,
        match=r"typical does not have the law 'target': decoders.testing.distance\(Typical\(",
    ):
        assert_law(catalog["typical"](), law="target")


def test_a_decoder_without_a_law_must_be_told_which():
    with pytest.raises(
        ValueError, match="typical claims no law with these settings; say which one it should have"
    ):
        assert_law(catalog["typical"]())
