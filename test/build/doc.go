// Package build tests that make build makes the programs that it should: they know their version, explain themselves
// and start. The tests of test/e2e start the same files.
package build
