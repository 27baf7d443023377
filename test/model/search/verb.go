package search

import (
	"fmt"
	"slices"
)

// Verb is the kind of a move, as the format of the sentence that describes it. Its operands have explicit numbers.
type Verb string

// Sentence returns the sentence with these arguments, of which it needs some.
func (v Verb) Sentence(args ...any) string {
	// An operand for another, empty argument lets Sprintf accept arguments that no operand needs.
	return fmt.Sprintf(fmt.Sprintf("%s%%[%d]s", v, len(args)+1), append(args, "")...)
}

// Is reports whether the verb is one of these.
func (v Verb) Is(verbs ...Verb) bool { return slices.Contains(verbs, v) }

// Verbs returns a verb for each call. The format has %s for the name of the call, and %% before its other operands.
func Verbs(format string, calls []string) (verbs []Verb) {
	for _, call := range calls {
		verbs = append(verbs, Verb(fmt.Sprintf(format, call)))
	}
	return verbs
}

// Names returns the names of the actions of an engine up to the last one, by their numbers.
func Names[A interface {
	~uint8
	fmt.Stringer
}](last A) (names []string) {
	for a := range last + 1 {
		names = append(names, a.String())
	}
	return names
}

// Verdict has the promise that a move breaks. It is a part of each Transition.
type Verdict struct {
	// Wrong describes the promise, empty for none.
	Wrong string
}

// Broken returns the promise that is broken so far, empty for none.
func (v *Verdict) Broken() string { return v.Wrong }

// Violates records a broken promise, unless the move broke another one before.
func (v *Verdict) Violates(format string, args ...any) {
	if v.Wrong == "" {
		v.Wrong = fmt.Sprintf(format, args...)
	}
}

// Break is called for a fault, of which most models keep no record.
func (v *Verdict) Break() {}
