import json
import os
import pwd
import subprocess
import sys

import pytest

from herd.core.config import (
    IDLE_AUTO,
    IDLE_NOTIFY,
    Place,
    child_environment,
    environment,
    herdr_place,
    load,
)
from herd.core.errors import InvalidParams
from herd.core.limits import CONFIG_BYTES, DEFAULT_LIMITS, Limits

RECORD_OPENS = """
import json, os, sys
from herd.core import config
import tomllib
opened = []
sys.addaudithook(lambda event, found: opened.append(str(found[0])) if event == "open" else None)
limits = config.load(os.environ).limits
print(json.dumps([limits.connections, sorted({path for path in opened if path.endswith(".toml")})]))
"""


@pytest.fixture
def environ(tmp_path):
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}


@pytest.fixture
def write(tmp_path):
    file = tmp_path / "config" / "herd" / "config.toml"
    file.parent.mkdir(parents=True)

    def write_it(content):
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(file)

    return write_it


class TestDataRoot:
    @pytest.mark.requirement("A-storage-10")
    @pytest.mark.parametrize(
        ("variables", "expected"),
        [
            ({"HERD_HOME": "/data", "XDG_STATE_HOME": "/state"}, "/data"),
            ({"HERD_HOME": "", "XDG_STATE_HOME": "/state"}, "/state/herd"),
            ({"XDG_STATE_HOME": "/state"}, "/state/herd"),
            ({"XDG_STATE_HOME": ""}, "/home/u/.local/state/herd"),
            ({"XDG_STATE_HOME": "relative"}, "/home/u/.local/state/herd"),
            ({"XDG_STATE_HOME": "~/state"}, "/home/u/.local/state/herd"),
            ({}, "/home/u/.local/state/herd"),
        ],
    )
    def test_it_is_found_in_its_order_and_resolved_once(self, variables, expected):
        changing = {"HOME": "/home/u", **variables}
        settings = load(changing)
        changing.clear()

        assert settings.home == expected

    @pytest.mark.parametrize("home", ["herd", "./herd", "../herd", "~/herd", " /herd"])
    def test_a_relative_one_is_refused_and_not_guessed(self, home):
        with pytest.raises(InvalidParams, match=r"HERD_HOME.*not absolute"):
            load({"HOME": "/home/u", "HERD_HOME": home})

    @pytest.mark.parametrize("variables", [{}, {"HOME": ""}, {"HOME": "relative"}])
    def test_without_a_home_in_the_environment_the_user_database_has_one(self, variables):
        expected = pwd.getpwuid(os.geteuid()).pw_dir

        assert load({"XDG_CONFIG_HOME": "/nowhere", **variables}).home == f"{expected}/.local/state/herd"

    def test_a_long_home_with_a_space_and_other_letters_is_kept(self):
        home = "/home/" + "ü x" * 60
        assert load({"HOME": home}).home == f"{home}/.local/state/herd"

    @pytest.mark.machine
    def test_a_user_without_any_home_is_told_what_to_set(self):
        code = "import os, pwd; from herd.core.config import load; os.setuid(12345); load({})"
        failed = subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=30,
        )

        assert "set HOME or HERD_HOME" in failed.stderr


