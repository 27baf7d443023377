// Package ledger is the mock driver's own record of what it was asked, what it did and what it answered: JSON
// lines, appended, one write(2) each, so that kill -9 loses nothing that was written. It is the outside witness of
// tests: the program under test has no part in it.
//
// A call leaves an entry when it is received, one at the moment it changed something (if it did), and one when it
// is answered. A call that was received and never answered was cut off, or still runs. [Read] gives the entries,
// [Calls] folds them into calls, [Wait] waits for some.
//
// Secrets are never written, only the names of their keys.
package ledger
