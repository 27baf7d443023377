// Package finalizers names the finalizers of PersistentVolumeClaims that provisioning adds or removes.
package finalizers

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// Cloning keeps a claim while its volume is cloned. It is the stock external-provisioner's. A VolumeSnapshot has
// request.SnapshotFinalizer for the same purpose.
const Cloning = "provisioner.storage.kubernetes.io/cloning-protection"

// Legacy is the finalizer that earlier versions added to a claim while its volume was being created; see [LegacyOf]
// for its name where each node provisions. It is only ever removed: an entry of the in-flight log takes its place.
const Legacy = "csi-reclaimer.io/provisioning"

// maxName is how long the part of a finalizer's name behind the slash may be.
const maxName = 63

// LegacyOf returns the finalizer that earlier versions added where the node with this name provisioned; for an empty
// name that of a provisioner of the whole cluster. A name that is too long is cut off and gets a hash.
func LegacyOf(node string) string {
	if node == "" {
		return Legacy
	}
	const prefix = Legacy + "-"
	room := maxName - (len(prefix) - len("csi-reclaimer.io/"))
	if len(node) <= room {
		return prefix + node
	}
	hash := fnv.New32a()
	hash.Write([]byte(node)) // never fails (hash.Hash)
	return fmt.Sprintf("%s%s-%08x", prefix, node[:room-9], hash.Sum32())
}

// IsLegacy reports whether a finalizer is one that earlier versions added, of whichever node.
func IsLegacy(finalizer string) bool {
	return finalizer == Legacy || strings.HasPrefix(finalizer, Legacy+"-")
}