class TestSettings:
    def test_without_a_file_the_defaults_are_in_force(self, environ, tmp_path):
        settings = load(environ)

        assert settings.limits == DEFAULT_LIMITS
        assert settings.config_file == f"{tmp_path}/config/herd/config.toml"

    @pytest.mark.parametrize("content", ["", "# nothing\n", "[limits]\n"])
    def test_an_empty_file_changes_nothing(self, environ, write, content):
        write(content)
        assert load(environ).limits == DEFAULT_LIMITS

    @pytest.mark.requirement("A-config-08")
    @pytest.mark.parametrize("key", Limits._fields)
    def test_each_limit_can_be_chosen_and_the_others_stay(self, environ, write, key):
        value = {"frame_bytes": 70_001, "max_expiry_ms": 600_001}.get(key, 1_027)
        write(f"[limits]\n{key} = {value}\n")

        assert load(environ).limits == DEFAULT_LIMITS._replace(**{key: value})

    @pytest.mark.requirement("A-config-08")
    @pytest.mark.parametrize("value", [1, 2_000, 8_000, 16_384, 65_535])
    def test_a_frame_too_small_for_the_protocol_is_refused_and_the_least_value_named(
        self, environ, write, value
    ):
        file = write(f"[limits]\nframe_bytes = {value}\n")
        with pytest.raises(InvalidParams) as refused:
            load(environ)

        assert refused.value.message == (
            f"{file}: 'limits.frame_bytes' is no whole number from 65536 to 2147483647"
        )

    @pytest.mark.parametrize("key", ["inline_attachment_bytes", "mailbox_payload_bytes"])
    def test_the_bounds_of_what_travels_beside_a_message_have_narrower_bounds(self, environ, write, key):
        for value in (1_024, 1_048_576):
            write(f"[limits]\n{key} = {value}\n")
            assert getattr(load(environ).limits, key) == value
        for value in (1_023, 1_048_577):
            write(f"[limits]\n{key} = {value}\n")
            with pytest.raises(
                InvalidParams, match=f"'limits.{key}' is no whole number from 1024 to 1048576"
            ):
                load(environ)

    @pytest.mark.requirement("A-limits-18")
    @pytest.mark.parametrize(
        ("content", "wrong"),
        [
            ("message_bytes = 65537", "'limits.message_bytes' is 65537, more than 'limits.frame_bytes'"),
            (
                "message_bytes = 70001\nframe_bytes = 70000",
                "'limits.message_bytes' is 70001, more than 'limits.frame_bytes'",
            ),
            ("expiry_ms = 3600001", "'limits.expiry_ms' is 3600001, more than 'limits.max_expiry_ms'"),
            ("max_expiry_ms = 599999", "'limits.expiry_ms' is 600000, more than 'limits.max_expiry_ms'"),
        ],
    )
    def test_a_limit_that_another_one_bounds_is_refused_with_the_names_of_both(
        self, environ, write, content, wrong
    ):
        file = write(f"[limits]\n{content}\n")
        with pytest.raises(InvalidParams) as refused:
            load(environ)

        assert refused.value.message.startswith(f"{file}: {wrong}")

    @pytest.mark.parametrize(
        "content",
        [
            "message_bytes = 65536",
            "frame_bytes = 65536",
            "expiry_ms = 3600000",
            "max_expiry_ms = 600000",
            "message_bytes = 100000\nframe_bytes = 100000",
        ],
    )
    def test_a_limit_may_be_as_great_as_the_one_that_bounds_it(self, environ, write, content):
        write(f"[limits]\n{content}\n")

        load(environ)

    def test_the_defaults_of_what_a_message_may_have(self):
        assert DEFAULT_LIMITS[8:] == (
            *(8_000, 131_072, 131_072, 10 * 1024 * 1024, 10, 20, 600_000, 3_600_000, 86_400_000, 64),
        )

    @pytest.mark.requirement("A-config-12")
    def test_no_other_file_is_ever_opened(self, tmp_path):
        decoys = [
            tmp_path / "home" / ".config" / "herd" / "config.toml",
            tmp_path / "home" / ".herd.toml",
            tmp_path / "cwd" / "config.toml",
            tmp_path / "cwd" / "herd.toml",
            tmp_path / "data" / "config.toml",
        ]
        chosen = tmp_path / "config" / "herd" / "config.toml"
        for file, value in [*((decoy, 3) for decoy in decoys), (chosen, 5)]:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"[limits]\nconnections = {value}\n", encoding="utf-8")
        variables = {
            "HOME": str(tmp_path / "home"),
            "HERD_HOME": str(tmp_path / "data"),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }

        def ask(**more):
            done = subprocess.run(
                [sys.executable, "-c", RECORD_OPENS],
                check=True,
                capture_output=True,
                cwd=tmp_path / "cwd",
                env={**variables, **more},
                timeout=30,
            )
            return json.loads(done.stdout)

        assert ask(XDG_CONFIG_HOME=str(tmp_path / "config")) == [5, [str(chosen)]]
        assert ask(XDG_CONFIG_HOME="config") == [3, [str(decoys[0])]]
        assert ask() == [3, [str(decoys[0])]]

    @pytest.mark.requirement("A-config-09")
    @pytest.mark.parametrize(
        ("content", "key"),
        [
            ('coordination_directory = "/x"', "coordination_directory"),
            ("frame_bytes = 5", "frame_bytes"),
            ("[limit]\nframe_bytes = 5", "limit"),
            ("[limits]\nframe_byte = 5", "limits.frame_byte"),
            ("[limits]\n_replace = 5", "limits._replace"),
            ("[limits]\ncount = 5", "limits.count"),
            ("[limits.frame_bytes]\nx = 5", "limits.frame_bytes"),
            ('"\\u001b[31m" = 5', "\\x1b[31m"),
            ("[limits]\n[other]\n", "other"),
        ],
    )
    def test_an_unknown_key_is_an_error_that_names_it_and_the_file(self, environ, write, content, key):
        file = write(content)
        with pytest.raises(InvalidParams) as refused:
            load(environ)

        assert refused.value.message.startswith(f"{file}: ")
        assert f"'{key}'" in refused.value.message

    @pytest.mark.parametrize(
        "value",
        [
            "0",
            "-1",
            "true",
            "false",
            "1.0",
            "1e3",
            "inf",
            "nan",
            '"5"',
            "[5]",
            "{}",
            "1979-05-27",
            "2147483648",
            "9" * 4_000,
        ],
    )
    @pytest.mark.requirement("A-config-08")
    def test_a_limit_that_is_no_positive_whole_number_is_an_error_that_names_it(self, environ, write, value):
        for key in Limits._fields:
            file = write(f"[limits]\n{key} = {value}\n")
            with pytest.raises(InvalidParams) as refused:
                load(environ)

            assert refused.value.message.startswith(f"{file}: 'limits.{key}'")

    @pytest.mark.requirement("A-config-04")
    @pytest.mark.parametrize("content", ["", "[limits]\n", 'idle = "auto"'])
    def test_mail_wakes_an_idle_session_unless_the_person_says_otherwise(self, environ, write, content):
        write(content)

        assert load(environ).idle == IDLE_AUTO == "auto"

    def test_mail_may_start_no_turn(self, environ, write):
        write('idle = "notify"\n[limits]\nwakes_per_hour = 3\n')
        settings = load(environ)

        assert settings.idle == IDLE_NOTIFY == "notify"
        assert settings.limits == DEFAULT_LIMITS._replace(wakes_per_hour=3)

    @pytest.mark.parametrize(
        "value",
        [
            '"Auto"',
            '"NOTIFY"',
            '"never"',
            '"off"',
            '""',
            '" auto"',
            "true",
            "false",
            "0",
            "1.0",
            '["auto"]',
            "{}",
        ],
    )
    def test_any_other_way_with_an_idle_session_is_an_error_that_names_the_two(self, environ, write, value):
        file = write(f"idle = {value}\n")
        with pytest.raises(InvalidParams) as refused:
            load(environ)

        assert refused.value.message == f"{file}: 'idle' is neither 'auto' nor 'notify'"

    @pytest.mark.requirement("A-config-09")
    def test_the_way_with_an_idle_session_is_no_limit(self, environ, write):
        write('[limits]\nidle = "auto"\n')
        with pytest.raises(InvalidParams, match=r"'limits.idle'"):
            load(environ)

    def test_the_other_settings_have_their_defaults_and_can_be_chosen(self, environ, write):
        write("")
        assert load(environ)[3:] == ("auto", True, "machine", None, "deliver")

        write('enabled = false\nscope = "workspace"\nalias = "re_Viewer-2"\non_restart = "review"\n')
        assert load(environ)[3:] == ("auto", False, "workspace", "re_Viewer-2", "review")

    @pytest.mark.parametrize(
        ("content", "wrong"),
        [
            ("enabled = 1", "'enabled' is neither true nor false"),
            ('enabled = "true"', "'enabled' is neither true nor false"),
            ("enabled = []", "'enabled' is neither true nor false"),
            ('scope = "world"', "'scope' is none of 'machine', 'repository' and 'workspace'"),
            ("scope = true", "'scope' is none of 'machine', 'repository' and 'workspace'"),
            ('scope = ["machine"]', "'scope' is none of 'machine', 'repository' and 'workspace'"),
            ('on_restart = "Review"', "'on_restart' is neither 'deliver' nor 'review'"),
            ("on_restart = false", "'on_restart' is neither 'deliver' nor 'review'"),
        ],
    )
    def test_any_other_value_of_them_is_an_error_that_says_what_it_may_be(
        self, environ, write, content, wrong
    ):
        file = write(content)
        with pytest.raises(InvalidParams) as refused:
            load(environ)

        assert refused.value.message == f"{file}: {wrong}"

    @pytest.mark.requirement("A-ident-07")
    @pytest.mark.parametrize("alias", ["a", "Z", "x" * 64, "a-b_c9", "b--"])
    def test_an_alias_is_a_letter_and_what_may_stand_behind_it(self, environ, write, alias):
        write(f'alias = "{alias}"')

        assert load(environ).alias == alias

    @pytest.mark.requirement("A-ident-07")
    @pytest.mark.parametrize(
        ("content", "shown"),
        [
            ('""', "''"),
            ('"x' + "x" * 64 + '"', "'" + "x" * 65 + "'"),
            ('"9a"', "'9a'"),
            ('"-a"', "'-a'"),
            ('"a b"', "'a b'"),
            ('"a.b"', "'a.b'"),
            ('"\u00e4"', "'\u00e4'"),
            ('"a\\n"', "'a\\n'"),
            ('"\\u001b[31m"', "'\\x1b[31m'"),
            ("7", "'7'"),
            ("true", "'True'"),
            ('["a"]', "\"['a']\""),
        ],
    )
    def test_any_other_alias_is_refused_and_shown(self, environ, write, content, shown):
        file = write(f"alias = {content}")
        with pytest.raises(InvalidParams) as refused:
            load(environ)

        assert refused.value.message.startswith(f"{file}: 'alias' is {shown}; ")

    @pytest.mark.parametrize("content", ["limits = 5", "limits = []", "[[limits]]\nframe_bytes = 5"])
    def test_limits_that_are_no_table_are_refused(self, environ, write, content):
        file = write(content)
        with pytest.raises(InvalidParams, match=f"{file}: 'limits' is no table"):
            load(environ)

    def test_what_is_no_toml_is_told_with_its_line(self, environ, write):
        file = write("[limits]\nframe_bytes = 5\nnonsense\n")
        with pytest.raises(InvalidParams) as refused:
            load(environ)

        assert refused.value.message.startswith(f"{file}: ")
        assert "line 3" in refused.value.message

    @pytest.mark.parametrize(
        "content",
        [
            b"\xff\xfe",
            b"# caf\xe9\n",
            b"a = " + b"[" * 30_000,
            b"a = " + b"9" * 10_000,
            b"a = 2024-13-45",
            b"\x00",
            "\ufeff[limits]\n".encode(),
            b"[limits]\nframe_bytes = 1\nframe_bytes = 2\n",
        ],
    )
    def test_damage_of_any_kind_is_an_error_that_names_the_file(self, environ, write, content):
        file = write(content)
        with pytest.raises(InvalidParams, match=f"^{file}: "):
            load(environ)

    def test_a_file_over_its_bound_is_refused(self, environ, write):
        write(b"#" * CONFIG_BYTES)
        assert load(environ).limits == DEFAULT_LIMITS

        file = write(b"#" * (CONFIG_BYTES + 1))
        with pytest.raises(InvalidParams, match=f"{file}.*{CONFIG_BYTES} bytes"):
            load(environ)

    def test_a_link_to_the_settings_is_followed(self, environ, write, tmp_path):
        file = write("[limits]\nconnections = 9\n")
        os.rename(file, tmp_path / "dotfiles.toml")
        os.symlink(tmp_path / "dotfiles.toml", file)

        assert load(environ).limits.connections == 9

    @pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("config.toml", path)])
    def test_what_is_no_file_is_refused_without_blocking(self, environ, write, make):
        file = write("")
        os.unlink(file)
        make(file)

        with pytest.raises(InvalidParams, match=f"^{file}: "):
            load(environ)

    def test_a_file_where_the_folder_should_be_holds_no_settings(self, environ, tmp_path):
        (tmp_path / "config").write_bytes(b"")

        assert load(environ).limits == DEFAULT_LIMITS


