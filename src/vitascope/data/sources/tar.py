"""Tar archives of unknown origin, read with limits on their headers.

Python's reader trusts what a header says. A member of negative length leads it back to a header
that it has read already, for ever (CVE-2025-8194, in every Python before the autumn of 2025); a
name or a table of attributes is read into memory, however long it is said to be.
"""

import tarfile

MOST_ATTRIBUTES = 2**20  # bytes of a member's name or attributes; a path has at most 4,096
_ATTRIBUTES = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class _Header(tarfile.TarInfo):
    """A header whose length is checked before anything is read by it."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Header":
        found = super().frombuf(buf, encoding, errors)
        most = MOST_ATTRIBUTES if found.type in _ATTRIBUTES else found.size
        if not 0 <= found.size <= most:
            raise tarfile.ReadError(f"a member of {found.size:,} bytes that cannot be")
        return found


class BoundedTar(tarfile.TarFile):
    """A tar archive that is read from its beginning to its end, once.

    Raises:
        tarfile.ReadError: At an invalid member.
    """

    tarinfo = _Header

    def next(self) -> tarfile.TarInfo | None:
        """The next member, which begins after the one before."""
        found = super().next()
        if found is not None and (found.size < 0 or self.offset <= found.offset):
            raise tarfile.ReadError(f"{found.name[:80]!r} ends before it begins")
        return found
