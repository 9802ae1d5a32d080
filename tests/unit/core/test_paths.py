import hashlib
import os
import re
import stat

import pytest

from herd.core.config import load
from herd.core.errors import InvalidParams, UnsafeEndpoint, UnsupportedPlatform
from herd.core.identity import SessionName
from herd.core.paths import Layout, machine_folder, machine_id, open_layout

KEY = SessionName("claude", "session-1").key
MACHINE = "4c4c4544004d3510805ac4c04f4a4d32"
FOLDERS = ("hooks", "peers", "locks", "run", "sessions")


@pytest.fixture
def data_root(tmp_path):
    return str(tmp_path / "herd")


class TestLayout:
    def test_every_name_lies_where_the_others_look_for_it(self):
        layout = Layout("/r")

        assert [layout.hooks, layout.peers, layout.locks, layout.run, layout.sessions] == [
            f"/r/{one}" for one in FOLDERS
        ]
        assert layout.record(KEY) == f"/r/peers/{KEY}.json"
        assert layout.session_lock(KEY) == f"/r/locks/{KEY}.lock"
        assert layout.mailbox_lock(KEY) == f"/r/locks/{KEY}.mailbox.lock"
        assert layout.authority_lock == "/r/locks/authority.lock"
        assert layout.authority_gate == "/r/locks/authority.gate"
        assert layout.authority_generation == "/r/locks/authority.generation"
        assert layout.session_folder(KEY) == f"/r/sessions/{KEY}"
        assert layout.session_file(KEY) == f"/r/sessions/{KEY}/session.json"
        assert layout.token(KEY) == f"/r/sessions/{KEY}/token"
        assert layout.mailbox(KEY) == f"/r/sessions/{KEY}/mailbox.sqlite3"

    def test_an_assignment_and_its_lock_are_named_by_three_hashes(self):
        layout, other = Layout("/r"), "0" * 64

        assert layout.assignments == "/r/assignments"
        assert layout.assignment(KEY, other, KEY) == f"/r/assignments/{KEY}/{other}/{KEY}.json"
        locks = {layout.assignment_lock(*one) for one in ((KEY, other, KEY), (other, KEY, KEY))}
        assert len(locks) == 2
        assert all(re.fullmatch(r"/r/locks/[0-9a-f]{64}\.assignment\.lock", lock) for lock in locks)
        for wrong in ((KEY, "..", KEY), ("", KEY, KEY), (KEY, KEY, KEY.upper())):
            with pytest.raises(InvalidParams):
                layout.assignment(*wrong)
            with pytest.raises(InvalidParams):
                layout.assignment_lock(*wrong)

    @pytest.mark.parametrize(
        "key", ["", "..", "../../etc/passwd", KEY.upper(), KEY[:-1], KEY + "\n", "/" + KEY[1:]]
    )
    @pytest.mark.parametrize("name", ["record", "session_lock", "mailbox_lock", "session_folder", "mailbox"])
    def test_what_is_no_session_key_names_no_path(self, key, name):
        with pytest.raises(InvalidParams, match="session key"):
            getattr(Layout("/r"), name)(key)


