package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// checkout describes the sources of a release and their time.
type checkout struct {
	commit string
	// changes is the output of "git status", and empty if the checkout equals the commit.
	changes string
	// created is the time in all files of the release.
	created time.Time
}

// readCheckout rejects a checkout with changes, and one whose commit differs from the tag of the version.
func readCheckout(ctx context.Context, o options) (checkout, error) {
	c, err := state(ctx, o.root)
	if err != nil {
		return checkout{}, err
	}
	if c.changes != "" && !o.trial {
		return checkout{}, fmt.Errorf("%s has uncommitted changes, so this release could not be reproduced:\n%s\ncommit or "+
			"remove them; for a trial, set TRIAL=1 (--trial)", o.root, c.changes)
	}
	// The tag may not exist yet, because it can be set after the release is complete.
	tagged, err := git(ctx, o.root, "for-each-ref", "refs/tags/"+o.version,
		"--format=%(if)%(*objectname)%(then)%(*objectname)%(else)%(objectname)%(end)")
	if err != nil {
		return checkout{}, fmt.Errorf("the tags of %s: %w", o.root, err)
	}
	if tagged != "" && tagged != c.commit {
		return checkout{}, fmt.Errorf("tag %s is commit %s, and the checkout is commit %s: check the tag out, or choose "+
			"another version", o.version, tagged, c.commit)
	}
	seconds := o.epoch
	if seconds == "" {
		if seconds, err = git(ctx, o.root, "show", "--no-patch", "--no-show-signature", "--format=%ct", "HEAD"); err != nil {
			return checkout{}, fmt.Errorf("the time of the commit: %w", err)
		}
	}
	epoch, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || epoch < 0 {
		return checkout{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q, and not a number of seconds since 1970", seconds)
	}
	c.created = time.Unix(epoch, 0).UTC()
	return c, nil
}

// state returns the commit and the changes of a checkout.
func state(ctx context.Context, root string) (checkout, error) {
	commit, err := git(ctx, root, "rev-parse", "--verify", "HEAD")
	if err != nil {
		return checkout{}, fmt.Errorf("the commit of %s: %w; run this in a checkout of the repository", root, err)
	}
	changes, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return checkout{}, fmt.Errorf("the state of %s: %w", root, err)
	}
	return checkout{commit: commit, changes: changes}, nil
}

// unchanged returns an error if the checkout changed during the run, because the parts may then have different
// sources.
func (c checkout) unchanged(ctx context.Context, root string) error {
	now, err := state(ctx, root)
	if err != nil {
		return err
	}
	if now.commit != c.commit || now.changes != c.changes {
		return errors.New("the checkout was changed while the release was made: run make release again")
	}
	return nil
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(complaints.String()))
	}
	return strings.TrimRight(string(out), "\n"), nil
}
