import pytest

from herd.core.errors import EligibilityDenied, EligibilityUnverified
from roles.model import Allowed, Denied, Unverified, require


def test_what_is_allowed_passes():
    assert require(Allowed()) is None


@pytest.mark.parametrize(
    ("verdict", "refusal", "may_pass"),
    [
        (Denied("it is managed"), EligibilityDenied, False),
        (Unverified("no record"), EligibilityUnverified, True),
    ],
)
def test_everything_else_is_refused_with_its_reason_and_only_what_is_unverified_may_pass(
    verdict, refusal, may_pass
):
    with pytest.raises(refusal) as refused:
        require(verdict)

    assert refused.value.message == verdict.reason
    assert refused.value.may_pass is may_pass
