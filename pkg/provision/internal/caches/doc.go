// Package caches has what a provisioner watches: claims, PVs and classes, with no more memory than its decisions need.
package caches