class TestHerdrPlace:
    IN_PANE = {  # noqa: RUF012 - no test changes it
        "HERDR_ENV": "1",
        "HERDR_SOCKET_PATH": "/run/herdr.sock",
        "HERDR_PANE_ID": "p1",
        "HERDR_TAB_ID": "t1",
        "HERDR_WORKSPACE_ID": "w1",
    }

    def test_a_managed_pane_is_known_by_its_socket_and_ids(self):
        assert herdr_place(self.IN_PANE) == Place("/run/herdr.sock", "p1", "t1", "w1")

    def test_a_popup_has_no_pane(self):
        without = {key: value for key, value in self.IN_PANE.items() if key != "HERDR_PANE_ID"}

        assert herdr_place(without) == Place("/run/herdr.sock", None, "t1", "w1")
        assert herdr_place({**self.IN_PANE, "HERDR_PANE_ID": ""}).pane_id is None

    @pytest.mark.parametrize(
        "change",
        [
            {"HERDR_ENV": "0"},
            {"HERDR_ENV": ""},
            {"HERDR_ENV": "true"},
            {"HERDR_SOCKET_PATH": ""},
            {"HERDR_SOCKET_PATH": "herdr.sock"},
            {"HERDR_SOCKET_PATH": "none"},
        ],
    )
    def test_anything_less_is_nowhere_and_carries_no_ids(self, change):
        assert herdr_place({**self.IN_PANE, **change}) == Place("none", None, None, None)

    def test_an_empty_environment_is_nowhere(self):
        assert herdr_place({}) == Place("none")


