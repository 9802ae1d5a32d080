import os
import subprocess
import sys

import pytest

from herd.core.errors import UnsupportedPlatform
from herd.core.filesystems import filesystem_type, require_local_locks

REMOTE = ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "afs"]
LOCAL = ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuse", "fuse.gvfsd-fuse", "apfs"]


def device(path):
    number = os.stat(path).st_dev
    return f"{os.major(number)}:{os.minor(number)}"


@pytest.fixture
def table(tmp_path):
    def write(*lines):
        path = tmp_path / "mountinfo"
        path.write_bytes(b"".join(os.fsencode(line) + b"\n" for line in lines))
        return str(path)

    return write


def line(point, kind, numbers="0:999", options="rw,relatime shared:1"):
    return f"36 35 {numbers} / {point} {options} - {kind} source rw"


class TestFilesystemType:
    def test_the_device_number_decides_before_the_mount_point(self, tmp_path, table):
        mounts = table(
            line("/", "ext4"), line("/elsewhere", "xfs", device(tmp_path)), line(str(tmp_path), "nfs4")
        )

        assert filesystem_type(str(tmp_path), mounts) == "xfs"

    def test_the_longest_mount_point_decides_where_no_device_number_fits(self, tmp_path, table):
        mounts = table(
            line("/", "ext4"),
            line(str(tmp_path), "btrfs"),
            line(str(tmp_path.parent), "nfs4"),
            line("/opt", "xfs"),
        )

        assert filesystem_type(str(tmp_path), mounts) == "btrfs"
        assert filesystem_type(str(tmp_path.parent), mounts) == "nfs4"
        assert filesystem_type("/", mounts) == "ext4"

    def test_a_later_mount_covers_an_earlier_one_at_the_same_point(self, tmp_path, table):
        mounts = table(line(str(tmp_path), "ext4"), line(str(tmp_path), "nfs4"), line("/", "ext4"))

        assert filesystem_type(str(tmp_path), mounts) == "nfs4"

    def test_a_mount_point_that_only_begins_alike_does_not_count(self, tmp_path, table):
        (tmp_path / "home2").mkdir()
        mounts = table(line("/", "ext4"), line(f"{tmp_path}/home", "nfs4"))

        assert filesystem_type(f"{tmp_path}/home2", mounts) == "ext4"

    @pytest.mark.parametrize(
        ("name", "escaped"),
        [
            ("my home", r"my\040home"),
            ("tab\tand\nline", r"tab\011and\012line"),
            ("back\\slash", r"back\134slash"),
            ("a\\040b", r"a\134040b"),
            ("über 世界", "über\\040世界"),
            ("latin\udce9", "latin\udce9"),
        ],
    )
    def test_escapes_of_the_mount_table_are_read(self, tmp_path, table, name, escaped):
        (tmp_path / name).mkdir()
        mounts = table(line("/", "ext4"), line(f"{tmp_path}/{escaped}", "cifs"))

        assert filesystem_type(f"{tmp_path}/{name}", mounts) == "cifs"

    @pytest.mark.parametrize("options", ["rw", "rw master:1 propagate_from:2", "rw shared:1 unbindable x:1"])
    def test_any_number_of_optional_fields_is_skipped(self, tmp_path, table, options):
        assert filesystem_type(str(tmp_path), table(line("/", "9p", options=options))) == "9p"

    def test_what_does_not_exist_yet_lies_where_its_nearest_ancestor_lies(self, tmp_path, table):
        mounts = table(line("/", "ext4"), line(str(tmp_path), "nfs4"))

        assert filesystem_type(str(tmp_path / "a" / "b"), mounts) == "nfs4"

    def test_links_are_followed_to_where_the_files_would_lie(self, tmp_path, table):
        (tmp_path / "remote").mkdir()
        (tmp_path / "link").symlink_to("remote")
        mounts = table(line("/", "ext4"), line(f"{tmp_path}/remote", "nfs4"))

        assert filesystem_type(f"{tmp_path}/link/a", mounts) == "nfs4"

    def test_a_damaged_line_is_skipped(self, tmp_path, table):
        mounts = table("", "garbage", "1 2 - nfs4 x y", f"1 2 {device(tmp_path)} / / rw", line("/", "ext4"))

        assert filesystem_type(str(tmp_path), mounts) == "ext4"

    def test_without_a_mount_table_or_a_line_that_fits_the_type_is_unknown(self, tmp_path, table):
        assert filesystem_type(str(tmp_path), str(tmp_path / "absent")) is None
        assert filesystem_type(str(tmp_path), table(line("/somewhere/else", "nfs4"))) is None

    def test_the_kernels_own_table_is_read(self):
        assert filesystem_type("/proc/self") == "proc"
        assert filesystem_type("/sys/kernel") == "sysfs"
        assert filesystem_type("/") is not None

    @pytest.mark.machine
    def test_a_real_mount_at_a_strange_place_is_found(self, tmp_path):
        point = tmp_path / "a b\\c"
        point.mkdir()
        code = "import sys; from herd.core.filesystems import *; print(filesystem_type(sys.argv[1] + '/x'))"
        found = subprocess.run(
            [
                "unshare",
                "-m",
                "sh",
                "-c",
                'mount -t ramfs none "$1" && exec "$2" -c "$3" "$1"',
                "sh",
                str(point),
                sys.executable,
                code,
            ],
            check=True,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=30,
        )

        assert found.stdout == "ramfs\n"


class TestRequireLocalLocks:
    @pytest.mark.parametrize("kind", REMOTE)
    def test_a_file_system_without_local_locks_is_refused_with_what_to_set(self, tmp_path, table, kind):
        with pytest.raises(UnsupportedPlatform) as refused:
            require_local_locks(str(tmp_path / "herd"), table(line("/", kind, device(tmp_path))))

        assert kind in refused.value.message
        assert str(tmp_path / "herd") in refused.value.message
        assert "HERD_HOME" in refused.value.next_step

    @pytest.mark.parametrize("kind", LOCAL)
    def test_a_local_file_system_is_accepted(self, tmp_path, table, kind):
        require_local_locks(str(tmp_path), table(line("/", kind, device(tmp_path))))

    def test_an_unknown_type_is_accepted(self, tmp_path):
        require_local_locks(str(tmp_path), str(tmp_path / "absent"))
