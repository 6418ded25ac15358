from __future__ import annotations

from pathlib import Path

import pytest

from bench import archives

NOWHERE = "https://127.0.0.1:9/simple"


@pytest.fixture
def lonely_pip(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """pip with no index, no second index, no folder of wheels, and no configuration file."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", NOWHERE)
    monkeypatch.setenv("PIP_RETRIES", "0")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_a_source_archive_is_taken_from_the_list_of_the_index(tmp_path: Path, lonely_pip: pytest.MonkeyPatch) -> None:
    content = b"an archive"
    lonely_pip.setattr(
        archives,
        "_read",
        lambda address, _: (
            b'<a href="../../files/other-1.0.tar.gz">other-1.0.tar.gz</a>'
            b'<a href="../../files/x.tar.gz?a=1&amp;b=2#sha256=00"'
            b' data-requires-python="&gt;=3.10">my-pkg-1.0.tar.gz</a>'
            if address == f"{NOWHERE}/my-pkg/"
            else {"https://127.0.0.1:9/files/x.tar.gz?a=1&b=2#sha256=00": content}[address]
        ),
    )
    into = tmp_path / "into"
    into.mkdir()
    assert archives.sdist("My.Pkg", "1.0", into).read_bytes() == content


def test_a_version_that_the_index_does_not_list_is_reported(tmp_path: Path, lonely_pip: pytest.MonkeyPatch) -> None:
    lonely_pip.setattr(archives, "_read", lambda *_: b'<a href="x">my_pkg-0.9.tar.gz</a>')
    with pytest.raises(archives.Unreachable, match=r"my-pkg==1\.0: the index lists no my_pkg-1\.0\.tar\.gz"):
        archives.sdist("my-pkg", "1.0", tmp_path)


@pytest.mark.usefixtures("lonely_pip")
def test_an_index_that_does_not_answer_is_reported_without_its_address(tmp_path: Path) -> None:
    with pytest.raises(archives.Unreachable, match="the package index did not answer") as refused:
        archives.sdist("my-pkg", "1.0", tmp_path)
    assert "127.0.0.1" not in str(refused.value)


@pytest.mark.usefixtures("lonely_pip")
def test_a_wheel_that_pip_cannot_get_is_reported_with_pips_reason(tmp_path: Path) -> None:
    with pytest.raises(archives.Unreachable, match=r"pip download my-pkg==1\.0: ERROR: "):
        archives.wheel("my-pkg", "1.0", tmp_path)


def test_environment_settings_of_pip_win_over_its_files(tmp_path: Path, lonely_pip: pytest.MonkeyPatch) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://one.example/simple\nextra-index-url =\n    https://two.example\n    https://three.example\n"
    )
    lonely_pip.setenv("PIP_CONFIG_FILE", str(config))
    settings = archives._pip_settings()
    assert settings["index-url"] == NOWHERE
    assert settings["extra-index-url"].split() == ["https://two.example", "https://three.example"]


def test_other_addresses_than_web_and_file_are_refused(tmp_path: Path, lonely_pip: pytest.MonkeyPatch) -> None:
    lonely_pip.setenv("PIP_INDEX_URL", "ftp://127.0.0.1/simple")
    with pytest.raises(archives.Unreachable, match="neither https, http nor file"):
        archives.sdist("my-pkg", "1.0", tmp_path)
