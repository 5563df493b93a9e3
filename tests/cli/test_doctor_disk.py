"""What `amoxi doctor` says of the disk under the embedded store, where a link or a volume leads to another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from amoxi_py.cli.checks import disk


@pytest.mark.parametrize(
    ("volume", "told"), [("ext4", None), ("overlay", "container's own layer"), ("nfs4", "network")]
)
def test_the_disk_is_that_of_the_volume_that_the_folder_links_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, volume: str, told: str | None
) -> None:
    kept, app = tmp_path.resolve() / "volume", tmp_path.resolve() / "app"
    kept.mkdir()
    app.mkdir()
    (app / "data").symlink_to(kept)
    (tmp_path / "mounts").write_text(f"layer / overlay rw 0 0\ndisk {kept} {volume} rw 0 0\n")
    monkeypatch.setattr(disk, "_MOUNTS", tmp_path / "mounts")
    texts = [finding.text for finding in disk.look_at_disk(app / "data" / "ai")]
    found = [text for text in texts if "container" in text or "network" in text]
    assert len(found) == (told is not None), found
    for text in found:
        assert told is not None
        assert told in text
        assert repr(str(kept)) in text
