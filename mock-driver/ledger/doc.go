// Package ledger records the mock driver's calls, their effects and their answers as JSON lines. Each line is
// appended by one write(2), so kill -9 loses no written line. For a test, the ledger is an independent witness,
// because the program under test has no part in it.
//
// A call has an entry on arrival, one when it changes the state (if it does), and one for its answer. A received call
// without an answer was cut off or still runs. [Read] returns the entries, [Calls] combines them into calls, and
// [Wait] waits for calls.
//
// The ledger never contains secrets, only the names of their keys.
package ledger
