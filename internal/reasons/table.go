package reasons

import (
	"fmt"
	"slices"
)

// The reasons that the work on any object can have.
const (
	APIReadFailed  = "APIReadFailed"
	APIWriteFailed = "APIWriteFailed"
	DryRun         = "DryRun"
)

// Word is a reason of the family F.
type Word[F Family] string

// Family identifies the package of a reason, so that equal words of two packages differ. Its zero value is used.
type Family interface {
	// About returns the meaning of a word, or the zero value for an unknown word.
	About(word string) About
}

// About returns the meaning and severity of the reason, or the zero value for an unknown word.
func (w Word[F]) About() About {
	var family F
	return family.About(string(w))
}

// Sentence returns the meaning of the reason, and the action that a person can take, if any.
func (w Word[F]) Sentence() string { return w.About().Sentence }

// EventType returns the type of the Events with this reason, Normal or Warning, or "" for a reason without Events.
func (w Word[F]) EventType() string { return w.About().Severity.EventType() }

// Waits reports whether an object with this reason counts as waiting.
func (w Word[F]) Waits() bool { return w.About().Severity.Waits() }

// Would returns the report of a dry run, which leaves out an action with this reason.
func (w Word[F]) Would(action fmt.Stringer) string {
	return "Would do " + action.String() + ": " + w.Sentence()
}

// Table has the reasons of a family, none in its zero value. The variables of a package declare its reasons, in the
// order of their declaration. After that, the table is only read, and is safe for concurrent use.
type Table[F Family] struct {
	words []Word[F]
	about map[string]About
}

// Declare adds a reason to the table, and returns it.
func (t *Table[F]) Declare(word string, about About) Word[F] {
	if t.about == nil {
		t.about = map[string]About{}
	}
	t.words, t.about[word] = append(t.words, Word[F](word)), about
	return Word[F](word)
}

// Silent declares a reason of the normal course of things.
func (t *Table[F]) Silent(word, sentence string) Word[F] {
	return t.Declare(word, About{Severity: Silent, Sentence: sentence})
}

// Counted declares a reason that keeps an object waiting, without Events.
func (t *Table[F]) Counted(word, sentence string) Word[F] {
	return t.Declare(word, About{Severity: Counted, Sentence: sentence})
}

// Normal declares a reason that keeps an object waiting as intended.
func (t *Table[F]) Normal(word, sentence string) Word[F] {
	return t.Declare(word, About{Severity: Normal, Sentence: sentence})
}

// Warning declares a reason that needs a person's attention.
func (t *Table[F]) Warning(word, sentence string) Word[F] {
	return t.Declare(word, About{Severity: Warning, Sentence: sentence})
}

// APIFailures declares the reasons of failed calls to the API server: of a read that is needed for a purpose, and of a
// write. program tries again.
func (t *Table[F]) APIFailures(purpose, program string) (read, write Word[F]) {
	return t.Warning(APIReadFailed, fmt.Sprintf("A read from the API server that the %s needs failed; %s tries again.",
			purpose, program)),
		t.Warning(APIWriteFailed, fmt.Sprintf("A write to the API server failed; %s tries again.", program))
}

// DryRun declares the reason of a step that a dry run leaves out.
func (t *Table[F]) DryRun() Word[F] { return t.Normal(DryRun, "Dry run, nothing is changed.") }

// Reasons returns every reason of the table, in the order of their declaration, in a slice that the caller may modify.
func (t *Table[F]) Reasons() []Word[F] { return slices.Clone(t.words) }

// About returns the meaning of a word, or the zero value for an unknown word.
func (t *Table[F]) About(word string) About { return t.about[word] }