class TestOpenLayout:
    def test_all_folders_are_made_for_their_owner_alone(self, data_root):
        layout = open_layout(data_root, machine=MACHINE)

        assert layout.root == f"{data_root}/{machine_folder(MACHINE)}"
        assert sorted(os.listdir(layout.root)) == sorted(FOLDERS)
        for folder, _, files in os.walk(data_root):
            assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
            assert files == []

    def test_opening_again_gives_the_same_and_changes_nothing(self, data_root):
        first = open_layout(data_root, machine=MACHINE)
        before = [os.stat(folder).st_ctime_ns for folder, _, _ in os.walk(data_root)]

        assert open_layout(data_root, machine=MACHINE) == first
        assert [os.stat(folder).st_ctime_ns for folder, _, _ in os.walk(data_root)] == before

    def test_one_folder_has_one_path_whatever_links_lead_there(self, tmp_path, data_root):
        (tmp_path / "link").symlink_to(tmp_path)

        assert open_layout(f"{tmp_path}/link/herd/", machine=MACHINE) == open_layout(
            data_root, machine=MACHINE
        )

    @pytest.mark.requirement("A-storage-11")
    def test_two_machines_with_one_home_share_nothing(self, data_root):
        first, second = (open_layout(data_root, machine=machine) for machine in (MACHINE, MACHINE[::-1]))

        expected = hashlib.sha256(MACHINE.encode()).hexdigest()[:12]
        assert first.root == f"{data_root}/{expected}"
        assert sorted(os.listdir(data_root)) == sorted(os.path.basename(one.root) for one in (first, second))
        assert first.root != second.root
        for name in ("record", "session_lock", "mailbox_lock", "session_file", "token", "mailbox"):
            assert getattr(first, name)(KEY).startswith(first.root + "/")
            assert getattr(second, name)(KEY).startswith(second.root + "/")

    @pytest.mark.requirement("A-config-11")
    def test_the_data_root_alone_decides_who_shares_state(self, tmp_path, data_root):
        (tmp_path / "one" / "herd").mkdir(parents=True)
        (tmp_path / "one" / "herd" / "config.toml").write_text(
            'coordination_directory = "/x"', encoding="utf-8"
        )
        with pytest.raises(InvalidParams, match="coordination_directory"):
            load({"HERD_HOME": data_root, "HOME": "/a", "XDG_CONFIG_HOME": str(tmp_path / "one")})

        (tmp_path / "one" / "herd" / "config.toml").write_text(
            "[limits]\nconnections = 2\n", encoding="utf-8"
        )
        users = [
            load({"HERD_HOME": data_root, "HOME": "/a", "XDG_CONFIG_HOME": str(tmp_path / "one")}),
            load({"HERD_HOME": data_root, "HOME": "/b", "XDG_STATE_HOME": "/c", "XDG_CONFIG_HOME": "/d"}),
        ]
        apart = load({"HERD_HOME": f"{data_root}2", "HOME": "/a"})

        first, second = (open_layout(user.home, machine=MACHINE) for user in users)
        assert first == second
        assert not open_layout(apart.home, machine=MACHINE).root.startswith(data_root + "/")

    @pytest.mark.requirement("A-endpoint-06")
    @pytest.mark.parametrize("folder", ["", "machine", *FOLDERS])
    def test_each_folder_is_refused_where_it_is_a_link_or_open_to_others(self, tmp_path, data_root, folder):
        layout = open_layout(data_root, machine=MACHINE)
        path = {"": data_root, "machine": layout.root}.get(folder) or os.path.join(layout.root, folder)

        os.chmod(path, 0o750)
        with pytest.raises(UnsafeEndpoint) as refused:
            open_layout(data_root, machine=MACHINE)
        assert path in refused.value.message
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o750

        os.rename(path, tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", path)
        before = os.stat(tmp_path / "elsewhere")
        with pytest.raises(UnsafeEndpoint, match="symlink") as refused:
            open_layout(data_root, machine=MACHINE)
        assert path in refused.value.message
        assert os.stat(tmp_path / "elsewhere") == before

    @pytest.mark.requirement("A-endpoint-06")
    def test_linked_ancestors_are_resolved_first(self, tmp_path):
        (tmp_path / "volume" / "home").mkdir(parents=True)
        (tmp_path / "home").symlink_to("volume/home")
        (tmp_path / "volume" / "home").chmod(0o755)

        layout = open_layout(f"{tmp_path}/home/u/.local/state/herd", machine=MACHINE)
        assert layout.root.startswith(f"{tmp_path}/volume/home/u/.local/state/herd/")

    @pytest.mark.requirement("A-endpoint-06")
    @pytest.mark.parametrize("home", ["herd", "./herd", "~/herd", ""])
    def test_a_relative_data_root_is_refused(self, tmp_path, monkeypatch, home):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(UnsafeEndpoint, match="not absolute"):
            open_layout(home, machine=MACHINE)
        assert os.listdir(tmp_path) == []

    @pytest.mark.requirement("A-endpoint-06")
    @pytest.mark.machine
    @pytest.mark.parametrize("folder", ["", *FOLDERS])
    def test_each_folder_of_somebody_else_is_refused(self, data_root, folder):
        layout = open_layout(data_root, machine=MACHINE)
        path = os.path.join(layout.root, folder) if folder else data_root
        os.chown(path, 12_345, -1)

        with pytest.raises(UnsafeEndpoint, match="user 12345") as refused:
            open_layout(data_root, machine=MACHINE)
        assert path in refused.value.message

    @pytest.mark.requirement("A-storage-12")
    @pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "afs"])
    def test_a_data_root_without_local_locks_is_refused_before_anything_is_made(
        self, tmp_path, data_root, kind
    ):
        number = os.stat(tmp_path).st_dev
        table = tmp_path / "mountinfo"
        table.write_text(
            f"1 2 {os.major(number)}:{os.minor(number)} / / rw - {kind} s rw\n", encoding="utf-8"
        )

        with pytest.raises(UnsupportedPlatform) as refused:
            open_layout(data_root, machine=MACHINE, mountinfo=str(table))

        assert kind in refused.value.message
        assert "HERD_HOME" in refused.value.next_step
        assert not os.path.exists(data_root)

    def test_a_machines_folder_that_is_mounted_from_elsewhere_is_refused(self, tmp_path, data_root):
        layout = open_layout(data_root, machine=MACHINE)
        table = tmp_path / "mountinfo"
        table.write_text(
            f"1 2 0:998 / / rw - ext4 s rw\n1 2 0:999 / {layout.root} rw - nfs s rw\n", encoding="utf-8"
        )

        with pytest.raises(UnsupportedPlatform):
            open_layout(data_root, machine=MACHINE, mountinfo=str(table))

    @pytest.mark.requirement("A-errors-16")
    @pytest.mark.parametrize("platform", ["win32", "cygwin", "freebsd14", "sunos5", "emscripten", ""])
    def test_an_unproven_platform_is_refused_before_anything_is_made(self, data_root, platform):
        with pytest.raises(UnsupportedPlatform) as refused:
            open_layout(data_root, machine=MACHINE, platform=platform)

        assert refused.value.code == "UNSUPPORTED_PLATFORM"
        assert "Keep Herd disabled" in refused.value.next_step
        assert not os.path.exists(data_root)

    def test_macos_is_accepted(self, data_root):
        assert open_layout(data_root, machine=MACHINE, platform="darwin").root.startswith(data_root)

    def test_this_machines_own_id_is_used_where_none_is_given(self, data_root):
        assert os.path.basename(open_layout(data_root).root) == machine_folder(machine_id()[0])


