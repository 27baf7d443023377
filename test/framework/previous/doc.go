//go:build unix

// Package previous has the release before this checkout, for tests of upgrades and rollbacks: which commit it is
// ([Find]), its files, and its programs. It reads the history of the checkout, and changes nothing there: the files
// are a copy in the cache of the user.
package previous
