// Command mutants takes guards out of pkg/reclaim, pkg/provision, pkg/intree, pkg/inuse and pkg/admission, one at a time, and shows that
// the unit tests and, where it knows the place, the model checker each notice.
//
// A mutant is one edit of a source file. It is compiled in by the go command's -overlay, so
// that nothing in the tree changes and the code that ships has no switches.
package main
