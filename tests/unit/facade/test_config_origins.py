"""Which source of a setting wins, and that each value knows where it came from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import BlockingMemory
from memory.domain.errors import ConfigError
from memory.facade.config.settings import MemoryConfig, load
from memory.facade.config.values import installed_schemes
from memory.facade.runtime import build

FILE = """\
tenant = "from-file"  # a comment

[stores.main]
url = "sqlite:///memory.db"
options = { synchronous = "FULL" }

[tiers]
long = "memory://"

[[promotion]]
name = "one"

[[promotion]]
name = "two"
tags = ["x"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "memory.toml").write_text(FILE)
    return tmp_path


def test_arguments_win_over_environment_over_file_over_defaults(folder: Path) -> None:
    environ = {"MEMORY__TENANT": "from-env", "MEMORY__TIERS__LONG": "sqlite:///env.db"}
    assert load(environ={}, folder=folder).tenant == "from-file"
    assert load(environ=environ, folder=folder).tenant == "from-env"
    config = load(None, {"tenant": "from-argument"}, environ=environ, folder=folder)
    assert config.tenant == "from-argument"
    assert config.tiers.long == "sqlite:///env.db"
    assert config.embedder.use == "wordllama"


def test_every_value_says_where_it_came_from(folder: Path) -> None:
    config = load(None, {"embedder": "none"}, environ={"MEMORY__DURATIONS__LEASE": "9s"}, folder=folder)
    origins = config.origins
    file = folder / "memory.toml"
    assert origins["tenant"] == f"{file}:1"
    assert origins["stores.main.url"] == f"{file}:4"
    assert origins["tiers.long"] == f"{file}:8"
    assert origins["promotion.2"] == f"{file}:13"
    assert origins["durations.lease"] == "MEMORY__DURATIONS__LEASE"
    assert origins["embedder"] == "argument"
    assert origins["tiers.short"] == origins["durations.mark_life"] == "default"
    assert origins.keys() == config.leaves().keys()


def test_relative_databases_of_a_file_lie_beside_it(folder: Path) -> None:
    config = load(folder / "memory.toml", environ={}, folder=Path("/"))
    assert config.stores["main"].url == f"sqlite:///{folder}/memory.db"
    assert config.stores["main"].options == {"synchronous": "FULL"}


@pytest.mark.parametrize(
    "url", ["sqlite:////abs/x.db", "sqlite:///~/x.db", "sqlite:///:memory:", "memory://"]
)
def test_other_urls_of_a_file_are_left_alone(tmp_path: Path, url: str) -> None:
    (tmp_path / "memory.toml").write_text(f'[stores.main]\nurl = "{url}"\n')
    assert load(environ={}, folder=tmp_path).stores["main"].url == url


def test_a_url_serves_every_tier_and_takes_the_place_of_the_file(folder: Path) -> None:
    config = load(
        "sqlite:///mine.db",
        environ={"MEMORY__TIERS__LONG": "memory://", "MEMORY__TENANT": "t"},
        folder=folder,
    )
    assert {store.url for store in config.serving_stores().values()} == {"sqlite:///mine.db"}
    assert config.tenant == "t"
    assert config.origins["tiers.long"] == "argument"


def test_a_path_is_a_database_file_unless_it_ends_in_toml(folder: Path) -> None:
    assert load(Path("mine.db"), environ={}, folder=folder).serving_stores()["mid"].url == "sqlite:///mine.db"
    assert (
        load("/srv/mine.db", environ={}, folder=folder).serving_stores()["mid"].url
        == "sqlite:////srv/mine.db"
    )
    assert load("memory.toml", environ={}, folder=folder).tenant == "from-file"


