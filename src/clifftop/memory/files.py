"""Where state lies on disk: in a private file on a local disk, and nowhere else.

Knows paths, owners, modes and mounts, but nothing of what is in a state file. Every refusal is an
`OSError` whose text says why; what a refusal means for a running proxy is `sqlite`'s.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

DIRECTORY_MODE, FILE_MODE = 0o700, 0o600
SECRET_BYTES = 32
MOUNTS = Path("/proc/self/mountinfo")

NETWORK_FILE_SYSTEMS = re.compile(
    r"9p|afp|afs|beegfs|ceph|cifs|coda|davfs|gfs2|glusterfs|gpfs|lustre|ncpfs|nfs4?|ocfs2|orangefs"
    r"|pvfs2|smb[23]?|smbfs|vboxsf|fuse\.(ceph|davfs2|gcsfuse|glusterfs|s3fs|smbnetfs|sshfs)"
)
"""WAL needs memory that all processes share: over a network it corrupts (sqlite.org/wal.html)."""


def default_state_path(environ: Mapping[str, str]) -> Path | None:
    """Find where state lies unless told otherwise; None where the user has no home.

    Source: XDG Base Directory Specification (a relative path counts as unset).
    """
    state_home = environ.get("XDG_STATE_HOME", "")
    if not state_home.startswith("/"):
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            try:
                home = pwd.getpwuid(os.getuid()).pw_dir
            except KeyError:
                return None
        state_home = os.path.join(home, ".local", "state")
    return Path(state_home, "clifftop", "state.db")


def make_private(path: Path, *, mounts: Path = MOUNTS) -> None:
    """Make a state file's directory and the empty file, or check that what is there is safe to use.

    Raises:
        OSError: it is no place for state; the text says why.
    """
    directory = path.parent
    _make_directory(directory)
    kind = file_system(directory, mounts)
    if kind is not None and NETWORK_FILE_SYSTEMS.fullmatch(kind):
        raise OSError(errno.EREMOTE, f"lies on a network file system ({kind})")
    for name in (f"{path.name}-wal", f"{path.name}-shm", f"{path.name}-journal"):
        check_private(directory / name)
    if not check_private(path):
        # Only a file that is new may be opened here: closing one that SQLite has open elsewhere in
        # this process would drop SQLite's own locks on it (sqlite.org/howtocorrupt.html, 2.2).
        with suppress(FileExistsError):
            _create(path, b"")
        check_private(path)  # gives back what a umask took


def read_secret(path: Path, new_secret: Callable[[int], bytes]) -> bytes:
    """Read the secret of a file, which is made first if there is none; the first maker wins.

    Raises:
        OSError: it is not ours alone, or damaged.
    """
    if not check_private(path):
        # Linked when whole: whoever sees it sees all of it.
        whole = path.with_name(f"{path.name}.{os.getpid()}-{new_secret(8).hex()}")
        try:
            _create(whole, new_secret(SECRET_BYTES))
            with suppress(FileExistsError):
                os.link(whole, path)
        finally:
            whole.unlink(missing_ok=True)
        check_private(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        secret = os.read(descriptor, SECRET_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(secret) != SECRET_BYTES:
        raise OSError(errno.EINVAL, f"its secret {path.name} is damaged: delete it")
    return secret


def check_private(path: Path) -> bool:
    """Is there a file? Then it is ours and no link, and from now on nobody else's to read.

    Raises:
        OSError: it is something else.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, f"{path.name} is a symbolic link")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"{path.name} is no file")
    if found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, f"{path.name} belongs to another user")
    if stat.S_IMODE(found.st_mode) != FILE_MODE:
        path.chmod(FILE_MODE)
    return True


def file_system(directory: Path, mounts: Path = MOUNTS) -> str | None:
    """Name the kind of file system that a directory lies on; None where nothing tells.

    Source: proc_pid_mountinfo(5).
    """
    try:
        lines = mounts.read_bytes().splitlines()
    except OSError:
        return None
    place = os.path.realpath(os.fsencode(directory))
    deepest, kind = -1, None
    for line in lines:
        mount, _, rest = line.partition(b" - ")
        fields = mount.split(b" ")
        if len(fields) < 5 or not rest:
            continue
        root = OCTAL.sub(lambda found: bytes([int(found[1], 8) & 255]), fields[4])
        is_above = place == root or place.startswith(root.rstrip(b"/") + b"/")
        # Of two mounts at one place the later covers the earlier.
        if is_above and len(root) >= deepest:
            deepest, kind = len(root), os.fsdecode(rest.split(b" ")[0])
    return kind


OCTAL = re.compile(rb"\\([0-7]{3})")


def _make_directory(directory: Path) -> None:
    try:
        found = directory.lstat()
    except FileNotFoundError:
        missing = [x for x in (directory, *directory.parents) if not x.exists()]
        for path in reversed(missing):
            with suppress(FileExistsError):
                path.mkdir(DIRECTORY_MODE)
                path.chmod(DIRECTORY_MODE)  # a umask may have taken our own rights
        found = directory.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "its directory is a symbolic link")
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "its directory is none")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise PermissionError(errno.EPERM, "anybody can write to its directory")


def _create(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        os.write(descriptor, content)
        if content:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
