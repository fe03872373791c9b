from functions.learner.credit_config import CreditConfig
from functions.learner.shaping.truncation import rows_out_of_loss
from tests.unit.functions.learner.builders import make_row

ROWS = [make_row("a", sample, finish_reason=reason) for sample, reason in enumerate(("stop", "length", "stop"))]


def test_what_was_cut_has_no_place_in_the_loss() -> None:
    assert rows_out_of_loss(ROWS, CreditConfig(mask_truncated=True)) == {1}


def test_all_have_one_unless_asked_for() -> None:
    assert not rows_out_of_loss(ROWS, CreditConfig())
