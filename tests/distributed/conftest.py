import pytest
from launching import SMALL, finish, tinyvit


@pytest.fixture(scope="session")
def teacher(tmp_path_factory):
    """The folder of a trained run, in a folder of its own for other runs."""
    folder = tmp_path_factory.mktemp("ranks")
    options = "--epochs", "2", "--precision", "float64", "--out", folder / "teacher"
    status, _, err = finish(tinyvit("train", "digits", *SMALL, *options))
    assert status == 0, err
    return folder / "teacher"
