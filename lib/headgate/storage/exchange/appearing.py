"""Files and folders that take their name when they are whole, and else leave nothing."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from headgate.core import errors


@contextlib.contextmanager
def appearing_file(output: Path) -> Iterator[BinaryIO]:
    """Give a file to write that takes the name `output` when all went well, and else leaves nothing.

    A device or a pipe is written as it is, and stays; so does a link.

    Raises:
        errors.InvalidInputError: if it cannot be written.
    """
    place = output.resolve()
    partial = place.with_name(f".{place.name}.partial")
    try:
        if place.is_dir():
            raise _is_folder(output)
        if output.exists() and not output.is_file():
            with output.open("wb") as file:
                yield file
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            yield file
        partial.replace(place)
    except OSError as error:
        raise _unwritable(output, error) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def workshop(output: Path, *, makes_folder: bool) -> Iterator[Path]:
    """Give an empty folder beside `output`; what is left in it as `made` takes the name `output` at the end.

    A file that has the name is replaced. A folder is not, unless it is empty: it may hold what is not ours.

    Raises:
        errors.InvalidInputError: if the name is taken, or cannot be written.
    """
    place = output.resolve()
    room = place.with_name(f".{place.name}.partial")
    try:
        _refuse_taken(output, makes_folder=makes_folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(room, ignore_errors=True)  # of an export that was killed
        room.mkdir()
        yield room
        (room / "made").replace(place)
    except OSError as error:
        raise _unwritable(output, error) from error
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _refuse_taken(output: Path, *, makes_folder: bool) -> None:
    if not makes_folder and output.is_dir():
        raise _is_folder(output)
    if makes_folder and output.exists() and not output.is_dir():
        raise errors.InvalidInputError(
            f"{output} is a file, and this format is a folder of files",
            next_step="Name a folder that is not there yet.",
        )
    if makes_folder and output.is_dir() and any(output.iterdir()):
        raise errors.InvalidInputError(
            f"folder {output} is not empty, and an export replaces files only",
            next_step="Name a folder that is not there yet, or empty this one.",
        )


def _is_folder(output: Path) -> errors.InvalidInputError:
    return errors.InvalidInputError(
        f"{output} cannot be written: it is a folder, and this format is one file", next_step="Name a file in it."
    )


def _unwritable(output: Path, error: OSError) -> errors.InvalidInputError:
    # What `mkdir` says of a folder in whose place there is a file helps nobody.
    why = "a folder of its path is a file" if isinstance(error, FileExistsError) else error.strerror or error
    return errors.InvalidInputError(
        f"{output} cannot be written: {why}",
        next_step="Name a place that you may write to, with room on its disk.",
    )
