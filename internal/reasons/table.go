package reasons

import "slices"

// Row is the row of a table for one reason.
type Row[R ~string] struct {
	Reason R
	// Severity, Sentence, DetailFirst, OnClaim and OnSet are the fields of [About].
	Severity    Severity
	Sentence    string
	DetailFirst bool
	OnClaim     bool
	OnSet       bool
}

// Table holds the meaning of a package's reasons. It cannot be changed, and is safe for concurrent use.
type Table[R ~string] struct {
	order []R
	about map[R]About
}

// NewTable returns a table of these rows, one for each reason.
func NewTable[R ~string](rows []Row[R]) Table[R] {
	t := Table[R]{about: make(map[R]About, len(rows))}
	for _, row := range rows {
		t.order = append(t.order, row.Reason)
		t.about[row.Reason] = About{Severity: row.Severity, Sentence: row.Sentence, DetailFirst: row.DetailFirst,
			OnClaim: row.OnClaim, OnSet: row.OnSet}
	}
	return t
}

// Reasons returns every reason of the table, in the order of its rows, in a slice that the caller may modify.
func (t Table[R]) Reasons() []R { return slices.Clone(t.order) }

// About returns the row of a reason, and the zero value for an unknown reason.
func (t Table[R]) About(reason R) About { return t.about[reason] }