def test_the_environment_may_name_the_file_or_the_store(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('tenant = "other"')
    assert load(environ={"MEMORY_CONFIG": str(other)}, folder=folder).tenant == "other"
    config = load(environ={"MEMORY_CONFIG": "sqlite:///env.db"}, folder=folder)
    assert config.tiers.mid == "sqlite:///env.db"
    assert config.origins["tiers.mid"] == "MEMORY_CONFIG"


def test_a_mapping_is_an_argument(folder: Path) -> None:
    config = load(
        {"tenant": "mapped", "tiers": {"long": "memory://"}}, environ={"MEMORY__TENANT": "env"}, folder=folder
    )
    assert config.tenant == "mapped"
    assert config.origins["tiers.long"] == "argument"


def test_a_config_object_is_taken_as_it_is_but_for_the_settings_beside_it(folder: Path) -> None:
    made = load(environ={}, folder=folder)
    again = load(made, {"tenant": "other"}, environ={"MEMORY__TENANT": "env"}, folder=folder)
    assert again.tenant == "other"
    assert again.stores == made.stores
    assert again.promotion == made.promotion
    assert again.origins["stores.main.url"].endswith("memory.toml:4")


@pytest.mark.parametrize(
    ("variable", "right"),
    [
        ("MEMORY_TENANT", "MEMORY__TENANT"),
        ("MEMORY_TIERS__LONG", "MEMORY__TIERS__LONG"),
        ("memory_embedder", "MEMORY__embedder"),
    ],
)
def test_a_variable_that_lacks_an_underscore_is_refused_with_the_right_name(
    tmp_path: Path, variable: str, right: str
) -> None:
    with pytest.raises(ConfigError, match=f"{variable}: sets nothing.*Write {right}"):
        load(environ={variable: "x"}, folder=tmp_path)


def test_variables_of_other_programs_are_none_of_ours(tmp_path: Path) -> None:
    others = {"MEMORY_SERVER_PORT": "tcp://10.0.0.1:80", "MEMORY_LIMIT": "2g", "MEMORY_TENANTS": "a"}
    assert load(environ=others, folder=tmp_path).tenant == "default"


def test_lists_in_the_environment_are_json(tmp_path: Path) -> None:
    config = load(environ={"MEMORY__PROMOTION": '[{"name": "all"}]'}, folder=tmp_path)
    assert [rule.name for rule in config.promotion] == ["all"]
    with pytest.raises(ConfigError, match="MEMORY__PROMOTION: not valid JSON at character"):
        load(environ={"MEMORY__PROMOTION": "[{"}, folder=tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[tiers]\nshrot = "main"\n', "memory.toml:2: tiers.shrot: there is no setting 'shrot'"),
        ('\n[[promotion]]\nname = "x"\nsource = "long"\ntarget = "mid"\n', "memory.toml"),
        ('[stores.main]\nurl = "nothing"\n', "memory.toml:2: stores.main.url: is not a URL"),
        ("tenant = \n", "memory.toml: Invalid value (at line 1"),
    ],
)
def test_a_wrong_setting_in_a_file_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "memory.toml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(environ={}, folder=tmp_path)
    assert message in str(refused.value)


def test_a_wrong_variable_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match="MEMORY__TIRES__LONG: tires: there is no setting 'tires' at the top; did you mean 'tiers'",
    ):
        load(environ={"MEMORY__TIRES__LONG": "x"}, folder=tmp_path)
    with pytest.raises(ConfigError, match="MEMORY__TIERS__: an empty name"):
        load(environ={"MEMORY__TIERS__": "x"}, folder=tmp_path)
    with pytest.raises(ConfigError, match="already set by another variable"):
        load(environ={"MEMORY__TIERS": "x", "MEMORY__TIERS__LONG": "y"}, folder=tmp_path)


def test_a_missing_file_an_empty_config_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no config file .*nowhere\.toml"):
        load("nowhere.toml", environ={}, folder=tmp_path)
    with pytest.raises(ConfigError, match="the config is empty"):
        load("", environ={}, folder=tmp_path)
    with pytest.raises(ConfigError, match="is a folder"):
        load(tmp_path, environ={}, folder=tmp_path)
    others: list[Any] = [5, b"sqlite:///x.db", [], Path]
    for wrong in others:
        with pytest.raises(ConfigError, match="must be a URL, a path, a mapping or a MemoryConfig, not"):
            load(wrong, environ={}, folder=tmp_path)
    with pytest.raises(ConfigError, match="cannot be a database"):
        load("what?.db", environ={}, folder=tmp_path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("memory.yaml", r"'memory.yaml' is not a TOML file\. `memory init`"),
        ("config.JSON", r"'config.JSON' is not a TOML file"),
        ("redis", r"'redis', which is only a scheme. Write a whole URL, such as redis://"),
        (
            "notes",
            (
                r"'notes' is neither a URL nor a .toml file, and the path of a database ends in .db, .sqlite,"
                r" .sqlite3"
            ),
        ),
        ("/srv/agents/notes.dat", r"'notes.dat' is neither a URL"),
        ("lmdb:folder", r"'lmdb:' is not an installed scheme\. Installed: .*postgresql.*sqlite"),
        ("lmdb:folder/memory.db", r"'lmdb:' is not an installed scheme"),
        ("localhost:6379", r"'localhost:' is not an installed scheme"),
    ],
)
def test_what_names_no_database_for_sure_is_refused_and_nothing_is_made(
    tmp_path: Path, given: str, said: str
) -> None:
    for source, environ in ((given, {}), (None, {"MEMORY_CONFIG": given})):
        with pytest.raises(ConfigError, match=said):
            load(source, environ=environ, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "path", ["mine.db", "mine.sqlite", "MINE.SQLITE3", "./a:b.db", "/srv/mine.db", "C:\\mine.db"]
)
def test_a_path_that_ends_as_databases_do_is_a_database(tmp_path: Path, path: str) -> None:
    assert load(path, environ={}, folder=tmp_path).tiers.mid == f"sqlite:///{path}"