class TestEnvironment:
    def test_it_is_what_this_process_has_and_does_not_follow_later_changes(self, monkeypatch):
        monkeypatch.setenv("HERD_HOME", "/before")
        found = environment()
        monkeypatch.setenv("HERD_HOME", "/after")

        assert found["HERD_HOME"] == "/before"

    def test_a_child_gets_what_is_listed_and_nothing_of_any_host(self):
        allowed = {
            "PATH": "/bin",
            "HOME": "/home/u",
            "USER": "u",
            "LOGNAME": "u",
            "TMPDIR": "/t",
            "TZ": "UTC",
            "LANG": "C",
            "LC_ALL": "C",
            "LC_CTYPE": "C",
        }
        hosts = dict.fromkeys(
            [
                "CLAUDECODE",
                "CLAUDE_CODE_SESSION_ID",
                "CODEX_THREAD_ID",
                "CODEX_HOME",
                "PI_SESSION",
                "OPENCODE",
                "HERDR_PANE_ID",
                "HERDR_SOCKET_PATH",
                "HERD_HOME",
                "HERD_TOKEN",
                "ANTHROPIC_API_KEY",
                "TMUX",
                "OPENAI_API_KEY",
                "SSH_AUTH_SOCK",
                "LD_PRELOAD",
                "PYTHONPATH",
                "GIT_DIR",
                "IROH_SECRET",
                "path",
            ],
            "secret",
        )

        assert child_environment({**hosts, **allowed}) == allowed

    def test_an_absent_variable_stays_absent(self):
        assert child_environment({}) == {}
        assert child_environment({"PATH": ""}) == {"PATH": ""}
