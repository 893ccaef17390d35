"""Where state lies: in a private file of ours on a local disk, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from clifftop.memory.files import file_system, make_private, read_secret
from clifftop.memory.sqlite import open_sqlite
from tests.memory.test_store import FIRST


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o377])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
async def test_directory_and_files_are_private_under_any_umask(tmp_path: Path) -> None:
    path = tmp_path / "state" / "clifftop" / "state.db"
    store = open_sqlite(path)
    await store.put("local", b"a", FIRST)
    assert mode(path.parent) == mode(path.parent.parent) == 0o700
    names = ["state.db", "state.db-shm", "state.db-wal", "state.db.secret"]
    assert sorted(os.listdir(path.parent)) == names
    assert {name: mode(path.parent / name) for name in names} == dict.fromkeys(names, 0o600)
    await store.close()
    assert store.notes == []


async def test_files_that_others_can_read_are_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await open_sqlite(path).close()
    leftover = tmp_path / "state.db-shm"
    leftover.touch()
    for file in (path, leftover, tmp_path / "state.db.secret"):
        file.chmod(0o644)
    store = open_sqlite(path)
    await store.put("local", b"a", FIRST)
    assert {mode(file) for file in tmp_path.iterdir()} == {0o600}
    await store.close()


@pytest.mark.parametrize("name", ["state.db", "state.db-wal", "state.db-shm", "state.db.secret"])
@pytest.mark.parametrize("target_exists", [True, False])
async def test_symlinks_are_never_followed(name: str, target_exists: bool, tmp_path: Path) -> None:
    directory, target = tmp_path / "state", tmp_path / "target"
    directory.mkdir(0o700)
    if target_exists:
        target.write_bytes(b"theirs")
        target.chmod(0o644)
    (directory / name).symlink_to(target)
    store = open_sqlite(directory / "state.db")
    await store.put("local", b"a", FIRST)
    assert not store.is_durable
    assert f"{name} is a symbolic link; remembering in memory only" in store.notes[0]
    assert len(store.notes) == 1
    assert target.exists() == target_exists
    assert not target_exists or (target.read_bytes(), mode(target)) == (b"theirs", 0o644)
    await store.close()


async def test_a_symlinked_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = open_sqlite(tmp_path / "link" / "state.db")
    assert "its directory is a symbolic link" in store.notes[0]
    assert os.listdir(tmp_path / "real") == []


async def test_a_directory_under_a_link_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real" / "state").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = open_sqlite(tmp_path / "link" / "state" / "state.db")
    assert store.is_durable
    await store.close()


def test_a_directory_that_anybody_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(PermissionError, match="anybody can write to its directory"):
        make_private(tmp_path / "open" / "state.db")
    (tmp_path / "open").chmod(0o1777)
    make_private(tmp_path / "open" / "state.db")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["state.db", "state.db-wal", "state.db.secret"])
async def test_files_of_another_user_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    os.chown(tmp_path / name, 12345, 12345)
    store = open_sqlite(tmp_path / "state.db")
    assert f"{name} belongs to another user" in store.notes[0]


@pytest.mark.parametrize("name", ["state.db", "state.db.secret"])
async def test_what_is_no_file_is_refused(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    store = open_sqlite(tmp_path / "state.db")
    assert f"{name} is no file" in store.notes[0]


@pytest.mark.parametrize("place", ["file/state.db", "file/deeper/state.db", "/proc/state.db"])
async def test_a_place_that_cannot_be_written_falls_back_to_memory(
    place: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    store = open_sqlite(tmp_path / place)
    assert not store.is_durable
    assert await store.put("local", b"a", FIRST) == FIRST
    assert await store.longest("local", [b"a"]) == (0, FIRST)
    assert len(store.notes) == 1
    assert store.notes[0].endswith("remembering in memory only")


def test_the_secret_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    secret = read_secret(path, os.urandom)
    assert len(secret) == 32
    assert read_secret(path, os.urandom) == secret
    assert os.listdir(tmp_path) == ["secret"]
    assert mode(path) == 0o600


def test_who_loses_the_race_for_a_secret_takes_the_winners(tmp_path: Path) -> None:
    path = tmp_path / "secret"

    def slow_random(size: int) -> bytes:
        if size == 32 and not path.exists():
            read_secret(path, lambda size: b"w" * size)
        return b"l" * size

    assert read_secret(path, slow_random) == b"w" * 32
    assert os.listdir(tmp_path) == ["secret"]


@pytest.mark.parametrize("content", [b"", b"short", bytes(33)])
async def test_a_damaged_secret_is_said_and_left_alone(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "state.db.secret").write_bytes(content)
    store = open_sqlite(tmp_path / "state.db")
    assert "its secret state.db.secret is damaged: delete it" in store.notes[0]
    assert (tmp_path / "state.db.secret").read_bytes() == content


def mounts(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text("\n".join(lines) + "\n")
    return path


ROOT = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw"


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"])
async def test_network_file_systems_are_refused(kind: str, tmp_path: Path) -> None:
    home = f"40 27 0:50 / {tmp_path} rw shared:1 master:2 - {kind} server:/home rw"
    store = open_sqlite(tmp_path / "state.db", mounts=mounts(tmp_path, ROOT, home))
    assert f"lies on a network file system ({kind})" in store.notes[0]
    assert not (tmp_path / "state.db").exists()


def test_the_deepest_and_latest_mount_counts(tmp_path: Path) -> None:
    (tmp_path / "a b" / "c").mkdir(parents=True)
    space = str(tmp_path / "a b").replace(" ", "\\040")
    found = mounts(
        tmp_path,
        ROOT,
        f"40 27 0:50 / {space} rw - nfs server:/ rw",
        f"41 27 0:50 / {space} rw - xfs /dev/b rw",
        f"42 27 0:50 / {tmp_path}/a rw - nfs server:/ rw",
        "a line that is none",
    )
    assert file_system(tmp_path / "a b" / "c", found) == "xfs"
    assert file_system(tmp_path / "a bc", found) == "ext4"
    assert file_system(tmp_path, tmp_path / "no such file") is None
    assert file_system(Path("/proc")) in ("proc", None)
