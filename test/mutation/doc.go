// Command mutation removes guards from the code that decides, deletes, releases or takes over, one at a time, and
// shows that a test notices each.
//
// It finds the guards in the syntax tree: conditions, their operands, cases, statements, preconditions of writes.
// [scopes] says in which files and functions. What no operator expresses is in [edits], addressed by its expression in
// the package. A guard that nothing can notice is an [exception], with its reason.
//
// All mutants of a package are compiled into one test binary by the go command's -overlay, and an environment variable
// selects the one that is active. Nothing in the tree changes, and the code that ships has no switches.
package main
