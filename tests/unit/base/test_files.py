# SPDX-License-Identifier: GPL-2.0-only
"""Files that are replaced: as a whole, and nothing is replaced or followed that must not be."""

from __future__ import annotations

import os
import stat
import threading

import pytest

from trapless.base.console import TraplessError
from trapless.base.files import replace_file

LIMIT_S = 60.0


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with path.open() as before:
        replace_file(path, "new")
        assert before.read() == "old" and path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_in_the_place_of_the_fresh_file_leads_nowhere(tmp_path):
    """Its name is known, and in /tmp anybody may make it before root writes a page there."""
    secret, path = tmp_path / "secret", tmp_path / "a"
    secret.write_text("kept")
    (tmp_path / ".a.new").symlink_to(secret)
    replace_file(path, "new")
    assert secret.read_text() == "kept" and path.read_text() == "new"
    assert not path.is_symlink()


def test_a_pipe_and_a_link_like_that_of_standard_output_stay(tmp_path):
    """Root may take a device's place as well: /dev/null would be a file for all others."""
    pipe, link, said = tmp_path / "pipe", tmp_path / "link", []
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        reader = threading.Thread(target=lambda: said.append(pipe.read_text()), daemon=True)
        reader.start()
        replace_file(path, "text")
        reader.join(LIMIT_S)
    assert said == ["text", "text"] and link.is_symlink()
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_full_device_is_said(tmp_path):
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    with pytest.raises(TraplessError, match="cannot be written: No space left"):
        replace_file(link, "text")
    assert link.is_symlink()
