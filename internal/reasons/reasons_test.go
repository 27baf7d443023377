package reasons

import (
	"errors"
	"fmt"
	"slices"
	"testing"
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

func TestTable(t *testing.T) {
	table := NewTable([]Row[word]{
		{Reason: other, Severity: Warning, Sentence: "Another one.", OnClaim: true},
		{Reason: lost, Sentence: "It is lost.", OnSet: true},
	})
	all := table.Reasons()
	if !slices.Equal(all, []word{other, lost}) {
		t.Errorf("reasons %q", all)
	}
	if all[0] = "Changed"; table.Reasons()[0] != other {
		t.Error("the caller changed the table")
	}
	for reason, want := range map[word]About{
		other: {Severity: Warning, Sentence: "Another one.", OnClaim: true}, lost: {Sentence: "It is lost.", OnSet: true},
		"None": {},
	} {
		if got := table.About(reason); got != want {
			t.Errorf("%s: %+v, want %+v", reason, got, want)
		}
	}
}
