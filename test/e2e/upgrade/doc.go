// Package upgrade replaces the programs of the release before by today's while volumes, pods, claims and nodes are in
// the middle of things, and the other way round. The order is that of docs/how-to/upgrade.md: permissions before
// binaries, and binaries before permissions on the way back. The driver is the same all the time.
package upgrade
