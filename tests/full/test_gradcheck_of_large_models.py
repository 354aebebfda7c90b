"""gradcheck on a model of the paper's size."""

import pytest

from tinyvit import cli

pytestmark = pytest.mark.full


def test_every_gradient_of_ti16_is_found_right(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["gradcheck", "vit_tiny_patch16_224", "--directions", "5", "--batch-size", "1"])
    out = capsys.readouterr().out
    assert ended.value.code == 0 and "WRONG" not in out and "vit_tiny_patch16_224 (5,717,416 parameters)" in out
