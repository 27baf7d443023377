// Package caches has a provisioner's watch caches of claims, PVs and classes, with no more memory than its decisions
// need.
package caches