def test_a_url_of_a_scheme_that_is_not_installed_is_refused_wherever_a_url_may_stand(tmp_path: Path) -> None:
    places: list[dict[str, Any]] = [
        {"tiers": {"long": "lmdb:folder"}},
        {"stores": {"a": {"url": "lmdb:folder"}}},
        {"routes": [{"tiers": ["mid"], "store": "lmdb:folder", "tenants": ["a"]}]},
    ]
    for given in places:
        with pytest.raises(ConfigError, match=r"lmdb|is not a URL with a scheme"):
            load(given, environ={}, folder=tmp_path)


@pytest.fixture
def lmdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An adapter for `lmdb`, as another distribution installs it."""
    theirs = tmp_path / "theirs"
    info = theirs / "their_lmdb-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-lmdb\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[memory.adapters]\nlmdb = their_lmdb:adapter\n")
    (theirs / "their_lmdb.py").write_text(
        "from memory.adapters.sql.sqlite import adapter as sqlite\nfrom memory.ports.adapter import"
        " Adapter\ndef build(name, url, options):\n    return sqlite.build(name, 'sqlite:///' +"
        " url.partition(':')[2].lstrip('/') + '.of-lmdb', options)\nadapter = Adapter(schemes=('lmdb',),"
        " claims=sqlite.claims, build=build)\n"
    )
    monkeypatch.setattr(sys, "path", [str(theirs), *sys.path])
    for cached in (installed_schemes, build._adapter_entry_points):
        cached.cache_clear()
    yield
    monkeypatch.undo()
    for cached in (installed_schemes, build._adapter_entry_points):
        cached.cache_clear()


@pytest.mark.usefixtures("lmdb")
@pytest.mark.parametrize("url", ["lmdb:folder", "lmdb:/folder", "lmdb://folder"])
def test_an_installed_scheme_works_wherever_a_url_may_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "memory.toml").write_text(
        f'[stores.own]\nurl = "{url}"\n[tiers]\nshort = "own"\nmid = "own"\nlong = "{url}"\n'
    )
    tiers = dict.fromkeys(("short", "mid", "long"), url)
    routed = {
        "tiers": dict.fromkeys(tiers, "sqlite:///other.db"),
        "routes": [{"tiers": list(tiers), "store": url, "tenants": ["default"]}],
    }
    sources: list[Any] = [
        url,
        {"tiers": tiers},
        {"stores": {"own": {"url": url}}, "tiers": dict.fromkeys(tiers, "own")},
        "memory.toml",
        routed,
    ]
    for number, source in enumerate(sources):
        with BlockingMemory(source, embedder="none") as memory:
            memory.write(f"fact {number}", scope="user:ada")
            assert len(memory.retrieve("user:ada")) == number + 1, source
    monkeypatch.setenv("MEMORY_CONFIG", url)
    with BlockingMemory(embedder="none") as memory:
        assert len(memory.retrieve("user:ada")) == len(sources)
    assert (tmp_path / "folder.of-lmdb").exists()
    assert not (tmp_path / "lmdb:folder").exists()


def test_load_on_the_class_reads_the_process_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMORY__TENANT", "env")
    assert MemoryConfig.load().tenant == "env"
    assert MemoryConfig.load(tenant="given").tenant == "given"


def test_folders_of_a_config_file_lie_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "memory.toml"
    file.write_text(
        '[stores.notes]\nurl = "file:notes?fsync=false"\n[stores.far]\nurl ='
        ' "file:///srv/notes"\n[tiers]\nmid = "notes"\nlong = "far"\n'
    )
    config = load(file, environ={})
    assert config.stores["notes"].url == f"file://{tmp_path}/notes?fsync=false"
    assert config.stores["far"].url == "file:///srv/notes"


def test_a_folder_can_be_given_without_slashes(tmp_path: Path) -> None:
    assert load("file:notes", environ={}, folder=tmp_path).serving_stores()["mid"].url == "file:notes"


def test_edge_folders_and_files_without_slashes_lie_beside_the_config_file_too(tmp_path: Path) -> None:
    folder = tmp_path / "100% ours"
    folder.mkdir()
    file = folder / "memory.toml"
    file.write_text(
        '[stores.edge]\nurl = "qdrant+edge:vectors?log_bytes=2000000"\n[stores.main]\nurl ='
        ' "sqlite:main.db"\n[tiers]\nmid = "main"\nlong = "edge"\n'
    )
    config = load(file, environ={})
    assert config.stores["edge"].url == f"qdrant+edge://{tmp_path}/100%25%20ours/vectors?log_bytes=2000000"
    assert config.stores["main"].url == f"sqlite:///{folder}/main.db"


JWT = '[server.jwt]\nissuer = "https://login/"\naudience = "memory"\njwks = "keys.json"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f'{JWT}rol = "x"\n',
            r"memory\.toml:5: server\.jwt\.rol: .*'roles'\? \(known: issuer, audience, jwks,",
        ),
        ('[server.audit]\nretain = "9d"\n', r"memory\.toml:2: server\.audit\.retain: .*known: reads, keep\)"),
        ('[stores.retry]\nurl = "memory://"\nulr = 1\n', r"stores\.retry\.ulr: .*did you mean 'url'\?"),
        (
            '[stores.a]\nurl = "memory://"\nretry = { tries = 3 }\n',
            r"stores\.a\.retry\.tries: .*known: attempts, backoff\)",
        ),
        ('[server.jwt]\nissuer = "a"\n', r"memory\.toml:2: server\.jwt\.audience: is missing"),
        (f"{JWT}roles = []\n", r"memory\.toml:5: server\.jwt\.roles: "),
        (f'{JWT}default_role = "operator"\n', r"server\.jwt\.roles: should have default_role, 'operator'"),
    ],
)
def test_a_wrong_setting_of_a_table_within_a_table_is_named_with_those_of_that_table(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "memory.toml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        load(environ={}, folder=tmp_path)


def test_every_setting_of_the_server_is_shown_and_its_files_lie_beside_the_config_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "memory.toml").write_text(
        f'{JWT}[server.audit]\nkeep = "9d"\n[server]\ntls_cert = "tls/a.pem"\ntls_key = "/srv/a.key"\n'
    )
    config = load(environ={}, folder=tmp_path)
    shown = config.leaves()
    assert shown["server.audit.keep"] == "9d"
    assert config.origins["server.audit.keep"] == f"{tmp_path / 'memory.toml'}:6"
    assert shown["server.jwt.jwks"] == str(tmp_path / "keys.json")
    assert (shown["server.tls_cert"], shown["server.tls_key"]) == (str(tmp_path / "tls/a.pem"), "/srv/a.key")
    address = JWT.replace("keys.json", "https://login/keys.json")
    (tmp_path / "memory.toml").write_text(address)
    assert load(environ={}, folder=tmp_path).leaves()["server.jwt.jwks"] == "https://login/keys.json"


def test_a_blank_variable_with_the_config_is_refused_as_other_blank_ones_are(folder: Path) -> None:
    for blank in ("", " "):
        with pytest.raises(ConfigError, match="MEMORY_CONFIG: is blank"):
            load(environ={"MEMORY_CONFIG": blank}, folder=folder)


@pytest.mark.parametrize("url", ["${PG_URL}", "$PG_URL", "postgresql://app:${PG_PASSWORD}@db/agents"])
def test_a_url_with_a_variable_in_it_is_refused_and_the_right_way_is_named(tmp_path: Path, url: str) -> None:
    named: dict[str, Any] = {"stores": {"a": {"url": url}}, "tiers": {"mid": "a"}}
    for given in (named, {"tiers": {"mid": url}}):
        with pytest.raises(ConfigError, match=r"no variable is replaced here.*MEMORY__STORES__POSTGRES__URL"):
            load(given, environ={}, folder=tmp_path)
