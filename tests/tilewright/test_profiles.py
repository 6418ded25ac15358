from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest

from tilewright import profiles
from tilewright.discover import Server, find_server
from tilewright.errors import UsageError
from tilewright.profiles import Profile, Profiles

LAB = Profile("http://lab:8750", key="twk_lab")
HOSTILE = 'quote " back \\ line \n tab \t bell \a é \u2028 .x ]'


@pytest.fixture
def lab() -> Profile:
    profiles.save(Profiles({"lab": LAB}))
    return LAB


def test_without_a_file_there_are_none() -> None:
    assert profiles.load() == Profiles()


@pytest.mark.parametrize("name", ["lab", "my lab", HOSTILE])
def test_what_is_saved_is_read_back_whatever_it_is_called(name: str) -> None:
    found = Profiles({name: Profile(f"http://{HOSTILE}", HOSTILE), "other": Profile("http://o", key_file="/k")}, name)
    path = profiles.save(found)
    assert profiles.load() == found
    assert tomllib.loads(path.read_text())["profiles"][name]["key"] == HOSTILE


def test_the_file_is_its_owners_alone_even_if_it_was_not() -> None:
    path = profiles.save(Profiles({"lab": LAB}))
    path.chmod(0o644)
    profiles.save(Profiles({"lab": LAB}))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["config.toml"]


def test_a_key_does_not_show_when_a_profile_is_printed() -> None:
    assert "twk_lab" not in repr(Profiles({"lab": LAB}))
    assert "twk_lab" not in repr(Server("http://lab", "twk_lab"))


@pytest.mark.parametrize(
    "text",
    ["[profiles", "profiles = 1", "[profiles.a]\nurl = 1", "[profiles.a]\nkey = 'k'", "[profiles.a]\nurl='x'\nport='1'",
     "profile = 'gone'"],
)  # fmt: skip
def test_a_damaged_file_is_named_and_not_overwritten_by_reading(text: str) -> None:
    path = profiles.config_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    with pytest.raises(UsageError, match=r"config\.toml"):
        profiles.load()
    assert path.read_text() == text


def test_a_key_file_is_read_when_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("twk_file\n")
    assert Profile("http://x", key_file=str(tmp_path / "key")).read_key() == "twk_file"
    with pytest.raises(UsageError, match="cannot read the key"):
        Profile("http://x", key_file=str(tmp_path / "none")).read_key()


def test_a_profile_is_used_when_it_is_named_or_in_use(lab: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_server(profile="lab") == Server(lab.url, lab.key)
    monkeypatch.setenv("TILEWRIGHT_PROFILE", "lab")
    assert find_server() == Server(lab.url, lab.key)
    monkeypatch.delenv("TILEWRIGHT_PROFILE")
    profiles.save(Profiles({"lab": lab, "home": Profile("http://home")}, "home"))
    assert find_server() == Server("http://home", "")
    with pytest.raises(UsageError, match="'work'"):
        find_server(profile="work")


def test_the_address_of_the_environment_goes_before_profiles_that_no_argument_names(
    lab: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles.save(Profiles({"lab": lab}, "lab"))
    monkeypatch.setenv("TILEWRIGHT_PROFILE", "lab")
    monkeypatch.setenv("TILEWRIGHT_URL", "http://elsewhere")
    assert find_server() == Server("http://elsewhere", "")
    assert find_server(profile="lab") == Server(lab.url, lab.key)


def test_a_key_never_goes_to_an_address_that_it_is_not_for(lab: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_API_KEY", "twk_general")
    assert find_server(profile="lab") == Server(lab.url, "twk_lab")
    assert find_server("http://given", profile="lab") == Server("http://given", "twk_general")
    assert find_server("http://given", "mine", "lab") == Server("http://given", "mine")
    assert find_server(key="mine", profile="lab") == Server(lab.url, "mine")