class TestMachineId:
    def test_the_first_file_that_holds_one_counts(self, tmp_path):
        first, second = tmp_path / "a", tmp_path / "b"
        second.write_text("second\n", encoding="utf-8")
        assert machine_id((str(first), str(second))) == ("second", "machine-id")

        first.write_text(f"{MACHINE}\n", encoding="utf-8")
        assert machine_id((str(first), str(second))) == (MACHINE, "machine-id")

    @pytest.mark.parametrize("content", [b"", b"\n", b"  \n\t", b"uninitialized\n", b"\xff\xfe\x00"])
    def test_a_file_without_an_id_is_passed_over(self, tmp_path, content):
        (tmp_path / "a").write_bytes(content)
        (tmp_path / "b").write_text(MACHINE, encoding="utf-8")

        assert machine_id((str(tmp_path / "a"), str(tmp_path / "b"))) == (MACHINE, "machine-id")

    def test_without_an_id_the_host_name_serves_and_says_so(self, tmp_path):
        assert machine_id((str(tmp_path / "a"), str(tmp_path))) == (os.uname().nodename, "hostname")

    def test_the_folder_is_twelve_hex_digits_of_the_id_without_its_space(self):
        assert machine_folder(MACHINE) == hashlib.sha256(MACHINE.encode()).hexdigest()[:12]
        assert machine_folder(f" {MACHINE}\n") == machine_folder(MACHINE)
        assert len(machine_folder("höst\udce9")) == 12
