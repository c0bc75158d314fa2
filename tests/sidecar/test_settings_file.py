"""A settings file is what a person writes: one that is far larger is refused at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.sidecar import actions


def test_a_settings_file_of_more_than_256_kib_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "hangdoctor.toml"
    path.write_text("[actions]\n" + "# a comment\n" * 30_000)
    with pytest.raises(BadInput, match=r"hangdoctor\.toml is larger than 256 KiB"):
        actions.load(path)
    path.write_text("[actions]\n" + "# a comment\n" * 3_000)
    assert actions.load(path).action == []
