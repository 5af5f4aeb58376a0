from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.config import properties


def test_the_usual_file() -> None:
    text = "# a comment\n! another\n\nnode.id=1\nlog.dirs = /a, /b \nrack:x\nname value with blanks\nempty=\nalone\n"
    assert properties.parse(text) == {
        "node.id": "1",
        "log.dirs": "/a, /b ",
        "rack": "x",
        "name": "value with blanks",
        "empty": "",
        "alone": "",
    }


def test_a_line_continues_after_a_backslash() -> None:
    text = "listeners=PLAINTEXT://:9092,\\\n    # not a comment here,\\\r\n\tCONTROLLER://:9093\nnode.id=1"
    assert properties.parse(text) == {
        "listeners": "PLAINTEXT://:9092,# not a comment here,CONTROLLER://:9093",
        "node.id": "1",
    }


def test_two_backslashes_are_one_and_do_not_continue() -> None:
    assert properties.parse("path=C:\\\\\nnext=1\n") == {"path": "C:\\", "next": "1"}


def test_a_comment_cannot_be_continued() -> None:
    assert properties.parse("# one \\\nkey=value") == {"key": "value"}


def test_escapes() -> None:
    text = r"a\=b\:c\ d=\t\u00e4\ud83d\ude00\q\!" + "\n"
    assert properties.parse(text) == {"a=b:c d": "\tä😀q!"}


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(properties.PropertiesError, match="line 2"):
        properties.parse("ok=1\nbroken=\\u12\n")


def test_the_last_of_equal_keys_wins() -> None:
    assert properties.parse("a=1\na=2\n") == {"a": "2"}


def test_a_file_is_utf_8_or_else_latin_1() -> None:
    assert properties.decode("\ufeffname=ä".encode()) == "name=ä"
    assert properties.decode("name=ä".encode("latin-1")) == "name=ä"


def test_written_properties_begin_with_comments() -> None:
    written = properties.render({"version": "1", "cluster.id": "a b"}, comments=["", "Thu Jan 01 00:00:00 UTC 1970"])
    assert written == "#\n#Thu Jan 01 00:00:00 UTC 1970\nversion=1\ncluster.id=a b\n"


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))


@given(st.dictionaries(text, text))
def test_written_properties_are_read_back(written: dict[str, str]) -> None:
    assert properties.parse(properties.render(written)) == written


@given(st.text())
def test_only_broken_escapes_are_rejected(text: str) -> None:
    try:
        properties.parse(text)
    except properties.PropertiesError:
        assert "\\u" in text
