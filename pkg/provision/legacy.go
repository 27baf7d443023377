package provision

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// LegacyFinalizer is the finalizer that earlier versions added to a claim while its volume was being made, with a
// node's name behind it where each node made its own volumes. None is added any more: an entry of the in-flight log
// takes its place, and it is removed.
const LegacyFinalizer = "csi-reclaimer.io/provisioning"

// maxFinalizer is how long the part of a finalizer's name behind the slash may be.
const maxFinalizer = 63

// legacyFinalizerOf returns the finalizer of earlier versions for a node.
func legacyFinalizerOf(node string) string {
	const prefix = LegacyFinalizer + "-"
	room := maxFinalizer - (len(prefix) - len("csi-reclaimer.io/"))
	if len(node) <= room {
		return prefix + node
	}
	hash := fnv.New32a()
	hash.Write([]byte(node)) // never fails (hash.Hash)
	return fmt.Sprintf("%s%s-%08x", prefix, node[:room-9], hash.Sum32())
}

// legacyFinalizer is the one that this process is to remove.
func (c Config) legacyFinalizer() string {
	if c.Local == nil {
		return LegacyFinalizer
	}
	return legacyFinalizerOf(c.Local.Node.Name)
}

// IsLegacyFinalizer says whether a finalizer is one that earlier versions added to claims, of whichever node.
func IsLegacyFinalizer(finalizer string) bool {
	return finalizer == LegacyFinalizer || strings.HasPrefix(finalizer, LegacyFinalizer+"-")
}
