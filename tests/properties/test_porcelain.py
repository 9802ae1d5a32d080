"""git's list of worktrees: what is written is read back, and what was spoilt is read as nothing else."""

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignments.worktrees.porcelain import Entry, Malformed, entries_of
from tests.fakes.checkouts import Checkouts

NO_NUL = st.binary(min_size=1, max_size=12).map(lambda raw: raw.replace(b"\0", b"\n"))
HEADS = st.sampled_from(["0" * 40, "a1" * 20, "9f" * 32])


@st.composite
def entries(draw, number: int) -> Entry:
    path = os.fsdecode(b"/" + draw(NO_NUL) + b"%d" % number)
    marks = {"locked": draw(st.booleans()), "prunable": draw(st.booleans())}
    kind = draw(st.sampled_from(["bare", "detached", "branch"]))
    if kind == "bare":
        return Entry(path, None, bare=True, **marks)
    if kind == "detached":
        return Entry(path, draw(HEADS), detached=True, **marks)
    return Entry(path, draw(HEADS), os.fsdecode(draw(NO_NUL)), **marks)


@st.composite
def lists(draw) -> tuple[Entry, ...]:
    return tuple(draw(entries(number)) for number in range(draw(st.integers(1, 4))))


def attributes_of(entry: Entry) -> list[bytes]:
    """Write an entry as git does."""
    lines = [b"worktree " + os.fsencode(entry.path)]
    lines += [b"bare"] if entry.bare else [b"HEAD " + str(entry.head).encode()]
    lines += [b"detached"] if entry.detached else []
    lines += [b"branch refs/heads/" + os.fsencode(entry.branch)] if entry.branch is not None else []
    lines += [b"locked while away"] if entry.locked else []
    lines += [b"prunable gitdir file points to non-existent location"] if entry.prunable else []
    return lines


def written(blocks: list[list[bytes]]) -> bytes:
    return b"".join(b"".join(line + b"\0" for line in block) + b"\0" for block in blocks)


def refused(answer: bytes) -> bool:
    try:
        entries_of(answer)
    except Malformed:
        return True
    return False


@given(lists())
def test_what_git_writes_is_read_back(listed):
    assert entries_of(written([attributes_of(one) for one in listed])) == listed


@given(lists(), st.data())
def test_a_list_that_is_cut_off_is_refused_unless_whole_entries_are_left(listed, data):
    answer = written([attributes_of(one) for one in listed])
    cut = data.draw(st.integers(0, len(answer) - 1))
    ends = {len(written([attributes_of(one) for one in listed[:count]])) for count in range(1, len(listed))}

    assert refused(answer[:cut]) is (cut not in ends)


@given(lists(), st.data())
def test_a_line_that_is_doubled_or_missing_is_refused(listed, data):
    blocks = [attributes_of(one) for one in listed]
    block = data.draw(st.sampled_from(blocks))
    line = data.draw(st.sampled_from(block))

    block.append(line)
    assert refused(written(blocks))
    block.remove(line)
    block.remove(line)
    said = line.partition(b" ")[0]
    assert refused(written(blocks)) is (said not in {b"locked", b"prunable"})


@given(lists())
def test_a_worktree_that_is_there_twice_is_refused(listed):
    blocks = [attributes_of(one) for one in listed]

    assert refused(written([*blocks, blocks[0]]))


@given(
    st.binary(max_size=80)
    | st.lists(st.sampled_from([b"\0", b"worktree /a", b"bare", b"HEAD "])).map(b"".join)
)
def test_any_bytes_are_read_or_refused(answer):
    try:
        read = entries_of(answer)
    except Malformed:
        return

    assert read
    assert all(one.path.startswith("/") for one in read)


WHOLE = [b"worktree /a", b"HEAD " + b"0" * 40, b"branch refs/heads/main"]


@pytest.mark.parametrize(
    "block",
    [
        [],
        [b"bare"],
        [b"worktree a", b"bare"],
        [b"worktree", b"bare"],
        [b"bare", b"worktree /a"],
        [b"worktree /a"],
        [b"worktree /a", b"HEAD " + b"0" * 40],
        [b"worktree /a", b"HEAD " + b"0" * 39, b"detached"],
        [b"worktree /a", b"HEAD " + b"G" * 40, b"detached"],
        [b"worktree /a", b"HEAD", b"detached"],
        [b"worktree /a", b"detached"],
        [b"worktree /a", b"bare", b"HEAD " + b"0" * 40],
        [b"worktree /a", b"bare", b"detached"],
        [b"worktree /a", b"bare yes"],
        [*WHOLE, b"detached"],
        [*WHOLE[:2], b"branch refs/tags/v1"],
        [*WHOLE[:2], b"branch refs/heads/"],
        [*WHOLE[:2], b"branch"],
        [*WHOLE, b"Locked"],
        [*WHOLE, b" locked"],
    ],
)
def test_an_entry_that_lacks_something_or_contradicts_itself_is_refused(block):
    assert refused(written([WHOLE, block]))


def test_an_attribute_of_a_later_git_is_let_through():
    assert entries_of(written([[*WHOLE, b"healthy", b"last-used 2026-11-30"]])) == (
        Entry("/a", "0" * 40, "main"),
    )


def test_the_list_of_a_real_git_is_read(tmp_path):
    made = Checkouts(tmp_path)
    words = ("git", "-C", str(made.main), "worktree", "list", "--porcelain", "-z")
    listed = entries_of(subprocess.run(words, check=True, capture_output=True).stdout)

    assert [(one.path, one.branch) for one in listed] == [
        (str(made.main), "main"),
        (str(made.linked), "cart"),
    ]
