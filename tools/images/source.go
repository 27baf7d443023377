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

// home is the address of the source, derived from the module's path.
const home = "https://github.com/csi-reclaimer/csi-reclaimer"

// source describes the sources of a build, which determine the digests.
type source struct {
	version string
	// revision is the commit, with "-dirty" if the checkout has further changes. It may be empty.
	revision string
	modified bool
	// created is the time in all files that the build creates.
	created time.Time
}

// commit returns the revision if it is a commit that contains all sources, or else "".
func (s source) commit() string {
	if s.modified || len(s.revision) != 40 {
		return ""
	}
	return s.revision
}

// readSource asks git for the values that the flags leave open. The go command could stamp the same values into the
// programs, but only if git and the owner of the checkout permit it, so the result would depend on the machine.
func readSource(ctx context.Context, o options) (source, error) {
	s := source{version: o.version, revision: o.revision}
	if o.revision == "" {
		head, err := git(ctx, o.root, "rev-parse", "--verify", "HEAD")
		if err != nil {
			return source{}, fmt.Errorf("the commit of %s: %w; run this in a checkout, or set REVISION and SOURCE_DATE_EPOCH",
				o.root, err)
		}
		changes, err := git(ctx, o.root, "status", "--porcelain")
		if err != nil {
			return source{}, fmt.Errorf("the state of %s: %w", o.root, err)
		}
		s.revision, s.modified = head, changes != ""
		if s.modified {
			s.revision += "-dirty"
		}
	}
	seconds := o.epoch
	if seconds == "" {
		if o.revision != "" {
			return source{}, errors.New("with REVISION (--revision), set SOURCE_DATE_EPOCH to the time of that revision")
		}
		var err error
		if seconds, err = git(ctx, o.root, "show", "--no-patch", "--no-show-signature", "--format=%ct", "HEAD"); err != nil {
			return source{}, fmt.Errorf("the time of the commit: %w", err)
		}
	}
	epoch, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || epoch < 0 {
		return source{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q, and not a number of seconds since 1970", seconds)
	}
	s.created = time.Unix(epoch, 0).UTC()
	return s, nil
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(complaints.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
