// Package sources removes the finalizers that keep what volumes are made from, VolumeSnapshots and cloned claims, where
// nobody else does: those that a process left behind, and, on the way out, all of a driver.
package sources
