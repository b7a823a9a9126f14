"""The configuration file: what it may hold, what wins, and what is said about mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import AliasChoices, Field, SecretStr

from storage.settings import StorageSettings, log_path
from terrarium.config import Config, ConfigError, Settings, load


class Garden(Settings):
    table = "garden"

    plants: int = Field(3, ge=0)
    beds: dict[str, int] = Field(default_factory=dict)
    gate_code: SecretStr | None = None
    owner: str = Field("nobody", validation_alias=AliasChoices("owner", "garden_owner"))


def garden(**values: object) -> Garden:
    return Config({"garden": values}, Path("terrarium.toml"), Path("data")).section(Garden)


def test_the_environment_wins_over_a_secret_file_which_wins_over_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Config({}, None, Path("data")).section(Garden).plants == 3
    assert garden(plants=4).plants == 4
    monkeypatch.setenv("TERRARIUM_SECRETS", str(tmp_path))
    (tmp_path / "garden_plants").write_text("5\n")
    assert garden(plants=4).plants == 5
    monkeypatch.setenv("GARDEN_PLANTS", "6")
    assert garden(plants=4).plants == 6
    monkeypatch.setenv("GARDEN_PLANTS", "")  # an empty one counts as none
    assert garden(plants=4).plants == 5


@pytest.mark.parametrize("name", ["OWNER", "GARDEN_OWNER"])
def test_a_key_can_be_set_by_its_short_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "ada")
    assert garden(owner="bob").owner == "ada"


@pytest.mark.parametrize(
    ("variable", "value", "plants", "message"),
    [
        ("", "", -1, r"^terrarium\.toml: \[garden\] plants: "),
        ("GARDEN_PLANTS", "many", 3, r"^GARDEN_PLANTS \(\[garden\]\): "),
        # A variable that merely has the key as its name is not blamed.
        ("PLANTS", "7", "many", r"^terrarium\.toml: \[garden\] plants"),
        ("GARDEN_BEDS", "north", 3, r"\[garden\].*beds.*JSON"),
    ],
)
def test_a_wrong_value_is_told_with_its_variable_or_with_file_table_and_key(
    variable: str, value: str, plants: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=message):
        garden(plants=plants)


def test_a_wrong_secret_is_not_repeated_in_the_error() -> None:
    with pytest.raises(ConfigError) as failure:
        garden(gate_code=["hunter2"])
    assert "hunter2" not in str(failure.value)
    assert "gate_code" in str(failure.value)


def test_an_unknown_key_is_named_with_its_table_its_file_and_the_nearest_one() -> None:
    with pytest.raises(ConfigError) as failure:
        garden(plans=1)
    message = str(failure.value)
    assert message.startswith('terrarium.toml: unknown key "plans" in [garden]')
    assert message.endswith('"plants"')
    # So is a value where a table should be.
    config = Config({"garden": 3}, Path("terrarium.toml"), Path("data"))
    with pytest.raises(ConfigError, match=r"\[garden\] must be a table"):
        config.section(Garden)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[serverr]\nport = 1\n", r'terrarium\.toml: unknown key "serverr".*"server"$'),
        (b'[web]\nport = "far"\n', r"\[web\] port: "),  # also a table that nobody here reads
        (b"[server\n", r"terrarium\.toml: not valid TOML: .*line 1"),
        (b"\xff\xfe[server]", "cannot be read"),
        (None, "no such file; give another with --config FILE"),
    ],
)
def test_an_error_in_a_file_is_told(content: bytes | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "terrarium.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load(file, tmp_path)


def test_the_file_beside_us_is_found_by_itself_and_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(None, tmp_path).path is None
    Path("terrarium.toml").write_text("[web]\nport = 9\n")
    assert load(None, tmp_path).tables == {"web": {"port": 9}}


def test_the_log_is_in_the_data_folder_unless_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config({}, None, Path("data"))
    assert log_path(config) == Path("data/irc.db")
    monkeypatch.setenv("DB_PATH", "/srv/log.db")
    assert log_path(config) == Path("/srv/log.db")
    assert config.section(StorageSettings).db_path == Path("/srv/log.db")
