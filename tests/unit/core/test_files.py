import json
import os
import socket
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from herd.core.errors import RecoveryRequired, UnsafeEndpoint
from herd.core.files import (
    checked_folder,
    create_private,
    private_folder,
    read_private,
    read_private_at,
    replace_private,
)

LIMIT = 8_192
STRANGER = 12_345


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


@contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def folder_descriptor(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def run_python(code, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        check=False,
        capture_output=True,
        timeout=50,
        **options,
    )


def file_of(path, data=b"x", bits=0o600):
    path.write_bytes(data)
    path.chmod(bits)
    return str(path)


class TestPrivateFolder:
    @pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o177, 0o777])
    def test_it_and_its_missing_parents_are_ours_alone_under_any_umask(self, tmp_path, mask):
        path = tmp_path / "a" / "b" / "c"
        with umask(mask):
            assert private_folder(str(path)) == str(path)

        for folder in (path, path.parent, path.parent.parent):
            assert (mode(folder), folder.stat().st_uid) == (0o700, os.geteuid())

    def test_a_set_group_id_parent_adds_nothing(self, tmp_path):
        (tmp_path / "shared").mkdir()
        (tmp_path / "shared").chmod(0o2700)

        assert mode(private_folder(str(tmp_path / "shared" / "a" / "b"))) == 0o700

    def test_asking_again_changes_nothing(self, tmp_path):
        path = private_folder(str(tmp_path / "a"))
        before = os.lstat(path)

        assert private_folder(path) == path
        assert os.lstat(path).st_ctime_ns == before.st_ctime_ns

    def test_a_final_slash_names_the_same_folder(self, tmp_path):
        assert private_folder(f"{tmp_path}/a//") == str(tmp_path / "a")

    def test_existing_parents_keep_their_modes(self, tmp_path):
        (tmp_path / "public").mkdir()
        (tmp_path / "public").chmod(0o755)
        private_folder(str(tmp_path / "public" / "a"))

        assert mode(tmp_path / "public") == 0o755

    def test_linked_ancestors_are_resolved(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to("real")

        assert private_folder(str(tmp_path / "link" / "a" / "b")) == str(tmp_path / "real" / "a" / "b")

    @pytest.mark.parametrize("path", ["relative", "", "/", "./a", "~/a", "/tmp/.", "/tmp/..", "/tmp/a\0b"])
    def test_a_path_that_is_not_absolute_or_names_nothing_is_refused(self, path):
        with pytest.raises(UnsafeEndpoint) as refused:
            private_folder(path)
        assert repr(path) in refused.value.message

    @pytest.mark.parametrize("slashes", ["", "/", "///"])
    def test_a_link_is_refused_and_its_destination_stays_untouched(self, tmp_path, slashes):
        (tmp_path / "real").mkdir()
        (tmp_path / "real").chmod(0o755)
        (tmp_path / "link").symlink_to("real")
        before = os.lstat(tmp_path / "real")

        with pytest.raises(UnsafeEndpoint, match=r"link.*symlink"):
            private_folder(f"{tmp_path}/link{slashes}")

        assert os.lstat(tmp_path / "real").st_ctime_ns == before.st_ctime_ns
        assert os.listdir(tmp_path / "real") == []

    def test_a_link_to_nothing_is_refused_and_makes_nothing(self, tmp_path):
        (tmp_path / "link").symlink_to("absent")

        with pytest.raises(UnsafeEndpoint, match="symlink"):
            private_folder(str(tmp_path / "link"))
        assert not (tmp_path / "absent").exists()

    @pytest.mark.parametrize("bits", [0o755, 0o750, 0o770, 0o701, 0o600, 0o500, 0o1700, 0o2700])
    def test_another_mode_is_refused_and_not_mended(self, tmp_path, bits):
        (tmp_path / "a").mkdir()
        (tmp_path / "a").chmod(bits)

        with pytest.raises(UnsafeEndpoint, match=f"{bits:04o}, not 0700") as refused:
            private_folder(str(tmp_path / "a"))
        assert str(tmp_path / "a") in refused.value.message
        assert mode(tmp_path / "a") == bits

    @pytest.mark.parametrize("make", [lambda path: path.write_bytes(b""), os.mkfifo])
    def test_what_is_no_folder_is_refused(self, tmp_path, make):
        make(tmp_path / "a")

        with pytest.raises(UnsafeEndpoint, match="no folder"):
            private_folder(str(tmp_path / "a"))
        with pytest.raises(UnsafeEndpoint, match="Not a directory"):
            private_folder(str(tmp_path / "a" / "b"))

    def test_a_ring_of_links_above_it_is_refused(self, tmp_path):
        (tmp_path / "ring").symlink_to("ring")

        with pytest.raises(UnsafeEndpoint, match="cannot be made"):
            private_folder(str(tmp_path / "ring" / "a"))

    @pytest.mark.machine
    def test_somebody_elses_folder_is_refused(self, tmp_path):
        (tmp_path / "a").mkdir(mode=0o700)
        os.chown(tmp_path / "a", STRANGER, -1)

        with pytest.raises(UnsafeEndpoint, match=f"user {STRANGER}"):
            private_folder(str(tmp_path / "a"))

    def test_many_who_make_it_at_once_all_get_it(self, tmp_path):
        together, path, made = threading.Barrier(16), str(tmp_path / "a" / "b" / "c"), []

        def make():
            together.wait(10)
            made.append(private_folder(path))

        threads = [threading.Thread(target=make) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)

        assert made == [path] * 16


class TestCheckedFolder:
    def test_it_gives_the_status_of_a_private_folder(self, tmp_path):
        path = private_folder(str(tmp_path / "a"))

        assert os.path.samestat(checked_folder(path), os.lstat(path))

    def test_it_makes_nothing(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            checked_folder(str(tmp_path / "a"))
        assert os.listdir(tmp_path) == []

    def test_it_refuses_what_private_folder_refuses(self, tmp_path):
        (tmp_path / "open").mkdir(mode=0o755)
        (tmp_path / "link").symlink_to("open")
        (tmp_path / "file").touch()

        for path in ("relative", f"{tmp_path}/open", f"{tmp_path}/link/", f"{tmp_path}/file"):
            with pytest.raises(UnsafeEndpoint):
                checked_folder(path)


class TestReadPrivate:
    def test_it_gives_the_whole_content(self, tmp_path):
        assert read_private(file_of(tmp_path / "a", bytes(range(256))), 256) == bytes(range(256))
        assert read_private(file_of(tmp_path / "b", b""), 1) == b""

    def test_a_stricter_mode_is_private_too(self, tmp_path):
        assert read_private(file_of(tmp_path / "a", b"x", 0o400), 1) == b"x"

    def test_an_absent_file_is_none_and_so_is_one_in_an_absent_folder(self, tmp_path):
        assert read_private(str(tmp_path / "a"), LIMIT) is None
        assert read_private(str(tmp_path / "b" / "a"), LIMIT) is None

    def test_one_byte_more_than_the_limit_is_told_and_not_cut(self, tmp_path):
        path = file_of(tmp_path / "a", b"x" * 101)

        assert read_private(path, 101) == b"x" * 101
        with pytest.raises(RecoveryRequired, match=f"{path}.*100 bytes"):
            read_private(path, 100)

    def test_a_huge_file_is_refused_before_it_is_read(self, tmp_path):
        path = file_of(tmp_path / "a")
        os.truncate(path, 1 << 40)

        with pytest.raises(RecoveryRequired):
            read_private(path, LIMIT)

    @pytest.mark.parametrize("bits", [0o666, 0o644, 0o640, 0o604, 0o620, 0o602, 0o610])
    def test_a_file_open_to_others_is_refused(self, tmp_path, bits):
        path = file_of(tmp_path / "a", b"secret", bits)

        with pytest.raises(UnsafeEndpoint, match=f"{path}.*{bits:04o}"):
            read_private(path, LIMIT)
        assert mode(path) == bits

    def test_a_link_is_refused_wherever_it_leads(self, tmp_path):
        file_of(tmp_path / "elsewhere", b"secret")
        for number, destination in enumerate(("elsewhere", "absent", "/dev/zero", "2", ".")):
            (tmp_path / str(number)).symlink_to(destination)

            with pytest.raises(UnsafeEndpoint, match=str(tmp_path / str(number))):
                read_private(str(tmp_path / str(number)), LIMIT)

    def test_what_is_no_regular_file_is_refused_without_blocking(self, tmp_path):
        os.mkfifo(tmp_path / "fifo", 0o600)
        (tmp_path / "folder").mkdir(mode=0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "socket"))
            for name in ("fifo", "folder", "socket"):
                with pytest.raises(UnsafeEndpoint, match=name):
                    read_private(str(tmp_path / name), LIMIT)

    def test_a_device_is_refused(self):
        with pytest.raises(UnsafeEndpoint):
            read_private("/dev/zero", LIMIT)

    def test_a_file_where_a_folder_should_be_is_refused(self, tmp_path):
        file_of(tmp_path / "a")

        with pytest.raises(UnsafeEndpoint, match="Not a directory"):
            read_private(str(tmp_path / "a" / "b"), LIMIT)

    def test_a_second_name_elsewhere_is_refused(self, tmp_path):
        path = file_of(tmp_path / "a", b"secret")
        os.link(path, tmp_path / "b")

        with pytest.raises(UnsafeEndpoint, match="hard linked"):
            read_private(path, LIMIT)

    @pytest.mark.machine
    def test_somebody_elses_file_is_refused(self, tmp_path):
        path = file_of(tmp_path / "a")
        os.chown(path, STRANGER, -1)

        with pytest.raises(UnsafeEndpoint, match=f"user {STRANGER}"):
            read_private(path, LIMIT)

    def test_no_descriptor_stays_open_whatever_the_outcome(self, tmp_path):
        open_before = sorted(os.listdir("/proc/self/fd"))
        self.test_what_is_no_regular_file_is_refused_without_blocking(tmp_path)
        self.test_a_second_name_elsewhere_is_refused(tmp_path)
        read_private(file_of(tmp_path / "c"), LIMIT)

        assert sorted(os.listdir("/proc/self/fd")) == open_before


class TestReadPrivateAt:
    def test_it_gives_the_content_and_the_status_of_that_very_file(self, tmp_path):
        path = file_of(tmp_path / "a", b"content")
        with folder_descriptor(tmp_path) as fd:
            data, found = read_private_at(fd, "a", LIMIT) or (b"", None)

        assert data == b"content"
        assert found is not None
        assert os.path.samestat(found, os.stat(path))

    def test_it_follows_the_folder_and_not_its_name(self, tmp_path):
        folder = tmp_path / "folder"
        folder.mkdir()
        file_of(folder / "a", b"ours")
        with folder_descriptor(folder) as fd:
            folder.rename(tmp_path / "moved")
            folder.mkdir()
            file_of(folder / "a", b"theirs")

            assert read_private_at(fd, "b", LIMIT) is None
            assert (read_private_at(fd, "a", LIMIT) or [None])[0] == b"ours"

    @pytest.mark.parametrize("name", ["", ".", "..", "../a", "/etc/passwd", "a/b", "a/"])
    def test_only_a_name_is_taken(self, tmp_path, name):
        with folder_descriptor(tmp_path) as fd, pytest.raises(UnsafeEndpoint, match="no name"):
            read_private_at(fd, name, LIMIT)

    def test_neighbours_of_every_kind_are_told_apart_in_one_scan(self, tmp_path):
        file_of(tmp_path / "good", b"{}")
        file_of(tmp_path / "large", b"x" * 5_000_000)
        file_of(tmp_path / "open", b"{}", 0o666)
        (tmp_path / "link").symlink_to("/etc/passwd")
        os.mkfifo(tmp_path / "fifo", 0o600)
        outcomes = {}
        with folder_descriptor(tmp_path) as fd:
            for name in sorted(os.listdir(fd)):
                try:
                    outcomes[name] = (read_private_at(fd, name, LIMIT) or [None])[0]
                except (UnsafeEndpoint, RecoveryRequired) as refused:
                    outcomes[name] = refused.code

        assert outcomes == {
            "fifo": "UNSAFE_ENDPOINT",
            "good": b"{}",
            "large": "RECOVERY_REQUIRED",
            "link": "UNSAFE_ENDPOINT",
            "open": "UNSAFE_ENDPOINT",
        }


WRITER = """
import itertools, json, select, sys
from herd.core.files import replace_private
path, count, durable = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "durable"
for number in itertools.count():
    if number >= count and select.select([sys.stdin], [], [], 0)[0]:  # at least count, until told
        break
    record = {"first": number, "padding": "x" * (number * 37 % 8000), "last": number}
    replace_private(path, json.dumps(record).encode(), durable=durable)
"""

KILLED_AT = """
import os, sys
from herd.core.files import replace_private
def step(name):
    if name == sys.argv[2]:
        os._exit(42)
replace_private(sys.argv[1], b"new" * 1000, step=step)
"""


class TestReplacePrivate:
    @pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
    @pytest.mark.parametrize("durable", [True, False])
    def test_the_file_is_private_under_any_umask(self, tmp_path, mask, durable):
        path = str(tmp_path / "a")
        with umask(mask):
            for data in (b"first", b"", b"second" * 100_000):
                replace_private(path, data, durable=durable)
                assert (mode(path), os.stat(path).st_uid) == (0o600, os.geteuid())
                assert read_private(path, 1_000_000) == data

        assert os.listdir(tmp_path) == ["a"]

    def test_the_steps_come_in_their_order(self, tmp_path):
        durable, fleeting = [], []
        replace_private(str(tmp_path / "a"), b"x", step=durable.append)
        replace_private(str(tmp_path / "a"), b"x", durable=False, step=fleeting.append)

        assert durable == ["written", "synced", "renamed", "folder_synced"]
        assert fleeting == ["written", "renamed"]

    def test_the_old_content_is_there_until_the_new_one_is(self, tmp_path):
        path, seen = str(tmp_path / "a"), []
        replace_private(path, b"old")
        replace_private(path, b"new", step=lambda name: seen.append((name, read_private(path, LIMIT))))

        assert [data for _, data in seen] == [b"old", b"old", b"new", b"new"]

    def test_the_temporary_file_is_private_while_it_lives(self, tmp_path):
        found = []

        def look(name):
            if name == "written":
                found.extend((other, mode(tmp_path / other)) for other in os.listdir(tmp_path))

        with umask(0):
            replace_private(str(tmp_path / "a"), b"secret", step=look)

        [(name, bits)] = found
        assert name.startswith(f".a.{os.getpid()}.")
        assert name.endswith(".tmp")
        assert bits == 0o600

    def test_a_link_is_replaced_and_its_destination_stays_untouched(self, tmp_path):
        file_of(tmp_path / "elsewhere", b"theirs")
        (tmp_path / "a").symlink_to("elsewhere")
        replace_private(str(tmp_path / "a"), b"ours")

        assert (tmp_path / "elsewhere").read_bytes() == b"theirs"
        assert read_private(str(tmp_path / "a"), LIMIT) == b"ours"

    def test_a_file_open_to_others_is_private_afterwards(self, tmp_path):
        path = file_of(tmp_path / "a", b"old", 0o666)
        replace_private(path, b"new")

        assert mode(path) == 0o600

    @pytest.mark.parametrize("failing", ["written", "synced", "renamed", "folder_synced"])
    @pytest.mark.parametrize("fault", [OSError, KeyboardInterrupt])
    def test_a_failure_leaves_old_or_new_and_nothing_else(self, tmp_path, failing, fault):
        path = str(tmp_path / "a")
        replace_private(path, b"old")

        def step(name):
            if name == failing:
                raise fault

        with pytest.raises(fault):
            replace_private(path, b"new", step=step)

        after = b"old" if failing in ("written", "synced") else b"new"
        assert read_private(path, LIMIT) == after
        assert os.listdir(tmp_path) == ["a"]

    def test_a_disk_that_takes_no_more_leaves_the_old_content(self, tmp_path):
        path = str(tmp_path / "a")
        replace_private(path, b"old")
        code = """
import resource, signal, sys
from herd.core.files import replace_private
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    replace_private(sys.argv[1], b"new" * 100_000)
except OSError as error:
    sys.exit(error.errno)
"""
        assert run_python(code, path).returncode == 27  # EFBIG, after a short write
        assert read_private(path, LIMIT) == b"old"
        assert os.listdir(tmp_path) == ["a"]

    def test_a_missing_folder_or_a_folder_in_its_place_is_an_error(self, tmp_path):
        (tmp_path / "taken").mkdir()
        for path in (tmp_path / "absent" / "a", tmp_path / "taken"):
            with pytest.raises(OSError, match="directory"):
                replace_private(str(path), b"x")

        assert os.listdir(tmp_path) == ["taken"]

    @pytest.mark.requirement("A-storage-05")
    @pytest.mark.parametrize("killed_at", ["written", "synced", "renamed", "folder_synced"])
    @pytest.mark.parametrize("old", [b"old", None])
    def test_a_kill_at_any_step_leaves_the_old_or_the_new_content_whole(self, tmp_path, killed_at, old):
        path = str(tmp_path / "a")
        if old is not None:
            replace_private(path, old)

        assert run_python(KILLED_AT, path, killed_at).returncode == 42

        after = old if killed_at in ("written", "synced") else b"new" * 1000
        assert read_private(path, LIMIT) == after
        # What the killed process left behind stands in nobody's way.
        replace_private(path, b"next")
        assert read_private(path, LIMIT) == b"next"

    @pytest.mark.requirement("A-presence-04")
    def test_a_reader_that_loops_during_a_thousand_replacements_never_sees_a_torn_file(self, tmp_path):
        path, seen = str(tmp_path / "a"), set()
        command = [sys.executable, "-c", WRITER, path, "1000", "fleeting"]
        with (
            subprocess.Popen(command, stdin=subprocess.PIPE) as writer,
            folder_descriptor(tmp_path) as fd,
        ):
            assert writer.stdin is not None
            while writer.poll() is None:
                if len(seen) > 20:  # they do overlap
                    writer.stdin.close()
                for data in (read_private(path, LIMIT), (read_private_at(fd, "a", LIMIT) or [None])[0]):
                    if data is not None:
                        record = json.loads(data)
                        assert record["first"] == record["last"]
                        assert len(record["padding"]) == record["first"] * 37 % 8000
                        seen.add(record["first"])

        assert writer.returncode == 0
        assert read_private(path, LIMIT) is not None

    def test_writers_at_once_leave_one_whole_content(self, tmp_path):
        path = str(tmp_path / "a")
        command = [sys.executable, "-c", WRITER, path, "50", "durable"]
        writers = [subprocess.Popen(command, stdin=subprocess.DEVNULL) for _ in range(4)]

        assert [writer.wait(50) for writer in writers] == [0] * 4
        assert json.loads(read_private(path, LIMIT) or b"")["last"] == 49
        assert os.listdir(tmp_path) == ["a"]


class TestCreatePrivate:
    @pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
    def test_the_first_creates_and_no_other_overwrites(self, tmp_path, mask):
        path = str(tmp_path / "a")
        with umask(mask):
            assert create_private(path, b"first")
            assert not create_private(path, b"second")

        assert read_private(path, LIMIT) == b"first"
        assert (mode(path), os.stat(path).st_nlink) == (0o600, 1)
        assert os.listdir(tmp_path) == ["a"]

    def test_whatever_has_the_name_stays_as_it_was(self, tmp_path):
        (tmp_path / "folder").mkdir()
        (tmp_path / "dangling").symlink_to("absent")
        os.mkfifo(tmp_path / "fifo")
        for name in ("folder", "dangling", "fifo"):
            assert not create_private(str(tmp_path / name), b"x")

        assert sorted(os.listdir(tmp_path)) == ["dangling", "fifo", "folder"]
        assert os.readlink(tmp_path / "dangling") == "absent"

    def test_a_missing_folder_is_an_error(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            create_private(str(tmp_path / "absent" / "a"), b"x")

    def test_of_many_at_once_exactly_one_creates_and_every_reader_gets_its_content_whole(self, tmp_path):
        code = """
import sys
from herd.core.files import create_private, read_private
sys.stdin.read(1)
mine = sys.argv[2].encode() * 1000
created = create_private(sys.argv[1], mine)
found = read_private(sys.argv[1], 100_000)
assert found == found[:1] * 1000
assert not created or found == mine
print(int(created))
"""
        for turn in range(3):
            path = tmp_path / str(turn)
            children = [
                subprocess.Popen(
                    [sys.executable, "-c", code, str(path), letter],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    encoding="utf-8",
                )
                for letter in "abcdefgh"
            ]
            answers = [child.communicate("x", timeout=50)[0].strip() for child in children]

            assert sorted(answers) == ["0"] * 7 + ["1"]

    def test_a_reader_never_refuses_a_file_that_is_being_created(self, tmp_path):
        code = """
import sys
from herd.core.files import create_private
for number in range(500):
    create_private(f"{sys.argv[1]}/{number}", b"whole")
"""
        with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) as creator:
            for number in range(500):
                data = None
                while data is None and creator.poll() is None:
                    data = read_private(f"{tmp_path}/{number}", LIMIT)
                # It may have ended between the read and the poll.
                assert (data or read_private(f"{tmp_path}/{number}", LIMIT)) == b"whole"

        assert creator.returncode == 0

    def test_a_file_with_its_temporary_name_still_beside_it_is_readable(self, tmp_path):
        # What a kill between link(2) and unlink(2) leaves.
        path = file_of(tmp_path / "master.key", b"k" * 32)
        os.link(path, tmp_path / ".master.key.4711.0123456789abcdef.tmp")

        assert read_private(path, 32) == b"k" * 32
        with folder_descriptor(tmp_path) as fd:
            assert (read_private_at(fd, "master.key", 32) or [None])[0] == b"k" * 32
        assert not create_private(path, b"other")

    def test_a_temporary_name_does_not_excuse_a_third_one_nor_another_file(self, tmp_path):
        path = file_of(tmp_path / "a")
        os.link(path, tmp_path / ".a.1.00.tmp")
        os.link(path, tmp_path / "elsewhere")
        with pytest.raises(UnsafeEndpoint, match="hard linked"):
            read_private(path, LIMIT)

        (tmp_path / ".a.1.00.tmp").unlink()
        file_of(tmp_path / ".a.1.00.tmp", b"unrelated")
        with pytest.raises(UnsafeEndpoint, match="hard linked"):
            read_private(path, LIMIT)
