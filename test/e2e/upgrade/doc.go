// Package upgrade replaces the programs of the previous release by today's, and the other way round, while volumes,
// pods, claims and nodes are in the middle of an operation. It follows the order of docs/how-to/upgrade.md: permissions
// before binaries, and binaries before permissions on the way back. The driver stays the same.
package upgrade
