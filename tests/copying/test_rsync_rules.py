"""What rsync is told, and how its endings are read."""

from __future__ import annotations

from provisioner.copying import rsync_rules


def test_the_comparison_is_the_copy_by_checksum_that_changes_nothing():
    copy = rsync_rules.copy("/from", "/to", leaves_lost_found=True)
    compare = rsync_rules.comparison("/from", "/to", leaves_lost_found=True)

    assert compare == ["--checksum", "--dry-run", "--itemize-changes", *copy]
    assert copy[-2:] == ["/from/", "/to/"]
    assert "--exclude=/lost+found" in copy


def test_files_in_lost_and_found_are_copied_too():
    assert rsync_rules.leaves_lost_found(None)
    assert rsync_rules.leaves_lost_found([])
    assert not rsync_rules.leaves_lost_found(["#12"])
    told = rsync_rules.copy("/from/", "/to/", leaves_lost_found=False)
    assert not [each for each in told if "lost" in each]
    assert told[-2:] == ["/from/", "/to/"]


def test_one_difference_after_the_copy_is_one_too_many():
    assert rsync_rules.differences("\n") is None
    assert rsync_rules.differences(">fc........ a\n>f..t...... b\n") == (
        "2 files differ from the old volume after they were copied: >fc........ a; >f..t...... b"
    )


def test_what_rsync_cannot_read_or_write_is_final_and_a_kill_is_not():
    assert rsync_rules.is_final(11)
    assert rsync_rules.is_final(23)
    assert not rsync_rules.is_final(-9)
    assert not rsync_rules.is_final(20)
    assert "No space" in rsync_rules.failure(11, "\nwrite failed: No space left on device\n")
