// Command mutation removes guards from the code that decides, deletes, releases or takes over, one at a time, and shows
// that a test notices each removal.
//
// It finds the guards in the syntax tree: conditions, their operands, cases, statements, preconditions of writes.
// [scopes] selects files and functions. [edits] has the guards that no operator expresses, addressed by their
// expression in the package. A guard whose removal no test can notice is an [exception], with its reason.
//
// All mutants of a package are compiled into one test binary by the go command's -overlay, and an environment variable
// selects the one that is active. Nothing in the tree changes, and the code that ships has no switches.
package main
