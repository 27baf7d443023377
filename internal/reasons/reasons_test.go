package reasons

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

type word string

const (
	lost  word = "Lost"
	other word = "Other"
)

type foreign string

func TestReasonOfError(t *testing.T) {
	cause := errors.New("no answer")
	for name, c := range map[string]struct {
		err  error
		want word
	}{
		"none":                       {cause, other},
		"one":                        {Because(lost, cause), lost},
		"wrapped":                    {fmt.Errorf("read: %w", Because(lost, cause)), lost},
		"two":                        {Because(other, Because(lost, cause)), other},
		"one of another package too": {Because(foreign("Far"), Because(lost, cause)), lost},
		"only another package's":     {Because(foreign("Far"), cause), other},
	} {
		if got := Of(c.err, other); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if !errors.Is(c.err, cause) {
			t.Errorf("%s: the cause is lost", name)
		}
	}
	if err := Because(lost, nil); err != nil {
		t.Errorf("success became %v", err)
	}
}

func TestSeverity(t *testing.T) {
	for severity, want := range map[Severity]struct {
		event string
		waits bool
	}{Silent: {"", false}, Counted: {"", true}, Normal: {"Normal", true}, Warning: {"Warning", true}} {
		if severity.EventType() != want.event || severity.Waits() != want.waits {
			t.Errorf("severity %d: Event %q, waits %v", severity, severity.EventType(), severity.Waits())
		}
	}
}

// family has the reasons of this test.
type family struct{}

func (family) About(word string) About { return table.About(word) }

var (
	table Table[family]

	otherWord = table.Declare("Other", About{Severity: Warning, Sentence: "Another one.", OnClaim: true})
	lostWord  = table.Silent("Lost", "It is lost.")
	counted   = table.Counted("Counted", "It is counted.")
	normal    = table.Normal("Normal", "It is normal.")
	warning   = table.Warning("Warning", "It is a warning.")

	readFailed, writeFailed = table.APIFailures("decision", "the program")
	dryRun                  = table.DryRun()
)

func TestTable(t *testing.T) {
	all := table.Reasons()
	if !slices.Equal(all, []Word[family]{"Other", "Lost", "Counted", "Normal", "Warning", "APIReadFailed",
		"APIWriteFailed", "DryRun"}) {
		t.Errorf("reasons %q", all)
	}
	if all[0] = "Changed"; table.Reasons()[0] != otherWord {
		t.Error("the caller changed the table")
	}
	for reason, want := range map[Word[family]]About{
		otherWord: {Severity: Warning, Sentence: "Another one.", OnClaim: true},
		lostWord:  {Sentence: "It is lost."},
		counted:   {Severity: Counted, Sentence: "It is counted."},
		normal:    {Severity: Normal, Sentence: "It is normal."},
		warning:   {Severity: Warning, Sentence: "It is a warning."},
		readFailed: {Severity: Warning,
			Sentence: "A read from the API server that the decision needs failed; the program tries again."},
		writeFailed: {Severity: Warning, Sentence: "A write to the API server failed; the program tries again."},
		dryRun:      {Severity: Normal, Sentence: "Dry run, nothing is changed."},
		"None":      {},
	} {
		if got := reason.About(); got != want {
			t.Errorf("%s: %+v, want %+v", reason, got, want)
		}
		if reason.Sentence() != want.Sentence || reason.EventType() != want.Severity.EventType() ||
			reason.Waits() != want.Severity.Waits() {
			t.Errorf("%s: sentence %q, Event %q, waits %v", reason, reason.Sentence(), reason.EventType(), reason.Waits())
		}
	}
}

func TestDryRunReport(t *testing.T) {
	if got := lostWord.Would(time.Second); got != "Would do 1s: It is lost." {
		t.Errorf("%q", got)
	}
}
