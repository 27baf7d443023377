//go:build unix

// Package stage shows scenarios to a person: it announces and plays them, prints what happens, and judges how they
// ended. The command line of a program that does so is here, too.
package stage

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// errWrong is wrapped when a scenario did not end as it should.
var errWrong = errors.New("wrong verdict")

// errUntidy is wrapped when something that a program started or wrote may be left.
var errUntidy = errors.New("clean up")

// Judged says that all scenarios so far came to a verdict, right or wrong. It takes the error of Play.
func Judged(err error) bool { return err == nil || errors.Is(err, errWrong) }

// Untidy returns an error for something that may be left behind, nil if all errors are nil.
func Untidy(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", errUntidy, err)
	}
	return nil
}

// Ending is how a scenario ends, as a comparable value.
type Ending interface {
	// Cells are the columns of a table; each can be read by itself too.
	Cells() []string
}

func inWords(e Ending) string { return strings.Join(e.Cells(), ", ") }

// Scenario is a scenario and its right end.
type Scenario struct {
	// Title is a line, Description a paragraph. Ends is the end in a few words, for the list of all scenarios.
	Title, Description, Ends string
	// Conclusion is said when the scenario ended as it should.
	Conclusion string
	// Harm is the word for the expected harm in a scenario without protection, empty otherwise.
	Harm string
	Want Ending
	// Play plays the scenario, and returns how it ended.
	Play func(context.Context) (Ending, error)
	// Again looks once more, after all others: a volume that was to stay may be gone by then, a call may have been
	// repeated. Optional.
	Again func(context.Context) (Ending, error)
}

// Staged returns the scenario itself, also where another type embeds it.
func (s Scenario) Staged() Scenario { return s }

// Leaked is the harm of a scenario in which a volume leaks.
const Leaked = "leaked"

// Act is a group of scenarios that have their parts in common.
type Act struct {
	About     string
	Scenarios []Scenario
}

// NewAct returns an act of scenarios, each of which is or embeds a Scenario.
func NewAct[S interface{ Staged() Scenario }](about string, scenarios []S) Act {
	a := Act{About: about}
	for _, sc := range scenarios {
		a.Scenarios = append(a.Scenarios, sc.Staged())
	}
	return a
}

// verdict is a scenario with how it ended.
type verdict struct {
	Scenario
	seen Ending
}

func (v verdict) right() bool { return v.seen == v.Want }

func (v verdict) word() string {
	switch {
	case !v.right():
		return "WRONG"
	case v.Harm != "":
		return v.Harm
	}
	return "right"
}

func (v verdict) color() string {
	if v.right() {
		return green
	}
	return red
}

// judge returns nil if every scenario ended as it should, else which did not, and how.
func judge(verdicts []verdict) error {
	var wrong []error
	for _, v := range verdicts {
		if !v.right() {
			wrong = append(wrong, fmt.Errorf("%w: %s: expected %s; seen %s", errWrong, v.Title, inWords(v.Want),
				inWords(v.seen)))
		}
	}
	return errors.Join(wrong...)
}

// Play plays scenarios, and judges them under a head. The error says which ended in another way than they should, or
// which could not be played; Judged tells the two apart.
func (p *Printer) Play(ctx context.Context, head string, scenarios []Scenario) error {
	var verdicts []verdict
	for _, sc := range scenarios {
		p.scenario(sc)
		seen, err := sc.Play(ctx)
		if err != nil {
			return fmt.Errorf("scenario %q: %w", sc.Title, err)
		}
		v := verdict{sc, seen}
		p.moral(v)
		verdicts = append(verdicts, v)
	}
	for i, sc := range scenarios {
		if sc.Again == nil {
			continue
		}
		var err error
		if verdicts[i].seen, err = sc.Again(ctx); err != nil {
			return fmt.Errorf("scenario %q: %w", sc.Title, err)
		}
	}
	p.Head(head)
	p.table(verdicts)
	return judge(verdicts)
}
