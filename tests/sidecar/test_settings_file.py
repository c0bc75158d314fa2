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


def test_nothing_leaves_the_host_unless_it_is_asked_for(tmp_path: Path) -> None:
    """Neither OpenTelemetry nor a notification: both need a line of the configuration."""
    path = tmp_path / "hangdoctor.toml"
    path.write_text("")
    for config in (actions.Config(), actions.load(path)):
        assert config.otel is None and not config.action
