//go:build unix

package main

import (
	"errors"
	"fmt"
)

// errWrong is wrapped when a scenario did not end as it should.
var errWrong = errors.New("wrong verdict")

// errUntidy is wrapped when something that the demo started or wrote may be left.
var errUntidy = errors.New("clean up")

// gone is the value of outcome.pv for a PV that left the API server.
const gone = "gone"

// outcome is the end of a scenario in the API server, in the driver's record and on the driver's disk.
type outcome struct {
	// pv is the PV's phase, or gone.
	pv string
	// protected means that csi-reclaimer's finalizer was on the PV at some time, and held that it still is.
	protected, held bool
	// deleteCalls is the number of DeleteVolume calls that the driver received for the volume.
	deleteCalls int
	// late means that the PV was gone before the driver had answered DeleteVolume. A crash between the two would have
	// leaked the volume.
	late bool
	// onDisk means that the volume's folder exists.
	onDisk bool
}

// ending is how a scenario ends, as a comparable value.
type ending interface {
	fmt.Stringer
	// cells are the columns of a table; each can be read by itself too.
	cells() []string
}

// verdict is a scenario's end beside the right one.
type verdict struct {
	title string
	// conclusion is said when the scenario ended as it should.
	conclusion string
	// harm is the word for the expected harm in a scenario without protection, empty otherwise.
	harm       string
	want, seen ending
}

// leakedIf is the harm of a scenario in which a volume leaks.
func leakedIf(leaks bool) string {
	if leaks {
		return "leaked"
	}
	return ""
}

func (v verdict) right() bool { return v.seen == v.want }

// judge returns nil if every scenario ended as it should, else which did not, and how.
func judge(verdicts []verdict) error {
	var wrong []error
	for _, v := range verdicts {
		if !v.right() {
			wrong = append(wrong, fmt.Errorf("%w: %s: expected %v; seen %v", errWrong, v.title, v.want, v.seen))
		}
	}
	return errors.Join(wrong...)
}
