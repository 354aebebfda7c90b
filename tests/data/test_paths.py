from pathlib import Path

from tinyvit.data.paths import expanded


def test_a_tilde_is_the_home_and_elsewhere_a_name_like_any_other(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expanded("~/images") == tmp_path / "images" and expanded("~") == tmp_path
    assert expanded("images/~") == Path("images/~") and expanded(Path("~") / "images") == tmp_path / "images"


def test_a_user_that_nobody_is_stays_as_it_stands():
    assert expanded("~nobody-of-this-name/images") == Path("~nobody-of-this-name/images")
