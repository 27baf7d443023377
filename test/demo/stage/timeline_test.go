//go:build unix

package stage

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTimelineIsSortedByTime(t *testing.T) {
	var out bytes.Buffer
	line := NewPrinter(&out, false).Timeline()
	line.Driver(line.start.Add(2*time.Second), "second")
	line.Driver(line.start.Add(20*time.Millisecond), "first")
	line.Print()
	if want := "      20 ms  driver  first\n    2.00 s   driver  second\n"; out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}

func TestLiveTimelinePrintsImmediately(t *testing.T) {
	var out bytes.Buffer
	line := NewPrinter(&out, false).LiveTimeline()
	line.Demo("starting")
	if !strings.HasSuffix(out.String(), "demo    starting\n") {
		t.Errorf("printed %q", out.String())
	}
}

func TestWrap(t *testing.T) {
	if got := wrap("one two  three\nfour-and-five six", 9); !slices.Equal(got,
		[]string{"one two", "three", "four-and-five", "six"}) {
		t.Errorf("got %q", got)
	}
	if got := wrap("", 9); len(got) != 0 {
		t.Errorf("got %q for nothing", got)
	}
}
